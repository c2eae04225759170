"""Captures to rows: every operation of every connection, in the order of the capture, and every remark.

A row that is no operation says so in its ``op``: opened, closed, reset, lost, undecodable, note, entered.
Nothing is passed over in silence: bytes that are missing or cannot be decoded become rows of their own, and
decoding goes on at the next place where an operation begins.

The work for a segment does not depend on how many came before it, and memory is bounded: see ``bounds``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from plumbline import bounds
from plumbline.captures.budget import Budget
from plumbline.captures.dialects import CaptureDialect, StreamDecoder, known
from plumbline.captures.reassembly import (
    BytesLost,
    CaptureComment,
    ConnectionGivenUp,
    ConnectionOpened,
    Event,
    Reassembler,
    StreamBytes,
    StreamEnded,
    TcpConnection,
)
from plumbline.captures.resync import StartSearch
from plumbline.captures.segments import Address, Segment
from plumbline.wire.errors import ProtocolError
from plumbline.wire.sender import Direction

CHECK_BYTES = 64 * 1024  # of a stream, after which the size of its unfinished operation is asked for
NOTHING = ""
UNKNOWN = "no known protocol"


class OperationRow:
    """One operation, or one remark; ``fields`` is what filters ask."""

    def __init__(
        self,
        connection: TcpConnection,
        time: int,
        direction: Direction | None,
        number: int,
        operation: Any,
        dialect: CaptureDialect | None,
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
    """One direction of a connection: being decoded, or searched for a place from which it can be."""

    __slots__ = ("check_after", "decoder", "search", "unchecked")

    def __init__(self, decoder: StreamDecoder | None) -> None:
        self.decoder = decoder
        self.search = StartSearch() if decoder is None else None
        self.unchecked = 0  # bytes since the size of its unfinished operation was asked for
        self.check_after = CHECK_BYTES

    @property
    def held(self) -> int:
        """Bytes of what is unfinished."""
        return self.search.held if self.search is not None else self.decoder.held if self.decoder else 0

    def enter(self, decoder: StreamDecoder) -> None:
        """From here on it is decoded."""
        self.decoder, self.search = decoder, None

    def stop(self) -> None:
        """It cannot be decoded any more: a place is searched for."""
        self.decoder, self.search = None, StartSearch()


class _DecodedConnection:
    """A connection with its two streams."""

    def __init__(self, connection: TcpConnection) -> None:
        self.connection = connection
        self.dialect: CaptureDialect | None = None
        self.is_opaque = False
        self.operations = 0
        self.streams: dict[Direction, _Stream] = {}
        self.waiting: list[StreamBytes] = []  # until the protocol is known
        self.waiting_bytes = 0

    @property
    def waiting_cost(self) -> int:
        """Memory that they take."""
        return self.waiting_bytes + len(self.waiting) * bounds.CAPTURE_ENTRY_BYTES


class OperationReader:
    """Feed it segments; ``protocol`` overrides what the capture says or looks like."""

    def __init__(self, protocol: str | None = None) -> None:
        self._dialects = known()
        self._protocol = protocol
        self._reassembler = Reassembler(self._sent_by_server, self._replaced)
        self._unknown: Budget[_DecodedConnection] = Budget(bounds.CAPTURE_UNKNOWN_TOTAL_BYTES)
        self._unfinished: Budget[tuple[_DecodedConnection, Direction]] = Budget(
            bounds.CAPTURE_UNFINISHED_BYTES
        )
        self._connections: dict[TcpConnection, _DecodedConnection] = {}
        self._last = 0
        self.lost = 0  # bytes that the capture lacks
        self.undecodable = 0  # undecodable places

    @property
    def repeated(self) -> int:
        """Bytes that were in the capture more than once."""
        return self._reassembler.repeated

    def feed(self, segment: Segment) -> Iterator[OperationRow]:
        """The rows that this segment completes."""
        self._last = segment.time
        for event in self._reassembler.feed(segment):
            yield from self._rows(event)

    def finish(self) -> Iterator[OperationRow]:
        """The capture is over."""
        for event in self._reassembler.finish(self._last):
            yield from self._rows(event)
        for decoded in self._connections.values():
            if decoded.waiting:
                yield self._leave_alone(decoded)

    def _replaced(self, connection: TcpConnection) -> None:
        """No event will be about it. What waits until its protocol is known is a remark at the end."""
        decoded = self._connections.get(connection)
        if decoded is None:
            return
        for direction in decoded.streams:
            self._unfinished.set((decoded, direction), 0)
        if not decoded.waiting:
            del self._connections[connection]

    # -- events ------------------------------------------------------------------------------

    def _rows(self, event: Event) -> Iterable[OperationRow]:
        decoded = self._connections.get(event.connection)
        if decoded is None:
            decoded = self._connections[event.connection] = _DecodedConnection(event.connection)
        match event:
            case StreamBytes():
                return self._decode(decoded, event)
            case ConnectionOpened():
                how = ", first seen in its middle" if event.connection.mid_stream else ""
                return (_remark(event, None, "opened", " to ".join(event.connection.addresses) + how),)
            case BytesLost():
                self.lost += event.size
                if not decoded.is_opaque:
                    decoded.streams[event.direction] = _Stream(None)
                    self._unfinished.set((decoded, event.direction), 0)
                text = f"{event.size} bytes are not in the capture"
                return (_remark(event, event.direction, "lost", text),)
            case StreamEnded():
                return (_remark(event, event.direction, "reset" if event.is_reset else "closed", NOTHING),)
            case CaptureComment():
                return (_remark(event, None, "note", event.text),)
            case ConnectionGivenUp():
                return self._give_up(decoded, event)

    def _give_up(self, decoded: _DecodedConnection, event: ConnectionGivenUp) -> Iterator[OperationRow]:
        if decoded.waiting:
            yield self._leave_alone(decoded)
        self._replaced(event.connection)
        text = f"not followed any more: {bounds.CAPTURE_CONNECTIONS} other connections are"
        yield _remark(event, None, "undecodable", text)

    def _decode(self, decoded: _DecodedConnection, event: StreamBytes) -> Iterable[OperationRow]:
        if decoded.is_opaque:
            return ()
        if decoded.dialect is None:
            return self._recognise(decoded, event)
        stream = decoded.streams.get(event.direction)
        if stream is None:
            begins = not decoded.connection.mid_stream
            stream = _Stream(decoded.dialect.decoder(event.direction) if begins else None)
            decoded.streams[event.direction] = stream
        stream.unchecked += len(event.data)
        if stream.unchecked >= stream.check_after:
            return self._decode_checked(decoded, stream, event)
        return self._decode_stream(decoded, stream, event)

    def _decode_stream(
        self, decoded: _DecodedConnection, stream: _Stream, event: StreamBytes
    ) -> Iterable[OperationRow]:
        if stream.decoder is None:
            return self._resynchronize(decoded, stream, event, event.data)
        try:
            operations = stream.decoder.feed(event.data)
        except ProtocolError as error:
            before = self._operations(decoded, event, error.operations)
            return (*before, *self._on_decode_error(decoded, stream, event, error))
        return self._operations(decoded, event, operations)

    def _decode_checked(
        self, decoded: _DecodedConnection, stream: _Stream, event: StreamBytes
    ) -> Iterator[OperationRow]:
        """Also asks how large what is unfinished has become: rarely, as that takes time."""
        yield from self._decode_stream(decoded, stream, event)
        held = stream.held
        stream.unchecked, stream.check_after = 0, max(CHECK_BYTES, held // 4)
        self._unfinished.set((decoded, event.direction), held if held >= CHECK_BYTES else 0)
        while (oldest := self._unfinished.oldest_to_release) is not None:
            of, direction = oldest
            self._unfinished.set(oldest, 0)
            of.streams[direction].stop()
            self.undecodable += 1
            text = f"more than {bounds.CAPTURE_UNFINISHED_BYTES} bytes of unfinished operations"
            about = StreamBytes(of.connection, event.time, direction, b"")
            yield _remark(about, direction, "undecodable", text)

    def _recognise(self, decoded: _DecodedConnection, event: StreamBytes) -> Iterator[OperationRow]:
        decoded.waiting.append(event)
        decoded.waiting_bytes += len(event.data)
        decoded.dialect = self._recognised(decoded, event)
        if decoded.dialect is None:
            self._unknown.set(decoded, decoded.waiting_cost)
            if decoded.waiting_bytes > bounds.CAPTURE_UNKNOWN_BYTES:
                yield self._leave_alone(decoded)
            while (oldest := self._unknown.oldest_to_release) is not None:
                yield self._leave_alone(oldest)
            return
        waiting, decoded.waiting = decoded.waiting, []
        self._unknown.set(decoded, 0)
        for part in waiting:
            yield from self._decode(decoded, part)

    def _leave_alone(self, decoded: _DecodedConnection) -> OperationRow:
        """No known protocol."""
        decoded.is_opaque = True
        remark = _remark(decoded.waiting[-1], None, "undecodable", UNKNOWN)
        decoded.waiting.clear()
        self._unknown.set(decoded, 0)
        return remark

    def _operations(
        self, decoded: _DecodedConnection, event: StreamBytes, operations: Sequence[Any]
    ) -> Sequence[OperationRow]:
        first = decoded.operations + 1
        decoded.operations += len(operations)
        of, time, direction, dialect = event.connection, event.time, event.direction, decoded.dialect
        return [
            OperationRow(of, time, direction, number, operation, dialect)
            for number, operation in enumerate(operations, first)
        ]

    def _on_decode_error(
        self, decoded: _DecodedConnection, stream: _Stream, event: StreamBytes, error: ProtocolError
    ) -> Iterator[OperationRow]:
        self.undecodable += 1
        yield _remark(event, event.direction, "undecodable", str(error))
        at = event.data.rfind(error.excerpt)  # what is wrong may have begun in an earlier segment
        stream.stop()
        rest = event.data[at + 1 :] if error.excerpt and at >= 0 else b""
        if rest:
            yield from self._resynchronize(decoded, stream, event, rest)

    def _resynchronize(
        self, decoded: _DecodedConnection, stream: _Stream, event: StreamBytes, data: bytes
    ) -> Iterator[OperationRow]:
        """Goes on at the first place from which everything is the protocol, with at least one operation."""
        assert decoded.dialect is not None
        assert stream.search is not None
        entry = stream.search.feed(data, decoded.dialect, event.direction)
        if entry is None:
            return
        if entry.offset:
            yield _remark(event, event.direction, "entered", f"{entry.offset} bytes passed over")
        stream.enter(entry.decoder)
        yield from self._operations(decoded, event, entry.operations)

    # -- protocols ---------------------------------------------------------------------------

    def _recognised(self, decoded: _DecodedConnection, part: StreamBytes) -> CaptureDialect | None:
        """The protocol, if the newest ``part`` shows it; the earlier ones did not."""
        named = self._protocol or decoded.connection.protocol
        if named in self._dialects:
            return self._dialects[named]
        port = decoded.connection.server.port
        for dialect in self._dialects.values():
            by_server = dialect.sent_by_server(part.data[: bounds.CAPTURE_RECOGNITION_BYTES])
            if by_server is not None and by_server == (part.direction is Direction.TO_CLIENT):
                return dialect
            if port in dialect.ports and decoded.connection.mid_stream:
                return dialect
        return None

    def _sent_by_server(self, data: bytes, source: Address, target: Address) -> bool | None:
        for dialect in self._dialects.values():
            by_server = dialect.sent_by_server(data)
            if by_server is not None:
                return by_server
        for dialect in self._dialects.values():
            if (source.port in dialect.ports) != (target.port in dialect.ports):
                return source.port in dialect.ports
        return None


def _remark(event: Event, direction: Direction | None, kind: str, text: str) -> OperationRow:
    return OperationRow(event.connection, event.time, direction, 0, None, None, (kind, text))
