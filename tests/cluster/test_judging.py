"""Each rule of the judge convicts its violation, and nothing that only looks like one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.cluster.history import Attempt, AttemptOutcome
from plumbline.cluster.judging import ClusterRule, LostPart
from plumbline.cluster.nats.history import ClusterHistory, LeaderRead, NodeLog
from plumbline.cluster.nats.judging import judge
from plumbline.cluster.verdicts import NATS_CHECKS

OK, FAILED, UNKNOWN = AttemptOutcome.OK, AttemptOutcome.FAILED, AttemptOutcome.INDETERMINATE


def attempt(
    name: str,
    sequence: int = 0,
    invoked: int = 0,
    completed: int = 0,
    outcome: AttemptOutcome | None = None,
    *,
    duplicate: bool = False,
) -> Attempt:
    process, counter = map(int, name.split("-"))
    ended = outcome or (OK if sequence else UNKNOWN)
    return Attempt(process, counter, 0, invoked, completed, ended, sequence, duplicate)


def history(
    attempts: Sequence[Attempt],
    *logs: Sequence[str | None],
    reads: Sequence[LeaderRead] = (),
) -> ClusterHistory:
    """A log of each node is what is stored at the sequences 1, 2, ...; None: nothing."""
    written = logs if len(logs) == 3 else logs * 3
    stored = [
        NodeLog(node, {number: payload for number, payload in enumerate(log, 1) if payload is not None})
        for node, log in enumerate(written)
    ]
    return ClusterHistory(list(attempts), list(reads), stored)


def in_turn(*names: str) -> list[Attempt]:
    """Published one after another, all acknowledged."""
    return [attempt(name, at, 10 * at, 10 * at + 5) for at, name in enumerate(names, 1)]


def rules(judged: ClusterHistory) -> set[ClusterRule]:
    return {finding.rule for finding in judge(judged).findings}


ABC = in_turn("0-0", "0-1", "0-2")

VIOLATIONS = {
    "lost prefix": (ClusterRule.LOST, history(ABC, [None, "0-1", "0-2"])),
    "lost middle": (ClusterRule.LOST, history(ABC, ["0-0", None, "0-2"])),
    "lost end": (ClusterRule.LOST, history(ABC, ["0-0", "0-1"])),
    "another message at the place": (
        ClusterRule.PLACE,
        history([attempt("0-0", 1, 1, 5), attempt("0-1", 2, 2, 6)], ["0-1", "0-0"]),
    ),
    "a sequence for two messages": (
        ClusterRule.ONE_MESSAGE,
        history([attempt("0-0", 1, 1, 5), attempt("0-1", 1, 2, 6)], ["0-0", "0-1"]),
    ),
    "stored twice": (ClusterRule.DUPLICATED, history(ABC, ["0-0", "0-1", "0-2", "0-1"])),
    "acknowledged twice with different sequences": (
        ClusterRule.DUPLICATED,
        history([attempt("0-0", 1, 1, 5), attempt("0-0", 2, 6, 9)], ["0-0"]),
    ),
    "never published": (ClusterRule.UNEXPECTED, history(ABC, ["0-0", "0-1", "0-2", "9-9"])),
    "refused": (
        ClusterRule.UNEXPECTED,
        history([attempt("0-0", 1, 1, 5), attempt("0-1", outcome=FAILED)], ["0-0", "0-1"]),
    ),
    "missing on one node": (
        ClusterRule.SAME_LOG,
        history(ABC, ["0-0", "0-1", "0-2"], ["0-0", None, "0-2"], ["0-0", "0-1", "0-2"]),
    ),
    "different on one node": (
        ClusterRule.SAME_MESSAGE,
        history([attempt("0-0", 1, 1, 2), attempt("0-1")], ["0-0", "0-1"], ["0-1", "0-0"], ["0-0", "0-1"]),
    ),
    "read as another message": (
        ClusterRule.SAME_MESSAGE,
        history(ABC, ["0-0", "0-1", "0-2"], reads=[LeaderRead(50, 60, 0, 2, "0-2")]),
    ),
    "lower after an acknowledgement": (
        ClusterRule.ORDER,
        history([attempt("0-0", 2, 1, 5), attempt("0-1", 1, 6, 9)], ["0-1", "0-0"]),
    ),
    "read too old": (
        ClusterRule.STALE_READ,
        history(ABC, ["0-0", "0-1", "0-2"], reads=[LeaderRead(36, 40, 0, 3, None)]),
    ),
    "stream gone": (
        ClusterRule.AVAILABLE,
        ClusterHistory(ABC, [], [], stream_exists=False, is_whole=False),
    ),
    "nodes behind": (ClusterRule.AVAILABLE, ClusterHistory(ABC, [], [], is_whole=False)),
}

NEAR_MISSES = {
    "acknowledged and stored": history(ABC, ["0-0", "0-1", "0-2"]),
    "no answer and stored": history([attempt("0-0")], ["0-0"]),
    "no answer and not stored": history([*ABC, attempt("0-3")], ["0-0", "0-1", "0-2"]),
    "refused and not stored": history([*ABC, attempt("0-3", outcome=FAILED)], ["0-0", "0-1", "0-2"]),
    "refused, then published again": history(
        [attempt("0-0", outcome=FAILED), attempt("0-0", 1, 5, 9)], ["0-0"]
    ),
    "published again, the same sequence": history(
        [attempt("0-0", 1, 1, 5), attempt("0-0", 1, 6, 9, duplicate=True)], ["0-0"]
    ),
    "a duplicate is acknowledged late with its old sequence": history(
        [
            attempt("0-0", invoked=1),
            attempt("0-1", 2, 2, 5),
            attempt("0-0", 1, 7, 9, duplicate=True),
        ],
        ["0-0", "0-1"],
    ),
    "overlapping publishes in any order": history(
        [attempt("0-0", 2, 1, 5), attempt("0-1", 1, 5, 9)], ["0-1", "0-0"]
    ),
    "a gap of sequences": history([attempt("0-0", 1, 1, 2), attempt("0-1", 3, 3, 4)], ["0-0", None, "0-1"]),
    "read before the acknowledgement": history(
        ABC, ["0-0", "0-1", "0-2"], reads=[LeaderRead(35, 60, 0, 3, None)]
    ),
    "read as it is stored": history(ABC, ["0-0", "0-1", "0-2"], reads=[LeaderRead(1, 2, 0, 3, "0-2")]),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_found(name: str) -> None:
    rule, judged = VIOLATIONS[name]
    assert rule in rules(judged)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_no_finding(name: str) -> None:
    assert judge(NEAR_MISSES[name]).findings == ()


@pytest.mark.parametrize(
    ("stored", "part"),
    [
        ([None, "0-1", "0-2"], LostPart.PREFIX),
        (["0-0", None, "0-2"], LostPart.MIDDLE),
        (["0-0", "0-1"], LostPart.END),
    ],
)
def test_a_loss_names_its_place(stored: list[str | None], part: LostPart) -> None:
    (finding,) = judge(history(ABC, stored)).findings
    assert (finding.rule, finding.part) == (ClusterRule.LOST, part)


def test_nothing_is_lost_while_a_node_was_not_read() -> None:
    logs = [NodeLog(0, {1: "0-0"}), NodeLog(1, {}, complete=False, problem="no answer")]
    judged = judge(ClusterHistory(ABC, [], logs))
    assert judged.findings == ()
    assert "node 2: no answer" in judged.undecided[ClusterRule.LOST]


def test_everything_acknowledged_is_lost_with_its_stream() -> None:
    gone = ClusterHistory(ABC, [], [], stream_exists=False, is_whole=False)
    assert len(judge(gone).of(ClusterRule.LOST)) == 3


def test_a_run_without_evidence_decides_nothing() -> None:
    undecided = judge(ClusterHistory([], [], [NodeLog(0, {})])).undecided
    assert set(undecided) == set(NATS_CHECKS) - {ClusterRule.AVAILABLE}


@st.composite
def correct_histories(draw: st.DrawFn) -> ClusterHistory:
    """What a log that takes one message at a time can show: each message is stored inside its publish."""
    count = draw(st.integers(2, 25))
    stored: list[str | None] = []
    attempts: list[Attempt] = []
    for at in range(count):
        name = f"{draw(st.integers(0, 3))}-{at}"
        moment = 10 * at + 5
        early, late = draw(st.integers(1, 40)), draw(st.integers(1, 40))
        fate = draw(st.sampled_from(["ok", "ok", "ok", "unknown", "unknown stored", "failed"]))
        if fate in ("ok", "unknown stored"):
            stored.append(name)
        sequence = len(stored) if fate == "ok" else 0
        outcome = FAILED if fate == "failed" else None
        attempts.append(attempt(name, sequence, moment - early, moment + late, outcome))
        if fate == "unknown stored" and draw(st.booleans()):
            attempts.append(attempt(name, len(stored), moment + late + 1, moment + late + 9, duplicate=True))
    shuffled = draw(st.permutations(attempts))
    return history(shuffled, stored)


@given(correct_histories())
def test_a_correct_log_is_never_convicted(correct: ClusterHistory) -> None:
    assert judge(correct).findings == ()


@given(correct_histories(), st.data())
def test_any_acknowledged_message_that_vanishes_is_found(
    correct: ClusterHistory, data: st.DataObject
) -> None:
    acknowledged = sorted({one.sequence for one in correct.attempts if one.outcome is OK})
    if not acknowledged:
        return
    gone = data.draw(st.sampled_from(acknowledged))
    for log in correct.logs:
        del log.messages[gone]
    assert rules(correct) == {ClusterRule.LOST}
    assert [finding.sequence for finding in judge(correct).findings] == [gone]


@given(correct_histories(), st.data())
def test_any_message_that_vanishes_from_one_node_is_found(
    correct: ClusterHistory, data: st.DataObject
) -> None:
    log = data.draw(st.sampled_from(correct.logs))
    if not log.messages:
        return
    gone = data.draw(st.sampled_from(sorted(log.messages)))
    del log.messages[gone]
    assert rules(correct) == {ClusterRule.SAME_LOG}


@given(correct_histories(), st.data())
def test_two_messages_that_change_places_are_found(correct: ClusterHistory, data: st.DataObject) -> None:
    acknowledged = sorted({one.sequence for one in correct.attempts if one.outcome is OK})
    if len(acknowledged) < 2:
        return
    one, other = data.draw(st.permutations(acknowledged))[:2]
    for log in correct.logs:
        log.messages[one], log.messages[other] = log.messages[other], log.messages[one]
    assert rules(correct) == {ClusterRule.PLACE}
