"""A check that fails on a busy machine is repeated alone; one that fails each time has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from plumbline.conformance.check import Check
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Inconclusive, NothingCame
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner import judge as judging
from plumbline.conformance.runner.judge import BUSY_TRIES, MOST_FAILURES, Judge
from plumbline.conformance.runner.prepare import RunDescription
from plumbline.conformance.targets.target import NatsUrl, TargetAccess, open_target
from plumbline.conformance.waivers import Waiver
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.verdicts import CheckResult, Outcome


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with NatsBroker.in_thread() as url:
        yield url


class FailsAtFirst:
    """A check that fails so many times. ``played`` counts."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.played = 0

    def __call__(self, session: NatsSession) -> None:
        self.played += 1
        session.require(self.played > self.times, "too late", expected="in time", actual="late")


def judged(
    url: str,
    folder: Path,
    run: Callable[[NatsSession], None],
    *waivers: Waiver,
    slack_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> CheckResult:
    """The result of the check where the machine is so busy that a target needs ``slack_s``."""
    monkeypatch.setattr(TargetAccess, "recalibrated", lambda target: target.with_slack(slack_s))
    check = Check("own::check", "One of our own", ("CORE-004",), run)
    target = open_target(NatsUrl.parse(url), shared=folder)
    description = msgspec.structs.replace(RunDescription(target, Catalogue.load()), waivers=waivers)
    return Judge(description).judge(check)


BUSY, QUIET = judging.BUSY_SLACK_S, judging.BUSY_SLACK_S - 0.01


@pytest.mark.parametrize(
    ("times", "slack_s", "outcome", "played"),
    [
        (1, BUSY, Outcome.PASSED, 2),
        (BUSY_TRIES - 1, BUSY, Outcome.PASSED, BUSY_TRIES),
        (BUSY_TRIES, BUSY, Outcome.FAILED, BUSY_TRIES),
        (1, QUIET, Outcome.FAILED, 1),
        (0, BUSY, Outcome.PASSED, 1),
    ],
)
def test_a_failure_on_a_busy_machine_must_show_each_time(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    slack_s: float,
    outcome: Outcome,
    played: int,
) -> None:
    run = FailsAtFirst(times)
    result = judged(url, tmp_path, run, slack_s=slack_s, monkeypatch=monkeypatch)
    assert (result.outcome, run.played, result.retried) == (outcome, played, played > 1)
    assert result.first_try == ("too late" if outcome is Outcome.PASSED and played > 1 else "")


@pytest.mark.parametrize(
    ("times", "slack_s", "outcome", "played"),
    [
        (1, QUIET, Outcome.PASSED, 2),
        (2, QUIET, Outcome.INCONCLUSIVE, 2),
        (2, BUSY, Outcome.PASSED, 3),
        (9, BUSY, Outcome.INCONCLUSIVE, 1 + BUSY_TRIES),
    ],
)
def test_what_is_without_a_verdict_is_repeated_once_and_again_on_a_busy_machine(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    slack_s: float,
    outcome: Outcome,
    played: int,
) -> None:
    tries = []

    def run(session: NatsSession) -> None:
        tries.append(session)
        if len(tries) <= times:
            raise Inconclusive("no verdict")
        session.require(True, "a verdict", expected="one", actual="one")

    result = judged(url, tmp_path, run, slack_s=slack_s, monkeypatch=monkeypatch)
    assert (result.outcome, len(tries), result.retried, result.first_try) == (outcome, played, True, "")


def test_so_many_failures_are_those_of_the_server(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / judging.FAILURES).write_bytes(b"." * (MOST_FAILURES - 1))
    for played in (2, 1):
        run = FailsAtFirst(9)
        result = judged(url, tmp_path, run, slack_s=BUSY, monkeypatch=monkeypatch)
        assert (result.outcome, run.played) == (Outcome.FAILED, played)


def test_what_is_waived_is_not_repeated(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FailsAtFirst(9)
    waiver = Waiver(check="own::check", reason="known")
    result = judged(url, tmp_path, run, waiver, slack_s=BUSY, monkeypatch=monkeypatch)
    assert (result.outcome, run.played) == (Outcome.WAIVED, 1)


def test_what_does_not_come_from_a_single_server_has_failed_at_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = []

    def run(session: NatsSession) -> None:
        played.append(session)
        raise NothingCame("no message came", expected="MSG", actual="nothing")

    result = judged(url, tmp_path, run, slack_s=QUIET, monkeypatch=monkeypatch)
    assert (result.outcome, len(played), result.retried) == (Outcome.FAILED, 1, False)
