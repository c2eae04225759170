"""Two recordings, side by side: what differs in behaviour.

Connections are paired by what their clients call themselves and by what crossed them, operations within each
direction by their order: how the two directions interleave is a matter of time, and so it is with the
channels of AMQP, its confirms and deliveries. A confirm of several messages is as many confirms. What is in
both, but elsewhere, was reordered; of what stands at the same place with the same verb and subject the fields
are shown.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

from msgspec import Struct

from plumbline import bounds
from plumbline.captures.amqp.confirms import ConfirmedMessages
from plumbline.captures.normal import IGNORED_OPERATIONS, Normalizer
from plumbline.captures.operations import OperationRow
from plumbline.wire.sender import Direction

ALIKE = 0.3  # connections that have less in common are two different ones


class DifferenceKind(StrEnum):
    """How something differs."""

    MISSING = "missing"  # in the first recording only
    EXTRA = "extra"  # in the second only
    CHANGED = "changed"
    REORDERED = "reordered"


CONFIRMS = "confirms"
Lane = tuple[Direction | None, int, str]  # what keeps its order: direction, channel, and what kind of thing


class ComparedOperation(Struct, frozen=True):
    """An operation and what it comes down to."""

    row: OperationRow
    fields: dict[str, Any]
    key: str
    lane: Lane

    @property
    def identity(self) -> tuple[str, str]:
        """What an operation keeps when it is changed."""
        name = self.fields.get("subject") or self.fields.get("routing_key") or ""
        return str(self.fields["op"]), str(name)


class FieldChange(Struct, frozen=True):
    """One field that differs; None where it is not there."""

    name: str
    first: Any
    second: Any


class OperationDifference(Struct, frozen=True):
    """One operation that differs, as it was in each recording."""

    kind: DifferenceKind
    first: ComparedOperation | None
    second: ComparedOperation | None
    changes: tuple[FieldChange, ...] = ()

    @property
    def direction(self) -> Direction:
        """Where it goes."""
        seen = self.first or self.second
        assert seen is not None
        assert seen.row.direction is not None
        return seen.row.direction


class ComparedConversation(Struct, frozen=True):
    """The operations of one connection."""

    number: int
    name: str
    operations: tuple[ComparedOperation, ...]


class Pair(Struct, frozen=True):
    """A connection of each recording, or of one of them."""

    first: ComparedConversation | None
    second: ComparedConversation | None
    differences: tuple[OperationDifference, ...]


def compare(first: Iterable[OperationRow], second: Iterable[OperationRow]) -> list[Pair]:
    """Every connection of both, in the order of the first recording."""
    pairs = _pair_conversations(_conversations(first), _conversations(second))
    return [Pair(one, other, tuple(_differences(one, other))) for one, other in pairs]


def _conversations(rows: Iterable[OperationRow]) -> list[ComparedConversation]:
    normals: dict[int, Normalizer] = {}
    seen: dict[int, list[ComparedOperation]] = {}
    names: dict[int, str] = {}
    confirmed = _Confirms()
    for row in rows:
        number = row.connection.number
        operations = seen.setdefault(number, [])
        if row.operation is None or row.fields["op"] in IGNORED_OPERATIONS:
            continue
        if row.fields["op"] == "basic.publish":
            confirmed.left += 1
        normal = normals.setdefault(number, Normalizer())
        for fields in _single(row, normal.fields(row.fields), confirmed):
            key = json.dumps([row.direction, fields], sort_keys=True, default=str)
            operations.append(ComparedOperation(row, fields, key, _lane(row, fields)))
        if name := _name(row):
            names.setdefault(number, name)
    return [
        ComparedConversation(number, names.get(number, ""), tuple(found)) for number, found in seen.items()
    ]


class _Confirms:
    """The confirms of a recording. ``left``: messages that may still be confirmed by them."""

    def __init__(self) -> None:
        self.left = bounds.DIFF_CONFIRMS
        self._channels: defaultdict[tuple[int, int], ConfirmedMessages] = defaultdict(ConfirmedMessages)

    def settle(self, row: OperationRow) -> Sequence[int]:
        """The numbers of the messages that this confirms."""
        fields = row.fields
        tags = self._channels[row.connection.number, fields["channel"]].settle(
            fields["delivery_tag"], multiple=fields["multiple"], at_most=self.left
        )
        self.left -= len(tags)
        return tags


def _is_confirm(row: OperationRow) -> bool:
    return row.direction is Direction.TO_CLIENT and row.fields["op"] in ("basic.ack", "basic.nack")


def _single(row: OperationRow, fields: dict[str, Any], confirmed: _Confirms) -> Iterator[dict[str, Any]]:
    """The fields as they are; of a confirm, once for each message that is confirmed."""
    if not _is_confirm(row):
        yield fields
        return
    for tag in confirmed.settle(row):
        yield {**fields, "delivery_tag": tag, "multiple": False}


def _lane(row: OperationRow, fields: dict[str, Any]) -> Lane:
    kind = ""
    if _is_confirm(row):
        kind = CONFIRMS
    elif fields["op"] == "basic.deliver":
        kind = f"deliveries {fields['consumer_tag']}"
    return row.direction, fields.get("channel", 0), kind


def _name(row: OperationRow) -> str:
    """What a client calls itself."""
    if row.fields["op"] == "CONNECT":
        return str(row.fields.get("json", {}).get("name", ""))
    if row.fields["op"] == "connection.start-ok":
        return str(row.fields.get("client_properties", {}).get("connection_name", ""))
    return ""


def _pair_conversations(
    first: list[ComparedConversation], second: list[ComparedConversation]
) -> Iterator[tuple[ComparedConversation | None, ComparedConversation | None]]:
    keys = {id(one): Counter(seen.key for seen in one.operations) for one in (*first, *second)}
    left = list(second)
    for one in first:
        candidates = left[: bounds.DIFF_CANDIDATES]
        scored = [
            (_likeness(one, other, keys[id(one)], keys[id(other)]), -at)
            for at, other in enumerate(candidates)
        ]
        best, at = max(scored, default=(0.0, 0))
        if best < ALIKE:
            yield one, None
        else:
            yield one, left.pop(-at)
    for other in left:
        yield None, other


def _likeness(
    first: ComparedConversation,
    second: ComparedConversation,
    first_keys: Counter[str],
    second_keys: Counter[str],
) -> float:
    """1 for the same operations, in whatever order; a name that both have or lack counts, too."""
    total = first_keys.total() + second_keys.total()
    common = 2 * (first_keys & second_keys).total() / total if total else 1.0
    return 0.7 * common + 0.3 * (first.name == second.name)


def _differences(
    first: ComparedConversation | None, second: ComparedConversation | None
) -> Iterator[OperationDifference]:
    if first is None or second is None:
        kind = DifferenceKind.EXTRA if first is None else DifferenceKind.MISSING
        for seen in (first or second or ComparedConversation(0, "", ())).operations:
            yield _single_difference(kind, seen)
        return
    lanes = dict.fromkeys(seen.lane for side in (first, second) for seen in side.operations)
    found = [difference for lane in lanes for difference in _lane_differences(first, second, lane)]
    yield from sorted(found, key=lambda difference: _position(difference, first, second))


def _lane_differences(
    one: ComparedConversation, other: ComparedConversation, lane: Lane
) -> Iterator[OperationDifference]:
    first_operations = [seen for seen in one.operations if seen.lane == lane]
    second_operations = [seen for seen in other.operations if seen.lane == lane]
    if lane[-1] == CONFIRMS:  # of which the order says nothing
        first_operations, second_operations = (
            sorted(side, key=lambda seen: seen.fields["delivery_tag"])
            for side in (first_operations, second_operations)
        )
    missing: list[ComparedOperation] = []
    extra: list[ComparedOperation] = []
    for a, b, c, d in _changed_parts(
        [seen.key for seen in first_operations], [seen.key for seen in second_operations]
    ):
        missing += first_operations[a:b]
        extra += second_operations[c:d]
    yield from _take_reordered(missing, extra)
    yield from _take_changed(missing, extra)
    for seen in missing:
        yield _single_difference(DifferenceKind.MISSING, seen)
    for seen in extra:
        yield _single_difference(DifferenceKind.EXTRA, seen)


def _changed_parts(first: list[str], second: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Where they differ: from, to of each. What is too alike for an exact comparison has one such place."""
    counts = Counter(second)
    if sum(counts[key] for key in first) <= bounds.DIFF_PAIRS:
        matcher = SequenceMatcher(None, first, second, autojunk=False)
        yield from (place for tag, *place in matcher.get_opcodes() if tag != "equal")  # type: ignore[misc]
        return
    same = range(min(len(first), len(second)))
    start = next((at for at in same if first[at] != second[at]), len(same))
    rest = range(len(same) - start)
    end = next((at for at in rest if first[-1 - at] != second[-1 - at]), len(rest))
    yield start, len(first) - end, start, len(second) - end


