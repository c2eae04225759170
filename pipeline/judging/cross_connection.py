"""Facts about streams and queues, which several connections share: many per row; ``flows`` writes them,
``streams`` judges them.

A row holds what one connection says about one stream or queue, in its order. What several say of the same is
merged where it is judged, by the place in the captures.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Union

import msgspec
from msgspec import Struct

from plumbline.monitors import MONITORS, MonitorScope
from plumbline.monitors.amqp import facts as amqp
from plumbline.monitors.facts import Fact, StreamFact
from plumbline.pipeline.judging.cells import Cells
from plumbline.pipeline.rows import RowKind

ROW_OPERATIONS = 256  # of one row
HELD_OPERATIONS = 16 * 1024  # of all that a flow has begun

LOCAL = tuple(kind for kind in MONITORS if kind.scope in (MonitorScope.CONNECTION, MonitorScope.CHANNEL))
_ACROSS = {kind.scope: kind for kind in MONITORS if kind not in LOCAL}
if TYPE_CHECKING:
    _Crossing = Fact
else:  # one type for msgspec, which tells them by their tags
    _Crossing = Union[(*StreamFact.__subclasses__(), amqp.AmqpDelivery)]


class OperationFacts(Struct, frozen=True, array_like=True, gc=False):
    """What one operation says."""

    frame: int
    number: int
    time_ns: int
    facts: list[_Crossing]


_noted = msgspec.msgpack.Decoder(list[OperationFacts])


def stream_key(fact: Any) -> str | None:
    """Whose fact this is beyond its connection, if anybody's. An operation's facts have at most one."""
    for scope, kind in _ACROSS.items():
        key = kind.key(fact)
        if key is not None:
            return f"{scope}|{key}"
    return None


class FactCollector:
    """What a flow says, by connection and key, until there is enough for a row."""

    def __init__(self) -> None:
        self._open_rows: dict[tuple[int, str], tuple[Cells, list[OperationFacts]]] = {}
        self._held = 0

    def add(self, key: str, about: Cells, facts: OperationFacts) -> Iterator[Cells]:
        """The rows that are ready. ``about``: what they have beside ``facts``, their connection too."""
        flow_key = about["connection"], key
        open_row = self._open_rows.get(flow_key)
        if open_row is not None and open_row[0] != about:  # such as the next file
            yield self._row(flow_key)
            open_row = None
        if open_row is None:
            open_row = self._open_rows[flow_key] = about, []
        open_row[1].append(facts)
        self._held += 1
        if len(open_row[1]) >= ROW_OPERATIONS:
            yield self._row(flow_key)
        elif self._held >= HELD_OPERATIONS:
            yield from self.take()

    def take(self) -> Iterator[Cells]:
        """A row for each that has begun; nothing is left."""
        for whose in list(self._open_rows):
            yield self._row(whose)

    def _row(self, flow_key: tuple[int, str]) -> Cells:
        about, facts = self._open_rows.pop(flow_key)
        self._held -= len(facts)
        first = facts[0]
        return about | {
            "row_kind": RowKind.FACTS, "key": flow_key[1], "facts": packed(facts), "frame": first.frame,
            "number": first.number, "time_ns": first.time_ns, "time": first.time_ns // 1000,
        }  # fmt: skip


class FactMerge:
    """Rows of one key: their operations, in the order of the captures."""

    def __init__(self) -> None:
        # Of each row that has begun its next operation, behind the place of that; and a number, as no two
        # rows compare.
        self._open: list[
            tuple[tuple[int, int, int], int, OperationFacts, Cells, Iterator[OperationFacts]]
        ] = []
        self._rows = 0

    def add(self, row: Cells, facts: bytes) -> Iterator[tuple[Cells, OperationFacts]]:
        """All that comes before this row. Rows must be added in the order of their first operations."""
        yield from self.until((row["file"], row["frame"], row["number"]))
        self._rows += 1
        self._push(self._rows, row, iter(unpacked(facts, _noted)))

    def until(self, end: tuple[int, int, int] | None = None) -> Iterator[tuple[Cells, OperationFacts]]:
        """What comes before that file, frame and number, or all there is; with the row that it is in."""
        while self._open and (end is None or self._open[0][0] < end):
            _, order, facts, row, rest = heapq.heappop(self._open)
            yield row, facts
            self._push(order, row, rest)

    def _push(self, order: int, row: Cells, rest: Iterator[OperationFacts]) -> None:
        for facts in rest:
            heapq.heappush(self._open, ((row["file"], facts.frame, facts.number), order, facts, row, rest))
            return


def packed(values: list[Any]) -> bytes:
    """Structs as MessagePack; where text was no UTF-8 on the wire, behind a mark and escaped."""
    try:
        return msgspec.msgpack.encode(values)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(values, builtin_types=(bytes,))
        return _ESCAPED + msgspec.msgpack.encode(_mapped(plain, _escape))


def unpacked(data: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    """What was packed, ``decoder`` being that of its type: making one takes longer than using it."""
    if data[:1] != _ESCAPED:
        return decoder.decode(data)
    return msgspec.convert(_mapped(msgspec.msgpack.decode(data[1:]), _unescape), decoder.type)


_ESCAPED = b"\xc1"  # which no MessagePack begins with
_ESCAPE = "\x1b"
_SPECIAL = re.compile("[\x1b\ud800-\udfff]")
_ESCAPES = re.compile("\x1b([0-9a-f]{4})")


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def _unescape(text: str) -> str:
    return _ESCAPES.sub(lambda found: chr(int(found[1], 16)), text)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """``value`` with each text in it changed. Facts are not deep."""
    match value:
        case str():
            return change(value)
        case list() | tuple():
            return [_mapped(held, change) for held in value]
        case dict():
            return {_mapped(name, change): _mapped(held, change) for name, held in value.items()}
    return value
