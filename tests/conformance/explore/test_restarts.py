"""Programs that restart the target: how they are written, what they find, and where they cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

from plumbline.conformance.explore.commands import (
    CreateConsumer,
    CreateStream,
    DeleteMessage,
    Describe,
    Publish,
    Pull,
    Restart,
)
from plumbline.conformance.explore.findings import write_trace
from plumbline.conformance.explore.program_writer import write
from plumbline.conformance.explore.programs import Program, programs
from plumbline.conformance.explore.script import Script
from plumbline.conformance.explore.search import Budget, Search
from plumbline.conformance.explore.trial import play_script, trace_text
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.conformance.targets.target import TargetAccess
from plumbline.conformance.trace.cases import parse_trace
from plumbline.conformance.trace.check import load_checks
from plumbline.conformance.trace.language import GivenServer
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from tests.conformance.explore.worlds import SEED, access, reference

pytestmark = pytest.mark.slow  # make test-all runs it

BROKER = (sys.executable, "-m", "plumbline", "broker", "nats")
DEFECT = "store-delivered-counts-as-acknowledged"
PATIENCE_S = 60.0
SHRINKING_S = 30.0  # it is done long before, except where others need the processors
PROGRAM: Program = (
    CreateStream("ORDERS", {"storage": "file"}),
    CreateStream("EVENTS"),
    CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit"}),
    Publish("ORDERS", "a"),
    Pull("ORDERS", "DISPATCH"),
    Restart(),
    Publish("ORDERS", "a"),
    Describe("ORDERS", "DISPATCH"),
)
# What a filter lets pass is not in the files: it is looked at again.
PASSED_OVER: Program = (
    CreateStream("ORDERS", {"storage": "file"}),
    CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit", "filter_subject": "ORDERS.a"}),
    Publish("ORDERS", "a"),
    Publish("ORDERS", "b"),
    Pull("ORDERS", "DISPATCH", {"batch": 2, "no_wait": True}),
    Restart(),
    Publish("ORDERS", "a"),
    Pull("ORDERS", "DISPATCH", {"no_wait": True}),
)


def script(program: Program = PROGRAM, level: str = "newest") -> Script:
    return write(program, reference(level))


def restartable(url: str, *flags: str) -> TargetAccess:
    return access(url, "target", program=(*BROKER, *flags))


@settings(max_examples=30)
@given(programs(timed=False, restarting=True) | programs(timed=False, restarting=True, pushing=True))
def test_every_program_that_restarts_is_a_trace_with_a_server_of_its_own(program: Program) -> None:
    written = script(program)
    assert written.restarts
    trace = parse_trace(trace_text(written, title="t", source="s", verifies="JS-STORE-019"), "t.trace")
    assert isinstance(trace.steps[0], GivenServer)


def test_after_a_restart_all_that_is_there_is_asked_for() -> None:
    lines = list(script().lines)
    behind = lines[lines.index("restart") + 1 :]
    assert behind[:3] == [
        "> SUB $inbox 1",
        "expect stream ORDERS messages=1 first_seq=1 last_seq=1",
        "expect consumer ORDERS DISPATCH"
        " delivered=1/1 ack_floor=0/0 num_ack_pending=1 num_redelivered=0 num_pending=0",
    ]
    gone = behind[behind.index("> PUB $JS.API.STREAM.INFO.EVENTS $inbox |") + 1]
    assert '"err_code":10059' in gone  # it was in memory


@pytest.mark.parametrize("program", [PROGRAM, PASSED_OVER], ids=["pending", "passed over"])
def test_a_real_server_does_as_the_reference_does(program: Program, server_binary: ServerBinary) -> None:
    with NatsBroker.in_thread(jetstream=True) as url:
        target = access(url, "target", program=(str(server_binary.path),))
        level = ".".join(server_binary.version.split(".")[:2])
        assert play_script(script(program, level), program, target) is None


def test_a_file_refuses_to_delete_what_is_not_there_as_real_servers_do(nats_server: NatsServer) -> None:
    program: Program = (
        CreateStream("ORDERS", {"storage": "file"}),
        DeleteMessage("ORDERS", 0),
        DeleteMessage("ORDERS", 1),
        *[Publish("ORDERS", "a")] * 3,
        *[DeleteMessage("ORDERS", seq) for seq in (2, 2, 1, 1, 0, 3, 3, 2, 4)],
    )
    target = access(nats_server.url, "real")
    written = script(program, target.target.level)
    assert play_script(written, program, target) is None
    assert sum('"err_code":10057' in line for line in written.lines) == 7
    assert sum('"err_code":10043' in line for line in written.lines) == 1


def test_a_target_that_forgets_is_found_and_its_trace_shows_it(tmp_path: Path) -> None:
    with NatsBroker.in_thread(jetstream=True) as sound:
        broken, witness = restartable(sound, f"--defect={DEFECT}"), restartable(sound)
        budget = Budget(PATIENCE_S, shrinking=SHRINKING_S)
        search = Search(broken, witness, reference, budget, first_seed=SEED)
        search.shrink_and_keep(PROGRAM)
        (found,) = search.divergences.values()
        assert Restart() in found.program
        assert len(found.program) < len(PROGRAM)
        path = write_trace(found, tmp_path, broken, "2.15")
        for target, raises in ((broken, Failed), (witness, None)):
            with NatsSession(target) as session:
                if raises is None:
                    load_checks(path)[0].run(session)
                else:
                    with pytest.raises(raises):
                        load_checks(path)[0].run(session)


def test_a_search_restarts_what_it_can_start() -> None:
    with NatsBroker.in_thread(jetstream=True) as url:
        target, budget = restartable(url), Budget(PATIENCE_S, examples=58)
        search = Search(target, restartable(url), reference, budget, first_seed=SEED)
        search.run()
    assert search.divergences == {}
    assert search.progress.restarts >= 2


def test_foreign_server_is_not_restarted() -> None:
    with NatsBroker.in_thread(jetstream=True) as url:
        target = access(url, "target")
        assert not Search(target, target, reference, Budget(PATIENCE_S), first_seed=SEED).restarts
        with pytest.raises(Unsupported):
            play_script(script(), PROGRAM, target)
