"""Captures to rows: every operation of every connection, in the order of the capture, and every remark.

A row that is no operation says so in its ``op``: opened, closed, reset, lost, undecodable, note, entered.
Nothing is passed over in silence: bytes that are missing or cannot be decoded become rows of their own, and
decoding goes on at the next place where an operation begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from plumbline.captures.dialects import Dialect, StreamDecoder, known
from plumbline.captures.reassembly import Bytes, Connection, Ended, Event, Lost, Opened, Reassembler, Remark
from plumbline.captures.segments import Place, Segment
from plumbline.wire.errors import ProtocolError
from plumbline.wire.sender import Direction

MOST_HELD = 2 * 1024 * 1024  # bytes of a stream in which a place to begin is looked for again
SHORT_BYTES = 32  # may be the beginning of an operation that cannot be recognised yet
NOTHING = ""
UNKNOWN = "no known protocol"


class Row:
    """One operation, or one remark; ``fields`` is what filters ask."""

    def __init__(
        self,
        connection: Connection,
        time: int,
        direction: Direction | None,
        number: int,
        operation: Any,
        dialect: Dialect | None,
        remark: tuple[str, str] = (NOTHING, NOTHING),
    ) -> None:
        self.connection = connection
        self.time = time  # ns since the epoch
        self.direction = direction
        self.number = number  # of the operation in its connection, from 1; 0 for a remark
        self.operation = operation  # None for a remark
        self.dialect = dialect
        self.remark = remark

    @property
    def sender(self) -> str | None:
        """``client`` or ``server``; None for what neither sent."""
        return None if self.direction is None else self.direction.sender.value

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """What the operation has, under the specification's names."""
        fields: dict[str, Any] = {"connection": self.connection.number, "time": self.time / 1e9}
        if self.number:
            fields["number"] = self.number
        if self.sender is not None:
            fields["sender"] = self.sender
        if self.dialect is not None and self.operation is not None:
            return fields | self.dialect.fields(self.operation)
        return fields | {"op": self.remark[0], "text": self.remark[1]}

    def __str__(self) -> str:
        if self.dialect is not None and self.operation is not None:
            return self.dialect.text(self.operation)
        return f"{self.remark[0]}: {self.remark[1]}" if self.remark[1] else self.remark[0]


class _Stream:
    """One direction of a connection, being decoded. ``decoder`` is None while it looks for a beginning."""

    def __init__(self, decoder: StreamDecoder | None) -> None:
        self.decoder = decoder
        self.passed_over = 0  # bytes since decoding stopped
        self.held = b""  # the end of them, in which an operation may have begun


