"""TCP segments to the bytes of each connection, in order, and what is known to be missing.

A segment that came twice counts once, one that came early waits, and of overlapping ones the first is
believed. What the receiver acknowledged and the capture does not have is a loss, reported as such: its bytes
passed, unseen. A connection whose beginning was not captured starts where it is first seen.

The work for a segment does not depend on how many came before it, and memory is bounded: see ``bounds``.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from plumbline import bounds
from plumbline.captures.budget import Budget
from plumbline.captures.pcapng import MARK
from plumbline.captures.segments import ACK, FIN, RST, SYN, Address, Segment
from plumbline.wire.sender import Direction

PATIENCE = 16  # segments after which what was acknowledged is no longer expected to come late
_WHOLE, _HALF = 1 << 32, 1 << 31
_ENDS = SYN | FIN | RST  # of a connection: segments that are more than their bytes
_OURS = re.compile(re.escape(MARK) + r"connection ([0-9]{1,9}): (\w{1,32})")


class TcpConnection:
    """One TCP connection, numbered from 1; ours keep the number that the recorder gave."""

    __slots__ = ("addresses", "client", "mid_stream", "number", "protocol", "server")

    def __init__(self, number: int, client: Address, server: Address, protocol: str) -> None:
        self.number = number
        self.client = client
        self.server = server
        self.addresses = str(client), str(server)
        self.protocol = protocol  # as the recorder noted; empty if it did not
        self.mid_stream = False


class ConnectionNumbers:
    """Gives connections their numbers: those that a recorder gave, the next one to all others."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._highest = 0

    def give(self, recorded: int) -> int:
        """The number of one more connection; ``recorded`` is 0 for one that no recorder numbered."""
        number = recorded if recorded and self._is_free(recorded) else self._highest + 1
        if len(self._used) < bounds.CAPTURE_CONNECTIONS:
            self._used.add(number)
        self._highest = max(self._highest, number)
        return number

    def _is_free(self, number: int) -> bool:
        """Certainly. Which numbers were used is remembered of the first connections alone."""
        is_remembered = len(self._used) < bounds.CAPTURE_CONNECTIONS
        return number > self._highest or (is_remembered and number not in self._used)


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


class ConnectionGivenUp(Struct, frozen=True):
    """More connections are open than can be followed; this one is not followed any more."""

    connection: TcpConnection
    time: int


Event = ConnectionOpened | StreamBytes | BytesLost | StreamEnded | CaptureComment | ConnectionGivenUp


class _StreamHalf:
    """One direction. Positions count its bytes, from where the first segment waited; they do not go round."""

    __slots__ = ("_positions", "acked", "ended", "held_cost", "next", "position", "since", "waiting")

    def __init__(self) -> None:
        self.next: int | None = None  # sequence number of the next byte
        self.position = 0  # of the next byte
        self.acked: int | None = None  # what its receiver has acknowledged
        self.waiting: dict[int, Segment] = {}  # by position
        self._positions: list[int] = []  # the same positions, as a heap
        self.held_cost = 0
        self.since = 0  # segments since something is missing
        self.ended = False

    def hold(self, segment: Segment) -> int:
        """Keeps a segment that came early; returns how many bytes of it are known already."""
        assert self.next is not None
        position = self.position + _after(segment.seq, self.next)
        known = self.waiting.get(position)
        if known is not None and len(known.data) >= len(segment.data):
            return len(segment.data)
        if known is None:
            heapq.heappush(self._positions, position)
            self.held_cost += bounds.CAPTURE_ENTRY_BYTES
        self.held_cost += len(segment.data) - (len(known.data) if known else 0)
        self.waiting[position] = replace(segment, comments=()) if segment.comments else segment
        return 0

    @property
    def gap(self) -> int:
        """How many bytes are missing before the first segment that waits; 0 if none waits."""
        return self._positions[0] - self.position if self._positions else 0

    def take(self) -> tuple[Segment, int]:
        """The first segment that waits, and how many of its bytes are before the next byte."""
        position = heapq.heappop(self._positions)
        segment = self.waiting.pop(position)
        self.held_cost -= len(segment.data) + bounds.CAPTURE_ENTRY_BYTES
        return segment, self.position - position

    def advance(self, size: int) -> None:
        """The next byte is ``size`` bytes later."""
        assert self.next is not None
        self.next = (self.next + size) % _WHOLE
        self.position += size


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
    __slots__ = ("connection", "halves", "is_active")

    def __init__(self, connection: TcpConnection) -> None:
        self.connection = connection
        self.is_active = False  # more segments came since one to give up was last looked for
        self.halves = (_StreamHalf(), _StreamHalf())


