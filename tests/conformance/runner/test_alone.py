"""The room: many together, or one alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from plumbline.conformance.check import Check
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.judge import Judge
from plumbline.conformance.runner.prepare import RunDescription
from plumbline.conformance.runner.run_lock import RunLock
from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.verdicts import Outcome
from tests.patience import HANGS_AFTER_S


def test_checks_run_together_and_a_retry_waits_until_they_have_left(tmp_path: Path) -> None:
    room, order = RunLock(tmp_path), list[str]()
    both_inside = threading.Barrier(3, timeout=HANGS_AFTER_S)
    leave, done = threading.Event(), threading.Event()

    def beside() -> None:
        with RunLock(tmp_path).shared():
            both_inside.wait()
            leave.wait(HANGS_AFTER_S)
            order.append("left")

    def retry() -> None:
        with room.exclusive():
            order.append("alone")
        done.set()

    for _ in range(2):
        threading.Thread(target=beside, daemon=True).start()
    both_inside.wait()
    threading.Thread(target=retry, daemon=True).start()
    assert not done.wait(0.1)
    leave.set()
    assert done.wait(HANGS_AFTER_S)
    assert order == ["left", "left", "alone"]


@pytest.mark.parametrize("alone", [True, False])
def test_exclusive_check_blocks_other_checks(tmp_path: Path, *, alone: bool) -> None:
    """It holds the room as it asked to: who would come in beside it stays out, or does not."""
    entered: list[bool] = []

    def enter() -> None:
        with RunLock(tmp_path).shared():
            came_in.set()

    def run(session: NatsSession) -> None:
        threading.Thread(target=enter, daemon=True).start()
        entered.append(came_in.wait(0.2 if alone else 10))
        session.count_observation()

    came_in = threading.Event()
    check = Check("own::check", "One of our own", ("CORE-004",), run, alone=alone)
    with NatsBroker.in_thread() as url:
        target = open_target(NatsUrl.parse(url), shared=tmp_path)
        judge = Judge(RunDescription(target, Catalogue.load()))
        assert judge.judge(check).outcome is Outcome.PASSED
    assert entered == [not alone]
    assert came_in.wait(HANGS_AFTER_S)