class _Decoded:
    """A connection with its two streams."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.dialect: Dialect | None = None
        self.is_opaque = False
        self.operations = 0
        self.streams: dict[Direction, _Stream] = {}
        self.waiting: list[Bytes] = []  # until the protocol is known


class Reader:
    """Feed it segments; ``protocol`` overrides what the capture says or looks like."""

    def __init__(self, protocol: str | None = None) -> None:
        self._dialects = known()
        self._protocol = protocol
        self._reassembler = Reassembler(self._sent_by_server)
        self._connections: dict[Connection, _Decoded] = {}
        self._last = 0
        self.lost = 0  # bytes that the capture lacks
        self.undecodable = 0  # places that are not the protocol

    @property
    def repeated(self) -> int:
        """Bytes that were in the capture more than once."""
        return self._reassembler.repeated

    def feed(self, segment: Segment) -> Iterator[Row]:
        """The rows that this segment completes."""
        self._last = segment.time
        for event in self._reassembler.feed(segment):
            yield from self._rows(event)

    def finish(self) -> Iterator[Row]:
        """The capture is over."""
        for event in self._reassembler.finish(self._last):
            yield from self._rows(event)
        for decoded in self._connections.values():
            if decoded.waiting:
                yield _remark(decoded.waiting[-1], None, "undecodable", UNKNOWN)
                decoded.waiting.clear()

    # -- events ------------------------------------------------------------------------------

    def _rows(self, event: Event) -> Iterable[Row]:
        decoded = self._connections.get(event.connection)
        if decoded is None:
            decoded = self._connections[event.connection] = _Decoded(event.connection)
        match event:
            case Bytes():
                return self._decode(decoded, event)
            case Opened():
                how = ", first seen in its middle" if event.connection.mid_stream else ""
                return (_remark(event, None, "opened", " to ".join(event.connection.addresses) + how),)
            case Lost():
                self.lost += event.size
                if not decoded.is_opaque:
                    decoded.streams[event.direction] = _Stream(None)
                told = f"{event.size} bytes are not in the capture"
                return (_remark(event, event.direction, "lost", told),)
            case Ended():
                return (_remark(event, event.direction, "reset" if event.is_reset else "closed", NOTHING),)
            case Remark():
                return (_remark(event, None, "note", event.text),)

    def _decode(self, decoded: _Decoded, event: Bytes) -> Iterable[Row]:
        if decoded.is_opaque:
            return ()
        if decoded.dialect is None:
            return self._recognise(decoded, event)
        stream = decoded.streams.get(event.direction)
        if stream is None:
            begins = not decoded.connection.mid_stream
            stream = _Stream(decoded.dialect.decoder(event.direction) if begins else None)
            decoded.streams[event.direction] = stream
        if stream.decoder is None:
            return self._enter(decoded, stream, event, event.data)
        try:
            operations = stream.decoder.feed(event.data)
        except ProtocolError as error:
            before = self._operations(decoded, event, error.operations)
            return (*before, *self._failed(decoded, stream, event, error))
        return self._operations(decoded, event, operations)

    def _recognise(self, decoded: _Decoded, event: Bytes) -> Iterator[Row]:
        decoded.waiting.append(event)
        decoded.dialect = self._recognised(decoded)
        if decoded.dialect is None:
            if sum(len(part.data) for part in decoded.waiting) > MOST_UNKNOWN:
                decoded.is_opaque = True
                decoded.waiting.clear()
                yield _remark(event, None, "undecodable", UNKNOWN)
            return
        waiting, decoded.waiting = decoded.waiting, []
        for part in waiting:
            yield from self._decode(decoded, part)

    def _operations(self, decoded: _Decoded, event: Bytes, operations: Sequence[Any]) -> Sequence[Row]:
        first = decoded.operations + 1
        decoded.operations += len(operations)
        of, time, direction, dialect = event.connection, event.time, event.direction, decoded.dialect
        return [
            Row(of, time, direction, number, operation, dialect)
            for number, operation in enumerate(operations, first)
        ]

    def _failed(
        self, decoded: _Decoded, stream: _Stream, event: Bytes, error: ProtocolError
    ) -> Iterator[Row]:
        self.undecodable += 1
        yield _remark(event, event.direction, "undecodable", str(error))
        at = event.data.rfind(error.excerpt)  # what is wrong may have begun in an earlier segment
        stream.decoder = None
        stream.passed_over, stream.held = 0, b""
        rest = event.data[at + 1 :] if error.excerpt and at >= 0 else b""
        if rest:
            yield from self._enter(decoded, stream, event, rest)

    def _enter(self, decoded: _Decoded, stream: _Stream, event: Bytes, data: bytes) -> Iterator[Row]:
        """Goes on at the first place from which everything is the protocol, with at least one operation."""
        assert decoded.dialect is not None
        data = stream.held + data
        begun = max(len(data) - SHORT_BYTES, 0)  # where an unfinished operation may have begun
        for place in decoded.dialect.starts(data, event.direction):
            decoder = decoded.dialect.decoder_from(event.direction)
            try:
                operations = decoder.feed(data[place:])
            except ProtocolError:
                continue
            if operations:
                if over := stream.passed_over + place:
                    yield _remark(event, event.direction, "entered", f"{over} bytes passed over")
                stream.decoder, stream.passed_over, stream.held = decoder, 0, b""
                yield from self._operations(decoded, event, operations)
                return
            begun = min(begun, place)
        begun = max(begun, len(data) - MOST_HELD)
        stream.passed_over += begun
        stream.held = data[begun:]

    # -- protocols ---------------------------------------------------------------------------

    def _recognised(self, decoded: _Decoded) -> Dialect | None:
        named = self._protocol or decoded.connection.protocol
        if named in self._dialects:
            return self._dialects[named]
        port = decoded.connection.server.port
        for dialect in self._dialects.values():
            for part in decoded.waiting:
                by_server = dialect.sent_by_server(part.data)
                if by_server is not None and by_server == (part.direction is Direction.TO_CLIENT):
                    return dialect
            if port in dialect.ports and decoded.connection.mid_stream:
                return dialect
        return None

    def _sent_by_server(self, data: bytes, source: Place, target: Place) -> bool | None:
        for dialect in self._dialects.values():
            by_server = dialect.sent_by_server(data)
            if by_server is not None:
                return by_server
        for dialect in self._dialects.values():
            if (source.port in dialect.ports) != (target.port in dialect.ports):
                return source.port in dialect.ports
        return None


MOST_UNKNOWN = 64 * 1024  # bytes after which a connection of no known protocol is left alone


def _remark(event: Event, direction: Direction | None, kind: str, text: str) -> Row:
    return Row(event.connection, event.time, direction, 0, None, None, (kind, text))
