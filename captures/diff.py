"""Two recordings, side by side: what differs in behaviour.

Connections are paired by what their clients call themselves and by what crossed them, operations within each
direction by their order: how the two directions interleave is a matter of time, and so it is with the
channels of AMQP, its confirms and deliveries. A confirm of several messages is as many confirms. What is in
both, but elsewhere, was reordered; of what stands at the same place with the same verb and subject the fields
are told.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

from msgspec import Struct

from plumbline.captures.amqp.confirms import Confirmed
from plumbline.captures.normal import UNTOLD, Normal
from plumbline.captures.operations import Row
from plumbline.wire.sender import Direction

ALIKE = 0.3  # connections that have less in common are two different ones


class Kind(StrEnum):
    """How something differs."""

    MISSING = "missing"  # in the first recording only
    EXTRA = "extra"  # in the second only
    CHANGED = "changed"
    REORDERED = "reordered"


CONFIRMS = "confirms"
Lane = tuple[Direction | None, int, str]  # what keeps its order: direction, channel, and what kind of thing


class Seen(Struct, frozen=True):
    """An operation and what it comes down to."""

    row: Row
    fields: dict[str, Any]
    key: str
    lane: Lane

    @property
    def place(self) -> tuple[str, str]:
        """What an operation keeps when it is changed."""
        name = self.fields.get("subject") or self.fields.get("routing_key") or ""
        return str(self.fields["op"]), str(name)


class Change(Struct, frozen=True):
    """One field that differs; None where it is not there."""

    name: str
    first: Any
    second: Any


class Difference(Struct, frozen=True):
    """One operation that differs, as it was in each recording."""

    kind: Kind
    first: Seen | None
    second: Seen | None
    changes: tuple[Change, ...] = ()

    @property
    def direction(self) -> Direction:
        """Where it goes."""
        seen = self.first or self.second
        assert seen is not None
        assert seen.row.direction is not None
        return seen.row.direction


class Conversation(Struct, frozen=True):
    """The operations of one connection."""

    number: int
    name: str
    seen: tuple[Seen, ...]


class Pair(Struct, frozen=True):
    """A connection of each recording, or of one of them."""

    first: Conversation | None
    second: Conversation | None
    differences: tuple[Difference, ...]


def compare(first: Iterable[Row], second: Iterable[Row]) -> list[Pair]:
    """Every connection of both, in the order of the first recording."""
    pairs = _paired(_conversations(first), _conversations(second))
    return [Pair(one, other, tuple(_differences(one, other))) for one, other in pairs]


def _conversations(rows: Iterable[Row]) -> list[Conversation]:
    normals: dict[int, Normal] = {}
    seen: dict[int, list[Seen]] = {}
    names: dict[int, str] = {}
    confirmed: defaultdict[tuple[int, int], Confirmed] = defaultdict(Confirmed)
    for row in rows:
        number = row.connection.number
        operations = seen.setdefault(number, [])
        if row.operation is None or row.fields["op"] in UNTOLD:
            continue
        normal = normals.setdefault(number, Normal())
        for fields in _single(row, normal.fields(row.fields), confirmed):
            key = json.dumps([row.direction, fields], sort_keys=True, default=str)
            operations.append(Seen(row, fields, key, _lane(row, fields)))
        if name := _name(row):
            names.setdefault(number, name)
    return [Conversation(number, names.get(number, ""), tuple(found)) for number, found in seen.items()]


def _is_confirm(row: Row) -> bool:
    return row.direction is Direction.TO_CLIENT and row.fields["op"] in ("basic.ack", "basic.nack")


def _single(
    row: Row, fields: dict[str, Any], confirmed: Mapping[tuple[int, int], Confirmed]
) -> Iterator[dict[str, Any]]:
    """The fields as they are; of a confirm, once for each message that is confirmed."""
    if not _is_confirm(row):
        yield fields
        return
    of_channel = confirmed[row.connection.number, row.fields["channel"]]
    for tag in of_channel.settle(row.fields["delivery_tag"], multiple=row.fields["multiple"]):
        yield {**fields, "delivery_tag": tag, "multiple": False}


def _lane(row: Row, fields: dict[str, Any]) -> Lane:
    kind = ""
    if _is_confirm(row):
        kind = CONFIRMS
    elif fields["op"] == "basic.deliver":
        kind = f"deliveries {fields['consumer_tag']}"
    return row.direction, fields.get("channel", 0), kind


def _name(row: Row) -> str:
    """What a client calls itself."""
    if row.fields["op"] == "CONNECT":
        return str(row.fields.get("json", {}).get("name", ""))
    if row.fields["op"] == "connection.start-ok":
        return str(row.fields.get("client_properties", {}).get("connection_name", ""))
    return ""


def _paired(
    first: list[Conversation], second: list[Conversation]
) -> Iterator[tuple[Conversation | None, Conversation | None]]:
    left = list(second)
    for one in first:
        scored = [(_likeness(one, other), -at) for at, other in enumerate(left)]
        best, at = max(scored, default=(0.0, 0))
        if best < ALIKE:
            yield one, None
        else:
            yield one, left.pop(-at)
    for other in left:
        yield None, other


def _likeness(one: Conversation, other: Conversation) -> float:
    """1 for the same operations, in whatever order; a name that both have or lack counts, too."""
    ours, theirs = Counter(seen.key for seen in one.seen), Counter(seen.key for seen in other.seen)
    total = ours.total() + theirs.total()
    common = 2 * (ours & theirs).total() / total if total else 1.0
    return 0.7 * common + 0.3 * (one.name == other.name)


def _differences(one: Conversation | None, other: Conversation | None) -> Iterator[Difference]:
    if one is None or other is None:
        kind = Kind.EXTRA if one is None else Kind.MISSING
        for seen in (one or other or Conversation(0, "", ())).seen:
            yield _lone(kind, seen)
        return
    lanes = dict.fromkeys(seen.lane for side in (one, other) for seen in side.seen)
    found = [difference for lane in lanes for difference in _of_lane(one, other, lane)]
    yield from sorted(found, key=lambda difference: _when(difference, one, other))


def _of_lane(one: Conversation, other: Conversation, lane: Lane) -> Iterator[Difference]:
    ours = [seen for seen in one.seen if seen.lane == lane]
    theirs = [seen for seen in other.seen if seen.lane == lane]
    if lane[-1] == CONFIRMS:  # of which the order says nothing
        ours, theirs = (sorted(side, key=lambda seen: seen.fields["delivery_tag"]) for side in (ours, theirs))
    missing: list[Seen] = []
    extra: list[Seen] = []
    matcher = SequenceMatcher(
        None, [seen.key for seen in ours], [seen.key for seen in theirs], autojunk=False
    )
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            missing += ours[a:b]
            extra += theirs[c:d]
    yield from _reordered(missing, extra)
    yield from _changed(missing, extra)
    for seen in missing:
        yield _lone(Kind.MISSING, seen)
    for seen in extra:
        yield _lone(Kind.EXTRA, seen)


def _reordered(missing: list[Seen], extra: list[Seen]) -> Iterator[Difference]:
    """Takes out of both what is in both."""
    for seen in list(missing):
        twin = next((other for other in extra if other.key == seen.key), None)
        if twin is not None:
            missing.remove(seen)
            extra.remove(twin)
            yield Difference(Kind.REORDERED, seen, twin)


def _changed(missing: list[Seen], extra: list[Seen]) -> Iterator[Difference]:
    """Takes out of both, in order, what has the same verb and subject."""
    for seen in list(missing):
        twin = next((other for other in extra if other.place == seen.place), None)
        if twin is not None:
            missing.remove(seen)
            extra.remove(twin)
            yield Difference(Kind.CHANGED, seen, twin, tuple(_changes("", seen.fields, twin.fields)))


def _changes(prefix: str, ours: Any, theirs: Any) -> Iterator[Change]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in dict.fromkeys([*ours, *theirs]):
            if ours.get(name) != theirs.get(name):
                yield from _changes(f"{prefix}.{name}" if prefix else name, ours.get(name), theirs.get(name))
    else:
        yield Change(prefix, ours, theirs)


def _lone(kind: Kind, seen: Seen) -> Difference:
    return Difference(kind, seen, None) if kind is Kind.MISSING else Difference(kind, None, seen)


def _when(difference: Difference, one: Conversation, other: Conversation) -> float:
    """How far into its recording it is, so that both are told in one order."""
    side, seen = (one, difference.first) if difference.first else (other, difference.second)
    assert seen is not None
    return seen.row.number / max(side.seen[-1].row.number, 1)


def differs(pairs: Sequence[Pair]) -> bool:
    """Whether there is any difference."""
    return any(pair.differences or pair.first is None or pair.second is None for pair in pairs)
