"""``verify`` on servers that do harm: it ends, with the right code, whole reports and little memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from plumbline.conformance.nats.stage import REQUEST_WITHIN_S
from plumbline.errors import ExitCode
from plumbline.proxy.record import recorded
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.verdicts import Outcome
from tests.hostile import amqp_servers, nats_servers
from tests.hostile.running import AT_ONCE, MOST_MEMORY, expected_code, verify
from tests.hostile.sockets import Script, serving

QUICK = {"endless-info", "closes", "large-table"}  # the others are slow tests

SERVERS = [
    *(("nats", name, script) for name, script in nats_servers.SERVERS.items()),
    *(("amqp", name, script) for name, script in amqp_servers.SERVERS.items()),
]


@pytest.mark.parametrize(
    ("protocol", "name", "script"),
    [
        pytest.param(*row, id="-".join(row[:2]), marks=[] if row[1] in QUICK else pytest.mark.slow)
        for row in SERVERS
    ],
)
def test_a_hostile_server_ends_in_a_verdict(protocol: str, name: str, script: Script, tmp_path: Path) -> None:
    with serving(script) as address:
        cost = verify(tmp_path, f"{protocol}://{address}")
    assert cost.largest < MOST_MEMORY
    assert "Traceback" not in cost.err
    assert cost.code == expected_code(protocol, name), cost.err
    if name in AT_ONCE[protocol]:
        assert cost.result is None
        assert len(cost.err.splitlines()) == 1
        return
    assert not cost.incomplete_reports()
    assert cost.result is not None
    assert cost.result.summary.checks.harness_error == 0


@pytest.mark.slow
@pytest.mark.parametrize("flood", ["err-flood", "ping-flood"])
def test_a_flood_is_a_failed_check(flood: str, tmp_path: Path) -> None:
    with serving(nats_servers.SERVERS[flood]) as address:
        cost = verify(tmp_path, f"nats://{address}", "--select", "core/msg-carries-the-reply-subject")
    assert cost.code == ExitCode.NOT_CONFORMANT, cost.err
    assert cost.result is not None
    (check,) = cost.result.checks
    assert check.outcome is Outcome.FAILED


@pytest.mark.slow
def test_the_end_of_the_time_leaves_whole_reports(tmp_path: Path) -> None:
    with serving(nats_servers.silent) as address:
        cost = verify(tmp_path, f"nats://{address}", "--all", "--max-time=3s", workers=2)
    assert cost.code == ExitCode.TARGET_LOST
    assert cost.err.splitlines()[-1] == "plumbline: the time limit of 3s was reached (--max-time)"
    assert not cost.incomplete_reports()
    assert cost.result is not None
    assert cost.result.summary.verdict == "unknown: the time limit was reached"
    not_run = [check for check in cost.result.checks if check.message.startswith("not run: the time limit")]
    assert len(not_run) > len(cost.result.checks) / 2
    assert {check.outcome for check in not_run} == {Outcome.INCONCLUSIVE}


@pytest.mark.parametrize("limit", ["0s", "soon", "1000000d"])
def test_a_time_limit_is_a_time(limit: str, tmp_path: Path) -> None:
    cost = verify(tmp_path, "nats://127.0.0.1:1", f"--max-time={limit}")
    assert (cost.code, cost.err.startswith(f"plumbline: --max-time {limit}")) == (ExitCode.USAGE, True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("protocol", "script", "pattern", "api", "workers"),
    [
        ("nats", nats_servers.silent, "JS-PULL-*", "STREAM.CREATE", 6),
        ("amqp", amqp_servers.SERVERS["silent"], "AMQP-*", "queue.declare", 24),
    ],
)
def test_an_api_that_never_answers_is_given_up(
    protocol: str, script: Script, pattern: str, api: str, workers: int, tmp_path: Path
) -> None:
    with serving(script) as address:
        cost = verify(tmp_path, f"{protocol}://{address}", "--select", pattern, workers=workers)
    assert cost.code == ExitCode.NOT_CONFORMANT, cost.err
    assert cost.result is not None
    reason = f"{api} got no answer in 10 checks in a row"
    waited = [check for check in cost.result.checks if check.duration_s > REQUEST_WITHIN_S]
    at_once = [check for check in cost.result.checks if check.message.startswith(reason)]
    assert any(text.startswith(reason) for text in cost.result.summary.reasons)
    assert len(at_once) > len(waited)
    assert {check.outcome for check in at_once} == {Outcome.UNTESTABLE}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broker", "patterns"),
    [
        (NatsBroker.in_thread(jetstream=True), ("JS-API-00*", "JS-PULL-00*")),
        (AmqpBroker.in_thread(), ("AMQP-ACK-00*", "AMQP-GET-00*")),
    ],
    ids=["nats", "amqp"],
)
def test_a_slow_server_is_judged_like_a_quick_one(
    broker: AbstractContextManager[str], patterns: tuple[str, ...], tmp_path: Path
) -> None:
    selected = [argument for pattern in patterns for argument in ("--select", pattern)]
    with broker as url, recorded(url, tmp_path / "captures", faults=("latency 300ms",)) as proxy:
        cost = verify(tmp_path, proxy.url, *selected, workers=6)
    assert cost.result is not None
    assert cost.result.summary.reasons == ()
    assert cost.code == ExitCode.CONFORMANT, cost.err


def test_a_server_without_jetstream_is_not_asked_for_it(tmp_path: Path) -> None:
    with NatsBroker.in_thread(jetstream=False) as url:
        cost = verify(tmp_path, url, "--select", "JS-PULL-00*")
    assert cost.result is not None
    assert {check.outcome for check in cost.result.checks} == {Outcome.UNSUPPORTED}
