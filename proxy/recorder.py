"""The tap that writes captures: traffic as packets in rolling pcapng files.

With ``strict`` everything of a turn is handed to the kernel before it is forwarded; otherwise it is within
``LATE_S``. What the kernel has survives our own death: at worst the last block is cut short.
A file that ends without the statistics block of its end was not closed: the recorder was killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from time import time_ns
from typing import Any, Protocol

from msgspec import Struct

from plumbline.captures.amqp.redaction import AmqpRedactor, EitherRedactor
from plumbline.captures.nats.redaction import NatsRedactor
from plumbline.captures.packets import ACK, FIN, MAX_DATA, RST, SYN, PacketFlow
from plumbline.captures.pcapng import MARK, packet
from plumbline.captures.redaction import Redactor
from plumbline.captures.rolling import CaptureFiles
from plumbline.proxy.addresses import RAW
from plumbline.proxy.counters import Counters
from plumbline.wire.sender import Direction

TO_SERVER = Direction.TO_SERVER
LATE_S = 0.05  # after which what was forwarded is written; half of what is promised
HOLD_BYTES = 64 * 1024  # so much is written at once, without waiting: it is still in the cache


REDACTORS: dict[str, Callable[[], Redactor]] = {
    "nats": NatsRedactor,
    "amqp": AmqpRedactor,
    RAW: EitherRedactor,
}


class WhenFull(StrEnum):
    """What becomes of the traffic when the capture cannot be written."""

    CLOSE = "close"
    FORWARD = "forward"


class Recording(Struct, frozen=True):
    """How to record."""

    protocol: str
    strict: bool = False
    redact: bool = True
    when_full: WhenFull = WhenFull.CLOSE


class RecordedConnection(Protocol):
    """A connection as the recorder knows it: ``link.Link`` is one."""

    number: int
    client_address: Any
    server_address: Any

    def __hash__(self) -> int: ...


class Clock(Protocol):
    """Does something later: ``loop.Loop`` is one."""

    def after(self, seconds: float, action: Callable[[], None]) -> Any:
        """After that many seconds."""


class _ConnectionState:
    """What is known of a connection while it is open."""

    __slots__ = ("about", "flow", "masked", "redactor")

    def __init__(self, flow: PacketFlow, about: str, redactor: Redactor | None) -> None:
        self.flow = flow
        self.about = about
        self.redactor = redactor
        self.masked = 0  # bytes by the redactor, as far as it is noted


class Recorder:
    """See ``relay.Tap``. ``on_stopped`` gets, once, the reason why nothing more is recorded."""

    def __init__(
        self,
        files: CaptureFiles,
        recording: Recording,
        clock: Clock,
        counters: Counters,
        on_stopped: Callable[[str], None],
    ) -> None:
        self.stopped = ""  # why nothing more is recorded
        self.on_lost: Callable[[], None] = lambda: None  # nothing may pass any more
        self._files = files
        self._recording = recording
        self._strict = recording.strict
        self._clock = clock
        self._counters = counters
        self._on_stopped = on_stopped
        self._open: dict[RecordedConnection, _ConnectionState] = {}
        self._parts: list[bytes] = []
        self._size = 0  # bytes of the parts
        self._carried = 0  # bytes of traffic in them
        self._late: Any = None
        self._packets = 0
        self._started = time.time_ns()
        self._counters.files.append(str(files.path))

    # -- what passes -------------------------------------------------------------------------

    def connected(self, link: RecordedConnection, now: int) -> None:
        flow = self._begin(link, now)
        self._add(now, flow.head(Direction.TO_CLIENT, 0, SYN | ACK))
        self._add(now, flow.head(Direction.TO_SERVER, 0, ACK))
        self._write_soon()

    def refused(self, link: RecordedConnection, now: int, why: str) -> None:
        flow = self._begin(link, now)
        self._add(
            now, flow.head(Direction.TO_CLIENT, 0, RST | ACK), notes=(f"{MARK}the server refused: {why}",)
        )
        del self._open[link]
        self._write_soon()

    def data(self, link: RecordedConnection, direction: Direction, data: bytes, now: int) -> None:
        if self.stopped:
            self._count_lost(len(data))
            return
        recorded = self._open[link]
        if direction is TO_SERVER and recorded.redactor is not None:
            data = recorded.redactor.feed(data)
        self._record_bytes(recorded, direction, data, now)

    def data_one_way(self, link: RecordedConnection, direction: Direction) -> Callable[[bytes], bool] | None:
        """See ``relay.Tap``: one call for what is otherwise a dozen. They add up to what a client waits."""
        if not self._strict:
            return None
        recorded = self._open[link]
        feed = recorded.redactor.feed if recorded.redactor is not None and direction is TO_SERVER else None
        parts, head = self._parts, recorded.flow.head

        def record(data: bytes) -> bool:
            now = time_ns()
            masked = data if feed is None else feed(data)
            if masked is data and not parts and not self.stopped and len(data) <= MAX_DATA:
                self._carried = len(data)
                self._size = packet(parts, now, head(direction, len(data)), data)
                self._packets += 1
                self._write()
                return self._check_writable()
            self._record_bytes(recorded, direction, masked, now)
            return self.commit()

        return record

    def _record_bytes(self, recorded: _ConnectionState, direction: Direction, data: bytes, now: int) -> None:
        """Puts on record what may be shown."""
        if self.stopped:
            self._count_lost(len(data))
            return
        notes: tuple[str, ...] = ()
        if recorded.redactor is not None and (masked := recorded.redactor.masked - recorded.masked):
            recorded.masked += masked
            self._counters.redacted += masked
            notes = (f"{MARK}{masked} bytes redacted",)
        self._carried += len(data)
        flow = recorded.flow
        if len(data) <= MAX_DATA:
            self._size += packet(self._parts, now, flow.head(direction, len(data)), data, notes)
            self._packets += 1
            return
        view = memoryview(data)
        for start in range(0, len(data), MAX_DATA):
            piece = view[start : start + MAX_DATA]
            self._add(now, flow.head(direction, len(piece)), piece, notes)
            notes = ()

    def ended(self, link: RecordedConnection, direction: Direction, now: int) -> None:
        self._add(now, self._open[link].flow.head(direction, 0, FIN | ACK))
        self._write_soon()

    def reset(self, link: RecordedConnection, direction: Direction, now: int, why: str) -> None:
        recorded = self._open.pop(link)
        self._add(now, recorded.flow.head(direction, 0, RST | ACK), notes=(f"{MARK}{why}",))
        self._write_soon()

    def closed(self, link: RecordedConnection) -> None:
        self._open.pop(link, None)

    def note(self, link: RecordedConnection, direction: Direction, text: str, now: int) -> None:
        """Puts a comment on record, on a packet without bytes."""
        if link in self._open:
            self._add(now, self._open[link].flow.head(direction, 0, ACK), notes=(MARK + text,))
            self._write_soon()

    def commit(self) -> bool:
        if self._strict or self._size >= HOLD_BYTES:
            self._write()
        elif self._late is None:
            self._write_soon()
        return not self.stopped or self._check_writable()

    def close(self, why: str) -> None:
        """Writes what is left, and that this is the end."""
        self._write()
        if self.stopped:
            return
        try:
            self._files.close(time.time_ns(), self._packets, f"{MARK}the recording ended: {why}")
        except OSError as error:
            self._stop(error)

    # -- to the disk -------------------------------------------------------------------------

    def _check_writable(self) -> bool:
        return not self.stopped or self._recording.when_full is WhenFull.FORWARD

    def _count_lost(self, size: int) -> None:
        """So many bytes are in no file. With ``strict`` they are not forwarded either, unless the user wants
        that."""
        if self._strict and self._recording.when_full is WhenFull.CLOSE:
            self._counters.withheld += size
        else:
            self._counters.unrecorded += size

    def _begin(self, link: RecordedConnection, now: int) -> PacketFlow:
        flow = PacketFlow(link.number, link.client_address, link.server_address)
        about = f"connection {link.number}: {self._recording.protocol}"
        make = REDACTORS.get(self._recording.protocol) if self._recording.redact else None
        self._open[link] = _ConnectionState(flow, about, make() if make else None)
        self._add(now, flow.head(Direction.TO_SERVER, 0, SYN), notes=(MARK + about,))
        return flow

    def _add(self, now: int, head: bytes, data: Any = b"", notes: tuple[str, ...] = ()) -> None:
        if not self.stopped:
            self._size += packet(self._parts, now, head, data, notes)
            self._packets += 1

    def _write_soon(self) -> None:
        if self._late is None and not self.stopped:
            self._late = self._clock.after(LATE_S, self._write_late)

    def _write_late(self) -> None:
        self._late = None
        self._write()
        if not self._check_writable():
            self.on_lost()

    def _write(self) -> None:
        if not self._parts or self.stopped:
            return
        try:
            self._files.append(self._parts, self._size)
            self._counters.recorded += self._size
            if self._files.is_full():
                self._roll()
        except OSError as error:
            self._count_lost(self._carried)
            self._stop(error)
        self._parts.clear()
        self._size = self._carried = 0

    def _stop(self, error: OSError) -> None:
        """The files cannot be written: nothing more is recorded."""
        self.stopped = f"{self._files.path}: {error.strerror or error}"
        why = f"{MARK}the recording stopped: {error.strerror}"
        self._files.abandon(time.time_ns(), self._packets, why)
        self._on_stopped(self.stopped)

    def _roll(self) -> None:
        now = time.time_ns()
        self._files.roll(now, self._packets, f"{MARK}continued in the next file")
        self._counters.files.append(str(self._files.path))
        parts: list[bytes] = []
        size = 0
        for recorded in self._open.values():  # so that each file can be read by itself
            head = recorded.flow.head(Direction.TO_SERVER, 0, ACK)
            size += packet(parts, now, head, b"", (f"{MARK}{recorded.about}, continued",))
            self._packets += 1
        self._files.append(parts, size)