class Reassembler:
    """Takes segments in the order of the capture. ``sent_by_server`` helps where no handshake was seen: it
    says of the first bytes whether a server sent them, or None. ``on_replaced`` gets each connection whose
    ends have begun another one: no event is about it any more."""

    def __init__(
        self,
        sent_by_server: Callable[[bytes, Address, Address], bool | None] = lambda *_: None,
        on_replaced: Callable[[TcpConnection], None] = lambda _: None,
    ) -> None:
        self.repeated = 0  # bytes that came more than once
        self._sent_by_server = sent_by_server
        self._on_replaced = on_replaced
        self._open: dict[_TcpFlow, None] = {}  # in the order in which they began
        self._held: Budget[tuple[_TcpFlow, Direction]] = Budget(bounds.CAPTURE_HELD_TOTAL_BYTES)
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
            if found is not None:
                del self._open[found[0]]
                self._on_replaced(found[0].connection)
            yield from self._make_room(segment.time)
            new_flow = self._begin(segment)
            client, server = new_flow.connection.client, new_flow.connection.server
            self._flows[server, client] = new_flow, Direction.TO_CLIENT
            self._flows[client, server] = new_flow, Direction.TO_SERVER
            self._open[new_flow] = None
            found = self._flows[ends]
            yield ConnectionOpened(new_flow.connection, segment.time)
        else:
            found[0].is_active = True
        flow, direction = found
        for comment in segment.comments:
            if not _OURS.match(comment):
                yield CaptureComment(flow.connection, segment.time, comment)
        if flags & ACK and _is_overdue(flow.halves[1 - direction], segment.ack):
            yield from self._declare_lost(flow, direction.other, segment.time)
        half, data = flow.halves[direction], segment.data
        if flags & _ENDS or segment.missing or half.waiting or segment.seq != half.next or not data:
            yield from self._sent(flow, direction, segment)
            return
        half.next = (segment.seq + len(data)) % _WHOLE  # most segments: the next bytes, and nothing else
        half.since = 0
        yield StreamBytes(flow.connection, segment.time, direction, data)

    def finish(self, time: int) -> Iterator[Event]:
        """The capture is over: what still waits for something before it is an event."""
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

    def _make_room(self, time: int) -> Iterator[Event]:
        """Gives up the first connection that was idle since the last look at it, if there are too many."""
        if len(self._open) < bounds.CAPTURE_CONNECTIONS:
            return
        flow = next(iter(self._open))
        while flow.is_active:
            flow.is_active = False
            del self._open[flow]
            self._open[flow] = None
            flow = next(iter(self._open))
        yield from self._flush(flow, time)
        ends = flow.connection.client, flow.connection.server
        del self._open[flow], self._flows[ends]
        self._flows.pop(ends[::-1], None)  # an end may be connected to itself
        yield ConnectionGivenUp(flow.connection, time)

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
            if half.next is None:
                half.next = (seq + 1) % _WHOLE
            elif _after(seq + 1, half.next) > 0 or not half.ended:
                half.advance(_after(seq + 1, half.next))
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
        distance = _after(seq, half.next)
        if distance > 0:
            yield from self._hold(flow, direction, segment)
            return
        yield from self._deliver(flow, direction, segment, -distance)
        if half.waiting:
            yield from self._release(flow, direction)

    def _hold(self, flow: _TcpFlow, direction: Direction, segment: Segment) -> Iterator[Event]:
        """A segment that begins after the next byte."""
        half = flow.halves[direction]
        half.since += 1
        self.repeated += half.hold(segment)
        self._held.set((flow, direction), half.held_cost)
        assert half.next is not None
        is_acked = half.acked is not None and _after(half.acked, half.next) > 0
        if half.held_cost > bounds.CAPTURE_HELD_BYTES or (is_acked and half.since > PATIENCE):
            yield from self._declare_lost(flow, direction, segment.time)
        while (oldest := self._held.oldest_to_release) is not None:
            yield from self._declare_lost(*oldest, segment.time)

    def _deliver(self, flow: _TcpFlow, direction: Direction, segment: Segment, known: int) -> Iterator[Event]:
        """A segment of which the first ``known`` bytes are before the next byte."""
        half = flow.halves[direction]
        size = len(segment.data) + segment.missing
        if size and known:
            self.repeated += min(known, size)
        if known < len(segment.data):
            data = segment.data[known:]
            half.advance(len(data))
            known += len(data)
            yield StreamBytes(flow.connection, segment.time, direction, data)
        if known < size:
            half.advance(size - known)
            yield BytesLost(flow.connection, segment.time, direction, size - known)
        if segment.flags & FIN and not half.ended:
            half.ended = True
            half.advance(1)
            yield StreamEnded(flow.connection, segment.time, direction, is_reset=False)
        half.since = 0

    def _release(self, flow: _TcpFlow, direction: Direction) -> Iterator[Event]:
        """Delivers what waited for the bytes that are there now."""
        half = flow.halves[direction]
        while half.waiting and half.gap <= 0:
            yield from self._deliver(flow, direction, *half.take())
        self._held.set((flow, direction), half.held_cost)

    def _declare_lost(self, flow: _TcpFlow, direction: Direction, time: int) -> Iterator[Event]:
        """The bytes before what waits, or before what was acknowledged, will not come."""
        half = flow.halves[direction]
        assert half.next is not None
        gap = half.gap
        if not gap and half.acked is not None and not half.ended:
            gap = _after(half.acked, half.next)
            gap = 0 if gap == 1 else gap  # a FIN that was not captured is acknowledged like a byte
        if gap > 0:
            half.advance(gap)
            half.since = 0
            yield BytesLost(flow.connection, time, direction, gap)
        yield from self._release(flow, direction)

    def _flush(self, flow: _TcpFlow, time: int) -> Iterator[Event]:
        for direction in Direction:
            yield from self._flush_half(flow, direction, time)

    def _flush_half(self, flow: _TcpFlow, direction: Direction, time: int) -> Iterator[Event]:
        half = flow.halves[direction]
        while half.waiting:
            yield from self._declare_lost(flow, direction, time)
        if half.next is not None and half.acked is not None and _after(half.acked, half.next) > 1:
            yield from self._declare_lost(flow, direction, time)
