"""A defect of the target is found, with a trace that shows it; where there is none, nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.conformance.explore.findings import write_trace
from plumbline.conformance.explore.search import Budget, Search
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed
from plumbline.conformance.targets.target import TargetAccess
from plumbline.conformance.trace.check import load_checks
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import NatsServer
from tests.conformance.explore.worlds import SEED, access, reference, search
from tests.virtual.target import VirtualTarget

pytestmark = pytest.mark.slow  # make test-all runs it

PATIENCE_S = 600.0  # the search ends at the first difference
SHRINKING_S = 5.0

DEFECTS = [
    "ack-empty-is-ignored",
    "ack-all-acknowledges-one",
    "ack-floor-passes-a-gap",
    "ack-subject-counts-itself-as-pending",
    "nak-acknowledges",
    "nak-after-ack-redelivers",
    "nak-delay-is-ignored",
    "next-no-wait-waits",
]


def play(path: Path, target: TargetAccess) -> None:
    """Raises ``Failed``."""
    with NatsSession(target) as session:
        load_checks(path)[0].run(session)


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found_with_a_trace_that_shows_it(defect: str, tmp_path: Path) -> None:
    with search(Budget(PATIENCE_S, differences=1, shrinking=SHRINKING_S), defect) as explored:
        explored.run()
        (found,) = explored.divergences.values()
        path = write_trace(found, tmp_path, explored.target, "2.15")
    with VirtualTarget("nats", [defect]).installed() as broken, pytest.raises(Failed):
        play(path, broken.access)
    with VirtualTarget("nats").installed() as sound:
        play(path, sound.access)


def test_a_sound_target_differs_in_nothing() -> None:
    with search(Budget(PATIENCE_S, examples=60)) as explored:
        explored.run()
    assert explored.divergences == {}
    assert explored.progress.examples == 60
    assert explored.progress.commands > 60


def test_same_seed_gives_same_programs() -> None:
    shapes = []
    for _ in range(2):
        with search(Budget(PATIENCE_S, examples=30)) as explored:
            explored.run()
        shapes.append(explored.progress.shapes)
    assert shapes[0] == shapes[1]


def test_a_trace_that_was_found_passes_on_real_servers(nats_server: NatsServer, tmp_path: Path) -> None:
    real = access(nats_server.url, "real")
    budget = Budget(PATIENCE_S, differences=1, shrinking=SHRINKING_S)
    with search(budget, "nak-acknowledges", level=real.target.level) as explored:
        explored.run()
        (found,) = explored.divergences.values()
        path = write_trace(found, tmp_path, explored.target, real.target.level)
    play(path, real)


def test_exploring_a_real_server_leaves_nothing_behind(nats_server: NatsServer) -> None:
    target = access(nats_server.url, "real")
    with NatsBroker.in_thread(jetstream=True) as sound:
        witness = access(sound, "witness")
        Search(target, witness, reference, Budget(PATIENCE_S, examples=10), first_seed=SEED).run()
    with NatsSession(target) as session:
        assert session.stage.api("STREAM.NAMES").get("streams") in (None, [])
