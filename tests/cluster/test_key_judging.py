"""Each rule of keys convicts its violation, and nothing that only looks like one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from plumbline.cluster.history import AttemptOutcome
from plumbline.cluster.judging import ClusterRule
from plumbline.cluster.nats.keys.history import (
    HISTORY,
    KeyCopy,
    KeyHistory,
    KeyUpdate,
    KeyWatch,
    WatchedUpdate,
)
from plumbline.cluster.nats.keys.judging import OF_KEYS, findings, undecided

OK, FAILED, UNKNOWN = AttemptOutcome.OK, AttemptOutcome.FAILED, AttemptOutcome.INDETERMINATE


def update(
    value: str, expected: int, revision: int = 0, key: str = "k", outcome: AttemptOutcome | None = None
) -> KeyUpdate:
    ended = outcome or (OK if revision else UNKNOWN)
    return KeyUpdate(key, value, expected, 0, 1, 2, ended, revision)


def history(updates: Sequence[KeyUpdate], *copies: dict[str, tuple[int, str]]) -> KeyHistory:
    written = copies if len(copies) == 3 else copies * 3
    return KeyHistory(list(updates), [KeyCopy(node, keys) for node, keys in enumerate(written)])


def watched(updates: Sequence[KeyUpdate], *seen: tuple[int, str] | tuple[int, str, int]) -> KeyHistory:
    """One watch: revision, value, and the number of the consumer if it is not the first. Each came long after
    all updates."""
    rows = [
        WatchedUpdate("k", one[1], one[0], one[2] if len(one) > 2 else 1, 100 + at)
        for at, one in enumerate(seen)
    ]
    last = max((one.revision, one.value) for one in updates)
    return KeyHistory(list(updates), history([], {"k": last}).copies, [KeyWatch(rows)])


A, B, C = update("a", 0, 1), update("b", 1, 3), update("c", 3, 4)
LAST = {"k": (4, "c")}

VIOLATIONS = {
    "two with one revision": (
        ClusterRule.COMPARE_AND_SET,
        history([A, B, update("x", 1, 4)], {"k": (4, "x")}),
    ),
    "two that create": (ClusterRule.COMPARE_AND_SET, history([A, update("x", 0, 2)], {"k": (2, "x")})),
    "an older revision": (ClusterRule.COMPARE_AND_SET, history([A, B, update("x", 2, 5)], {"k": (5, "x")})),
    "over one without an answer": (
        ClusterRule.COMPARE_AND_SET,
        KeyHistory(
            [A, update("x", 1), update("y", 1, 5)],
            [KeyCopy(0, {"k": (2, "x")}), KeyCopy(1, {"k": (5, "y")}), KeyCopy(2, {"k": (5, "y")})],
        ),
    ),
    "one revision twice": (ClusterRule.COMPARE_AND_SET, history([A, update("x", 0, 1)], {"k": (1, "a")})),
    "a revision that it replaced": (
        ClusterRule.COMPARE_AND_SET,
        history([update("x", 7, 7)], {"k": (7, "x")}),
    ),
    "the value before on one node": (ClusterRule.LAST_VALUE, history([A, B, C], LAST, LAST, {"k": (3, "b")})),
    "the value before on all": (ClusterRule.LAST_VALUE, history([A, B, C], {"k": (3, "b")})),
    "no value": (ClusterRule.LAST_VALUE, history([A, B, C], LAST, {}, LAST)),
    "a watch without the first": (ClusterRule.WATCH, watched([A, B, C], (3, "b"), (4, "c"))),
    "a watch without one between": (ClusterRule.WATCH, watched([A, B, C], (1, "a"), (4, "c"))),
    "a watch without the last": (ClusterRule.WATCH, watched([A, B, C], (1, "a"), (3, "b"))),
    "a watch of another value": (ClusterRule.WATCH, watched([A, B, C], (1, "a"), (3, "x"), (4, "c"))),
    "a watch that goes back": (
        ClusterRule.WATCH,
        watched([A, B, C], (1, "a"), (3, "b"), (1, "a"), (4, "c")),
    ),
    "a watch that gets one twice": (
        ClusterRule.WATCH,
        watched([A, B, C], (1, "a"), (3, "b"), (3, "b"), (4, "c")),
    ),
    "another value": (ClusterRule.LAST_VALUE, history([A, B, C], LAST, LAST, {"k": (4, "b")})),
}

MANY = [A, *(update(f"v{number}", number, number + 1) for number in range(1, HISTORY + 1))]
NEAR_MISSES = {
    "a watch of all": watched([A, B, C], (1, "a"), (3, "b"), (4, "c")),
    "a watch of one without an answer": watched(
        [A, B, C, update("x", 4)], (1, "a"), (3, "b"), (4, "c"), (5, "x")
    ),
    "a second consumer begins on a node that is behind": watched(
        [A, B, C], (1, "a"), (3, "b"), (3, "b", 2), (4, "c", 2)
    ),
    "a value that the bucket does not keep": watched(MANY, *((one.revision, one.value) for one in MANY[1:])),
    "one after another": history([A, B, C], LAST),
    "a refusal": history([A, update("x", 0, outcome=FAILED), B, C], LAST),
    "without an answer and not stored": history([A, B, update("x", 3), C], LAST),
    "without an answer and stored": history([A, B, C, update("x", 4)], {"k": (9, "x")}),
    "revisions of another key between": history([A, update("y", 0, 2, "j"), B, C], LAST | {"j": (2, "y")}),
    "no update was acknowledged": history([update("x", 0)], {}),
}


def rules(judged: KeyHistory) -> set[ClusterRule]:
    return {finding.rule for finding in findings(judged)}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_found(name: str) -> None:
    rule, judged = VIOLATIONS[name]
    assert rule in rules(judged)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_no_finding(name: str) -> None:
    assert rules(NEAR_MISSES[name]) == set()


def test_every_rule_has_a_violation() -> None:
    assert {rule for rule, _ in VIOLATIONS.values()} == set(OF_KEYS)


def test_an_acknowledged_value_at_another_revision_is_no_second_update() -> None:
    assert rules(history([A, B, C], LAST, LAST, {"k": (9, "c")})) == set()
    assert rules(history([A, B, C], LAST, LAST, {"k": (2, "c")})) == {ClusterRule.LAST_VALUE}


def test_the_places_of_an_update_are_those_that_overlap_it() -> None:
    judged = history([A, B, update("x", 1, 4), update("y", 4, 5)], {"k": (5, "y")})
    before, other, itself, *nodes = judged.places(judged.updates[2], 4)
    assert before.startswith("update of k to a with the last revision 0 ")
    assert other.startswith("update of k to b with the last revision 1 ")
    assert itself.startswith("update of k to x with the last revision 1 ")
    assert nodes == [f"node {number}: k is y (5)" for number in (1, 2, 3)]


def test_a_node_that_was_not_read_decides_nothing_about_its_values() -> None:
    judged = KeyHistory([A], [KeyCopy(0, {"k": (1, "a")}), KeyCopy(1, {}, "no answer")])
    assert rules(judged) == set()
    assert "node 2: no answer" in undecided(judged)[ClusterRule.LAST_VALUE]


def test_rules_without_evidence_are_not_decided() -> None:
    assert set(undecided(None)) == set(OF_KEYS)
    assert set(undecided(history([update("x", 0)], {}))) == set(OF_KEYS)
    assert set(undecided(history([A], {"k": (1, "a")}))) == {ClusterRule.WATCH}
    assert undecided(watched([A], (1, "a"))) == {}


def test_a_value_that_the_bucket_still_keeps_has_to_come() -> None:
    kept = MANY[:-1]
    assert rules(watched(kept, *((one.revision, one.value) for one in kept[1:]))) == {ClusterRule.WATCH}


def test_a_value_that_was_replaced_later_had_to_come_before() -> None:
    """64 newer values explain it only if they are older than what came without it."""
    late = [msgspec.structs.replace(one, invoked=1000) for one in MANY[2:]]
    judged = watched([*MANY[:2], *late], (2, "v1"), *((one.revision, one.value) for one in late))
    assert [finding.sequence for finding in findings(judged)] == [1]


def test_a_watch_that_could_not_go_on_lacks_nothing_at_its_end() -> None:
    judged = watched([A, B, C], (1, "a"))
    judged.watches[0].problem = "its consumer could not be made again"
    assert rules(judged) == set()
    assert "could not be made again" in undecided(judged)[ClusterRule.WATCH]
    judged.watches[0].updates.append(WatchedUpdate("k", "c", 4, 2, 200))
    assert rules(judged) == {ClusterRule.WATCH}
