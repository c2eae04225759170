"""``verify`` on a server that freezes during the run: it stops asking, and says why."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from plumbline.bounds import UNANSWERED_QUESTIONS
from plumbline.errors import ExitCode
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.verdicts import Outcome
from tests.hostile.freezing import CHANNEL, CONNECTION, Freezing, Relay, amqp_methods, nats_lines
from tests.hostile.running import verify
from tests.hostile.sockets import serving

pytestmark = pytest.mark.slow
Broker = AbstractContextManager[str]

WORKERS = 6
HEALTHY = 20  # connections
STARTS = 4  # connections, more than before the first check
STARTS_NATS, STARTS_AMQP = nats_lines(b"CONNECT", b"PING", b"PONG"), amqp_methods(of=(CONNECTION, CHANNEL))


@pytest.mark.parametrize(
    ("broker", "relay", "pattern"),
    [
        (NatsBroker.in_thread(jetstream=True), nats_lines(), "CORE-*"),
        (AmqpBroker.in_thread(), amqp_methods(of=(CONNECTION,)), "AMQP-TOPO-*"),
    ],
    ids=["nats", "amqp"],
)
def test_a_server_that_answers_no_new_connection_is_lost(
    broker: Broker, relay: Relay, pattern: str, tmp_path: Path
) -> None:
    with broker as url, serving(server := Freezing(url, relay, after=HEALTHY)) as address:
        cost = verify(tmp_path, f"{url.partition(':')[0]}://{address}", "--select", pattern, workers=WORKERS)
    assert cost.code == ExitCode.TARGET_LOST, cost.err
    assert not cost.incomplete_reports()
    assert cost.result is not None
    asked = [
        check
        for check in cost.result.checks
        if not check.message.startswith("not run:") and check.outcome is not Outcome.UNSUPPORTED
    ]
    assert len(asked) <= HEALTHY + WORKERS
    assert len(cost.result.checks) > 2 * len(asked)
    # A check that runs has a few, also to look whether the server is alive; the end of the run looks once.
    assert server.frozen_connections <= 5 * WORKERS


@pytest.mark.parametrize(
    ("broker", "relay", "pattern", "question"),
    [
        (NatsBroker.in_thread(jetstream=True), STARTS_NATS, "CORE-*", "PING"),
        (NatsBroker.in_thread(jetstream=True), STARTS_NATS, "JS-PULL-*", "PING"),
        (AmqpBroker.in_thread(), STARTS_AMQP, "AMQP-TOPO-*", "channel.open"),
    ],
    ids=["nats", "jetstream", "amqp"],
)
def test_a_server_that_freezes_once_a_connection_is_used_is_given_up(
    broker: Broker, relay: Relay, pattern: str, question: str, tmp_path: Path
) -> None:
    with broker as url, serving(server := Freezing(url, relay, after=HEALTHY)) as address:
        cost = verify(tmp_path, f"{url.partition(':')[0]}://{address}", "--select", pattern, workers=WORKERS)
    assert cost.code == ExitCode.NOT_CONFORMANT, cost.err
    assert not cost.incomplete_reports()
    assert cost.result is not None
    reason = re.compile(
        rf"{address}(, asked for JetStream,)? did not answer {question} (\d+) times in a row "
        r"since \d\d:\d\d:\d\d UTC, also to a check that ran alone: checks that need it were not run"
    )
    (count,) = [int(found[2]) for text in cost.result.summary.reasons if (found := reason.fullmatch(text))]
    assert UNANSWERED_QUESTIONS <= count <= UNANSWERED_QUESTIONS + WORKERS
    at_once = [check for check in cost.result.checks if reason.fullmatch(check.message)]
    assert {check.outcome for check in at_once} == {Outcome.INCONCLUSIVE}
    waited = [
        check
        for check in cost.result.checks
        if check.outcome is Outcome.INCONCLUSIVE and check not in at_once
    ]
    assert len(waited) <= UNANSWERED_QUESTIONS
    assert len(at_once) > len(waited)
    assert server.frozen_connections < len(cost.result.checks)


@pytest.mark.parametrize(
    ("broker", "relay", "pattern"),
    [
        (NatsBroker.in_thread(jetstream=True), STARTS_NATS, "CORE-01*"),
        (AmqpBroker.in_thread(), STARTS_AMQP, "AMQP-TOPO-00*"),
    ],
    ids=["nats", "amqp"],
)
def test_a_server_that_recovers_is_judged(broker: Broker, relay: Relay, pattern: str, tmp_path: Path) -> None:
    with broker as url, serving(server := Freezing(url, relay, after=STARTS, frozen=WORKERS)) as address:
        cost = verify(tmp_path, f"{url.partition(':')[0]}://{address}", "--select", pattern, workers=WORKERS)
    assert server.frozen_connections == WORKERS
    assert cost.result is not None
    assert cost.result.summary.reasons == ()
    assert cost.code == ExitCode.CONFORMANT, cost.err
    assert any(check.retried for check in cost.result.checks)