def _take_reordered(
    missing: list[ComparedOperation], extra: list[ComparedOperation]
) -> Iterator[OperationDifference]:
    """Takes out of both what is in both."""
    for seen, twin in _take_twins(missing, extra, lambda one: one.key):
        yield OperationDifference(DifferenceKind.REORDERED, seen, twin)


def _take_changed(
    missing: list[ComparedOperation], extra: list[ComparedOperation]
) -> Iterator[OperationDifference]:
    """Takes out of both, in order, what has the same verb and subject."""
    for seen, twin in _take_twins(missing, extra, lambda one: one.identity):
        yield OperationDifference(
            DifferenceKind.CHANGED, seen, twin, tuple(_changes("", seen.fields, twin.fields))
        )


def _take_twins(
    missing: list[ComparedOperation],
    extra: list[ComparedOperation],
    of: Callable[[ComparedOperation], Hashable],
) -> list[tuple[ComparedOperation, ComparedOperation]]:
    """Takes pairs that are the same by ``of`` out of both: of several the first ones."""
    places: defaultdict[Hashable, deque[int]] = defaultdict(deque)
    for place, other in enumerate(extra):
        places[of(other)].append(place)
    twins, alone = [], []
    taken: set[int] = set()
    for seen in missing:
        if found := places.get(of(seen)):
            taken.add(place := found.popleft())
            twins.append((seen, extra[place]))
        else:
            alone.append(seen)
    missing[:] = alone
    extra[:] = [other for place, other in enumerate(extra) if place not in taken]
    return twins


def _changes(prefix: str, first_fields: Any, second_fields: Any) -> Iterator[FieldChange]:
    if isinstance(first_fields, dict) and isinstance(second_fields, dict):
        for name in dict.fromkeys([*first_fields, *second_fields]):
            if first_fields.get(name) != second_fields.get(name):
                yield from _changes(
                    f"{prefix}.{name}" if prefix else name, first_fields.get(name), second_fields.get(name)
                )
    else:
        yield FieldChange(prefix, first_fields, second_fields)


def _single_difference(kind: DifferenceKind, seen: ComparedOperation) -> OperationDifference:
    return (
        OperationDifference(kind, seen, None)
        if kind is DifferenceKind.MISSING
        else OperationDifference(kind, None, seen)
    )


def _position(
    difference: OperationDifference, one: ComparedConversation, other: ComparedConversation
) -> float:
    """How far into its recording it is, so that both are shown in one order."""
    side, seen = (one, difference.first) if difference.first else (other, difference.second)
    assert seen is not None
    return seen.row.number / max(side.operations[-1].row.number, 1)


def differs(pairs: Sequence[Pair]) -> bool:
    """Whether there is any difference."""
    return any(pair.differences or pair.first is None or pair.second is None for pair in pairs)
