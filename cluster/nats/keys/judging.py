"""Judges updates of keys. Pure; sorting decides: O(n log n).

A successful update states its revision, and what revision it replaced. So it covers the revisions between,
and those of two updates of one key do not overlap.
Sources: see the requirements ``JS-CLUS-017``, ``JS-CLUS-018`` and ``JS-CLUS-020``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from plumbline.cluster.history import AttemptOutcome
from plumbline.cluster.judging import ClusterRule, Finding
from plumbline.cluster.nats.keys.history import HISTORY, KeyHistory, KeyUpdate, KeyWatch, WatchedUpdate

_END = 1 << 63  # later than all


def findings(history: KeyHistory) -> Iterator[Finding]:
    """Every violation of every rule."""
    placed = _placed(history)
    yield from _compare_and_set(placed)
    yield from _last_value(history, placed)
    for number, watch in enumerate(history.watches, 1):
        yield from _watched(f"watch {number}", watch, history)


_Placed = dict[str, list[tuple[int, KeyUpdate]]]  # key -> revision and update, in order


def _placed(history: KeyHistory) -> _Placed:
    """Updates whose revision is known: by their acknowledgement, or, without one, because a node has them."""
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    by_value = {one.value: one for one in history.updates}
    for one in history.updates:
        if one.outcome is AttemptOutcome.OK:
            found[one.key].add((one.revision, one.value))
    for copy in history.copies:
        for key, (revision, value) in copy.keys.items():
            if value in by_value and by_value[value].outcome is not AttemptOutcome.OK:
                found[key].add((revision, value))
    return {
        key: [(revision, by_value[value]) for revision, value in sorted(places)]
        for key, places in found.items()
    }


def _compare_and_set(placed: _Placed) -> Iterator[Finding]:
    """An update replaced a revision that was not the last one."""
    for key, updates in placed.items():
        before: tuple[int, KeyUpdate] | None = None
        for revision, one in updates:
            what = f"the update of {key} to {one.value} succeeded with the last revision {one.expected}"
            if one.expected >= revision:
                yield _finding(f"{what}, and is revision {revision}", one, revision)
            elif before is not None and before[0] > one.expected:
                last, other = before
                yield _finding(f"{what} as {revision}, and {other.value} is revision {last}", one, revision)
            before = (revision, one)


def _last_value(history: KeyHistory, placed: _Placed) -> Iterator[Finding]:
    """A node that was read has an older value than the last one that was acknowledged, or another one."""
    for copy in history.copies:
        if copy.problem:
            continue
        for key, updates in placed.items():
            acknowledged = [one for one in updates if one[1].outcome is AttemptOutcome.OK]
            if not acknowledged:
                continue
            revision, one = acknowledged[-1]
            has, value = copy.keys.get(key, (0, "no value"))
            if has < revision or (has == revision and value != one.value):
                text = (
                    f"{key} is {value} ({has}) on node {copy.node + 1}, and {one.value} was acknowledged "
                    f"as revision {revision}"
                )
                yield Finding(ClusterRule.LAST_VALUE, text, one.value, copy.node, revision, one.completed)


def _watched(name: str, watch: KeyWatch, history: KeyHistory) -> Iterator[Finding]:
    """It got another value than the one that was acknowledged, an older revision after a newer one, or not
    one that the bucket still had."""
    acknowledged = {one.revision: one for one in history.updates if one.outcome is AttemptOutcome.OK}
    before: WatchedUpdate | None = None
    for seen in watch.updates:
        one = acknowledged.get(seen.revision)
        what = f"{name} got {seen.value} as revision {seen.revision}"
        if one is not None and one.value != seen.value:
            yield _of_watch(
                f"{what}, and {one.value} was acknowledged as it", seen.value, seen.revision, seen.at
            )
        if before is not None and before.consumer == seen.consumer and seen.revision <= before.revision:
            yield _of_watch(f"{what} after revision {before.revision}", seen.value, seen.revision, seen.at)
        before = seen
    came = {seen.revision for seen in watch.updates}
    highest = list(accumulate((seen.revision for seen in watch.updates), max))
    for revision, one in sorted(acknowledged.items()):
        if revision in came:
            continue
        after = bisect_right(highest, revision)
        if after < len(highest):
            seen = watch.updates[after]
            why, until = f"it got revision {seen.revision} without it", seen.at
        elif watch.problem:
            continue
        else:
            why, until = "it did not come after the faults had ended", _END
        if _newer(history, one, until) < HISTORY:
            text = f"{name} did not get {one.value}, acknowledged as revision {revision} of {one.key}: {why}"
            yield _of_watch(text, one.value, revision, one.completed)


def _newer(history: KeyHistory, update: KeyUpdate, until: int) -> int:
    """How many values of its key may be stored after it. With as many as a bucket keeps, it is gone. Without
    an answer, only an update that expected this revision or a later one can be."""
    later = (
        one.revision > update.revision
        if one.outcome is AttemptOutcome.OK
        else one.expected >= update.revision
        for one in history.updates
        if one.key == update.key and one.invoked < until and one.outcome is not AttemptOutcome.FAILED
    )
    return sum(later)


def _of_watch(text: str, value: str, revision: int, at: int) -> Finding:
    return Finding(ClusterRule.WATCH, text, value, None, revision, at)


OF_KEYS = (ClusterRule.COMPARE_AND_SET, ClusterRule.LAST_VALUE, ClusterRule.WATCH)


def undecided(history: KeyHistory | None) -> dict[ClusterRule, str]:
    """Rules that had nothing to look at, and why."""
    if history is None:
        return dict.fromkeys(OF_KEYS, "no key was updated")
    if not any(one.outcome is AttemptOutcome.OK for one in history.updates):
        return dict.fromkeys(OF_KEYS, "no update of a key was acknowledged")
    missing: dict[ClusterRule, str] = {}
    if not any(watch.updates for watch in history.watches):
        missing[ClusterRule.WATCH] = "no watch got an update"
    elif problems := [watch.problem for watch in history.watches if watch.problem]:
        missing[ClusterRule.WATCH] = f"not every watch could go on: {problems[0]}"
    unread = [f"node {copy.node + 1}: {copy.problem}" for copy in history.copies if copy.problem]
    if unread or not history.copies:
        why = f"not every node could be asked for the keys ({'; '.join(unread)})"
        missing[ClusterRule.LAST_VALUE] = why
    return missing


def _finding(text: str, one: KeyUpdate, revision: int) -> Finding:
    return Finding(ClusterRule.COMPARE_AND_SET, text, one.value, one.node, revision, one.completed)
