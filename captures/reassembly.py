"""TCP segments to the bytes of each connection, in order, and what is known to be missing.

A segment that came twice counts once, one that came early waits, and of overlapping ones the first is
believed. What the receiver acknowledged and the capture does not have is a loss, told as such: its bytes
passed, unseen. A connection whose beginning was not captured starts where it is first seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from plumbline.captures.pcapng import MARK
from plumbline.captures.segments import ACK, FIN, RST, SYN, Address, Segment
from plumbline.wire.sender import Direction

HOLD_BYTES = 16 * 1024 * 1024  # that wait for what is before them, in one direction
PATIENCE = 16  # segments after which what was acknowledged is no longer expected to come late
_WHOLE, _HALF = 1 << 32, 1 << 31
_ENDS = SYN | FIN | RST  # of a connection: segments that are more than their bytes
_OURS = re.compile(re.escape(MARK) + r"connection (\d+): (\w+)")


class TcpConnection:
    """One TCP connection, numbered from 1; ours keep the number that the recorder gave."""

    __slots__ = ("addresses", "client", "mid_stream", "number", "protocol", "server")

    def __init__(self, number: int, client: Address, server: Address, protocol: str) -> None:
        self.number = number
        self.client = client
        self.server = server
        self.addresses = str(client), str(server)
        self.protocol = protocol  # as the recorder said; empty if nobody did
        self.mid_stream = False


class ConnectionNumbers:
    """Gives connections their numbers: those that a recorder gave, the next one to all others."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._highest = 0

    def give(self, recorded: int) -> int:
        """The number of one more connection; ``recorded`` is 0 for one that no recorder numbered."""
        number = recorded if recorded and recorded not in self._used else self._highest + 1
        self._used.add(number)
        self._highest = max(self._highest, number)
        return number


def recorder_identity(comments: tuple[str, ...]) -> tuple[int, str]:
    """Number and protocol that the recorder gave a connection on this packet; 0 and empty if it did not."""
    number, protocol = 0, ""
    for comment in comments:
        if found := _OURS.match(comment):
            number, protocol = int(found[1]), found[2]
    return number, protocol


class ConnectionOpened(Struct, frozen=True):
    """A connection is seen for the first time."""

    connection: TcpConnection
    time: int


class StreamBytes(Struct, frozen=True):
    """The next bytes of one direction."""

    connection: TcpConnection
    time: int
    direction: Direction
    data: bytes


class BytesLost(Struct, frozen=True):
    """So many bytes passed that the capture does not have."""

    connection: TcpConnection
    time: int
    direction: Direction
    size: int


class StreamEnded(Struct, frozen=True):
    """The sender of that direction closed it, or reset the connection."""

    connection: TcpConnection
    time: int
    direction: Direction
    is_reset: bool


class CaptureComment(Struct, frozen=True):
    """A comment of the capture that stands with this connection."""

    connection: TcpConnection
    time: int
    text: str


Event = ConnectionOpened | StreamBytes | BytesLost | StreamEnded | CaptureComment


class _StreamHalf:
    """One direction."""

    __slots__ = ("acked", "ended", "held_bytes", "next", "out_of_order", "since")

    def __init__(self) -> None:
        self.next: int | None = None  # sequence number of the next byte
        self.acked: int | None = None  # what its receiver has acknowledged
        self.out_of_order: dict[int, Segment] = {}
        self.held_bytes = 0
        self.since = 0  # segments since something is missing
        self.ended = False


def _after(seq: int, than: int) -> int:
    """How far ``seq`` is after ``than``; negative: before. Sequence numbers go round."""
    return (seq - than + _HALF) % _WHOLE - _HALF


def _is_overdue(half: _StreamHalf, ack: int) -> bool:
    """Whether what its receiver acknowledged, now with ``ack``, is missing for too long."""
    if half.next is None:
        half.next = ack
    if half.acked is None or (ack != half.acked and _after(ack, half.acked) > 0):
        half.acked = ack
    if half.acked == half.next or _after(half.acked, half.next) <= 0:
        return False
    half.since += 1
    return half.since > PATIENCE


