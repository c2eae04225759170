"""Each rule of keys convicts its violation, and nothing that only looks like one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plumbline.cluster.history import AttemptOutcome
from plumbline.cluster.judging import ClusterRule
from plumbline.cluster.nats.keys.history import KeyCopy, KeyHistory, KeyUpdate
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
    "another value": (ClusterRule.LAST_VALUE, history([A, B, C], LAST, LAST, {"k": (4, "b")})),
}

NEAR_MISSES = {
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
    assert undecided(history([A], {"k": (1, "a")})) == {}