class _TcpFlow:
    __slots__ = ("connection", "halves")

    def __init__(self, connection: TcpConnection) -> None:
        self.connection = connection
        self.halves = (_StreamHalf(), _StreamHalf())


class Reassembler:
    """Takes segments in the order of the capture. ``sent_by_server`` helps where no handshake was seen: it
    says of the first bytes whether a server sent them, or None."""

    def __init__(
        self, sent_by_server: Callable[[bytes, Address, Address], bool | None] = lambda *_: None
    ) -> None:
        self.repeated = 0  # bytes that came more than once
        self._sent_by_server = sent_by_server
        self._flows: dict[tuple[Address, Address], tuple[_TcpFlow, Direction]] = {}  # by sender and receiver
        self._numbers = ConnectionNumbers()

    def feed(self, segment: Segment) -> Iterator[Event]:
        """What this segment adds."""
        ends, flags = (segment.source, segment.target), segment.flags
        found = self._flows.get(ends)
        if found is None or (flags & SYN and self._is_new(found[0], segment)):
            if found is not None:
                yield from self._flush(found[0], segment.time)
            if flags & RST and not segment.data and not segment.comments:
                return
            new_flow = self._begin(segment)
            client, server = new_flow.connection.client, new_flow.connection.server
            self._flows[server, client] = new_flow, Direction.TO_CLIENT
            self._flows[client, server] = new_flow, Direction.TO_SERVER
            found = self._flows[ends]
            yield ConnectionOpened(new_flow.connection, segment.time)
        flow, direction = found
        for comment in segment.comments:
            if not _OURS.match(comment):
                yield CaptureComment(flow.connection, segment.time, comment)
        if flags & ACK and _is_overdue(flow.halves[1 - direction], segment.ack):
            yield from self._declare_lost(flow, direction.other, segment.time)
        half, data = flow.halves[direction], segment.data
        if flags & _ENDS or segment.missing or half.out_of_order or segment.seq != half.next or not data:
            yield from self._sent(flow, direction, segment)
            return
        half.next = (segment.seq + len(data)) % _WHOLE  # most segments: the next bytes, and nothing else
        half.since = 0
        yield StreamBytes(flow.connection, segment.time, direction, data)

    def finish(self, time: int) -> Iterator[Event]:
        """The capture is over: what still waits for something before it is told."""
        for flow in dict.fromkeys(flow for flow, _ in self._flows.values()):
            yield from self._flush(flow, time)

    # -- connections -------------------------------------------------------------------------

    def _is_new(self, flow: _TcpFlow, segment: Segment) -> bool:
        """Whether this SYN is that of another connection between the same ends."""
        if segment.flags & ACK:
            return False
        half = flow.halves[Direction.TO_SERVER]
        if segment.source != flow.connection.client or half.next is None:
            return True
        return _after(half.next, segment.seq + 1) != 0 and not -1 <= _after(half.next, segment.seq + 1) <= 0

    def _begin(self, segment: Segment) -> _TcpFlow:
        recorded, protocol = recorder_identity(segment.comments)
        number = self._numbers.give(recorded)
        is_client = self._is_client(segment, is_ours=bool(protocol))
        ends = (segment.source, segment.target) if is_client else (segment.target, segment.source)
        connection = TcpConnection(number, *ends, protocol)
        connection.mid_stream = not segment.flags & SYN
        return _TcpFlow(connection)

    def _is_client(self, segment: Segment, *, is_ours: bool) -> bool:
        if segment.flags & SYN:
            return not segment.flags & ACK
        if is_ours:
            return True  # the recorder introduces a connection with a packet of the client
        by_server = self._sent_by_server(segment.data, segment.source, segment.target)
        if by_server is not None:
            return not by_server
        return segment.source.port > segment.target.port

    # -- bytes -------------------------------------------------------------------------------

    def _sent(self, flow: _TcpFlow, direction: Direction, segment: Segment) -> Iterator[Event]:
        half = flow.halves[direction]
        seq = segment.seq
        if segment.flags & SYN:
            if half.next is None or _after(seq + 1, half.next) > 0 or not half.ended:
                half.next = (seq + 1) % _WHOLE
            return
        if half.next is None:
            half.next = seq
        if segment.flags & RST:
            yield from self._flush_half(flow, direction, segment.time)
            if not half.ended:
                half.ended = True
                yield StreamEnded(flow.connection, segment.time, direction, is_reset=True)
            return
        if not (segment.data or segment.missing or segment.flags & FIN):
            return
        if _after(seq, half.next) > 0:
            half.since += 1
            known = half.out_of_order.get(seq)
            if known is None or len(known.data) < len(segment.data):
                half.held_bytes += len(segment.data) - (len(known.data) if known else 0)
                half.out_of_order[seq] = segment
            else:
                self.repeated += len(segment.data)
            is_acked = half.acked is not None and _after(half.acked, half.next) > 0
            if half.held_bytes > HOLD_BYTES or (is_acked and half.since > PATIENCE):
                yield from self._declare_lost(flow, direction, segment.time)
            return
        yield from self._deliver(flow, direction, segment)
        yield from self._release(flow, direction)

    def _deliver(self, flow: _TcpFlow, direction: Direction, segment: Segment) -> Iterator[Event]:
        """A segment that begins at or before the next byte."""
        half = flow.halves[direction]
        assert half.next is not None
        known = -_after(segment.seq, half.next)
        size = len(segment.data) + segment.missing
        if size and known:
            self.repeated += min(known, size)
        if known < len(segment.data):
            data = segment.data[known:]
            half.next = (half.next + len(data)) % _WHOLE
            known += len(data)
            yield StreamBytes(flow.connection, segment.time, direction, data)
        if known < size:
            half.next = (half.next + size - known) % _WHOLE
            yield BytesLost(flow.connection, segment.time, direction, size - known)
        if segment.flags & FIN and not half.ended:
            half.ended = True
            half.next = (half.next + 1) % _WHOLE
            yield StreamEnded(flow.connection, segment.time, direction, is_reset=False)
        half.since = 0

    def _release(self, flow: _TcpFlow, direction: Direction) -> Iterator[Event]:
        """Delivers what waited for the bytes that are there now."""
        half = flow.halves[direction]
        while half.out_of_order:
            assert half.next is not None
            first = min(half.out_of_order, key=lambda seq: _after(seq, half.next or 0))
            if _after(first, half.next) > 0:
                return
            segment = half.out_of_order.pop(first)
            half.held_bytes -= len(segment.data)
            yield from self._deliver(flow, direction, segment)

    def _declare_lost(self, flow: _TcpFlow, direction: Direction, time: int) -> Iterator[Event]:
        """The bytes before what waits, or before what was acknowledged, will not come."""
        half = flow.halves[direction]
        assert half.next is not None
        gap = min((_after(seq, half.next) for seq in half.out_of_order), default=0)
        if not gap and half.acked is not None and not half.ended:
            gap = _after(half.acked, half.next)
            gap = 0 if gap == 1 else gap  # a FIN that was not captured is acknowledged like a byte
        if gap > 0:
            half.next = (half.next + gap) % _WHOLE
            half.since = 0
            yield BytesLost(flow.connection, time, direction, gap)
        yield from self._release(flow, direction)

    def _flush(self, flow: _TcpFlow, time: int) -> Iterator[Event]:
        for direction in Direction:
            yield from self._flush_half(flow, direction, time)

    def _flush_half(self, flow: _TcpFlow, direction: Direction, time: int) -> Iterator[Event]:
        half = flow.halves[direction]
        while half.out_of_order:
            yield from self._declare_lost(flow, direction, time)
        if half.next is not None and half.acked is not None and _after(half.acked, half.next) > 1:
            yield from self._declare_lost(flow, direction, time)
