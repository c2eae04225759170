"""Applies faults to one direction of a connection; random choices come from a seed, and comments go to the
capture.

Bytes carry the time when each of them may go on, so that delays of several faults do not add up by waiting
in turn; nothing overtakes unless a fault makes it, and nothing is lost when a fault is taken away. Faults of
operations look at whole operations, and pass their exact bytes on, or not.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from msgspec import Struct

from plumbline.bounds import DELAYED_BYTES, DELAYED_ENTRIES
from plumbline.captures.dialects import CaptureDialect, StreamDecoder
from plumbline.proxy.faults.language import OF_OPERATIONS, Fault, FaultKind
from plumbline.proxy.faults.rewriting import rewritten
from plumbline.proxy.link import Link
from plumbline.proxy.loop import Loop, LoopTimer
from plumbline.proxy.pipe import Pipe
from plumbline.wire.errors import ProtocolError
from plumbline.wire.sender import Direction

RETRY_S = 0.005  # while the sink takes nothing
SMOOTH_S = 0.05  # a bandwidth is kept over stretches of this length
NOTE_CHARACTERS = 300
LOOK_AHEAD_S = 1.0  # an operation that waits for the next one goes on without it after that time

Note = Callable[[Link, Direction, str], None]


class Faults:
    """The faults that are switched on, by name. Changed only in the loop's thread."""

    def __init__(
        self,
        loop: Loop,
        dialect: CaptureDialect | None,
        seed: int,
        note: Note,
        end: Callable[[Link], None],
        *,
        keeps_secrets: bool = False,
    ) -> None:
        self.active: dict[str, Fault] = {}
        self.loop = loop
        self.dialect = dialect
        self.seed = seed
        self.note = note
        self.end = end
        self.keeps_secrets = keeps_secrets  # in notes
        self.may_change = False  # every connection is followed from its beginning
        self._disturbed: dict[int, list[FaultyDirection]] = {}

    def attach(self, link: Link) -> None:
        """A new connection."""
        if self.active or self.may_change:
            self._disturbed = {number: some for number, some in self._disturbed.items() if not some[0].gone}
            self._disturbed[link.number] = [FaultyDirection(pipe, self) for pipe in link.pipes]

    def change(self, active: Mapping[str, Fault]) -> None:
        """From now on these, also for connections that are there."""
        self.active = dict(active)
        for some in self._disturbed.values():
            for one in some:
                one.change()


class _ActiveFault:
    """A fault in one direction of one connection."""

    def __init__(self, name: str, fault: Fault, pipe: Pipe, seed: int) -> None:
        self.name = name
        self.fault = fault
        self.matched = 0
        self.random = Random(f"{seed} {name} {pipe.link.number} {pipe.direction.name}")
        self.concerns = fault.kind in OF_OPERATIONS or self.random.random() < fault.share

    def strikes(self, fields: Mapping[str, Any]) -> bool:
        """Whether this operation is one of those."""
        fault = self.fault
        if not fault.where(fields):
            return False
        self.matched += 1
        if fault.only:
            return self.matched == fault.only
        if fault.every and self.matched % fault.every:
            return False
        return fault.share >= 1 or self.random.random() < fault.share


class _DelayedBytes(Struct):
    """Bytes that go on piece by piece. A piece is cut when it is sent, so that it costs no memory before."""

    begin: float  # the pause before the first piece begins
    data: bytes
    step: int  # bytes of a piece
    pause: float  # before each piece
    rate: int  # bytes per second; 0: any number
    sent: int = 0

    @property
    def due(self) -> float:
        """When the next piece may go."""
        return self._due_of(self.sent // self.step + 1)

    @property
    def end(self) -> float:
        """When the last piece may go."""
        return self._due_of(-(-len(self.data) // self.step))

    def _due_of(self, piece: int) -> float:
        """The first piece is 1."""
        size = min(piece * self.step, len(self.data))
        return self.begin + piece * self.pause + (size / self.rate if self.rate else 0.0)

    def next_piece(self) -> bytes:
        """The piece that is due."""
        piece = self.data[self.sent : self.sent + self.step]
        self.sent += len(piece)
        return piece

    @property
    def is_sent(self) -> bool:
        """Whether no piece is left."""
        return self.sent == len(self.data)


class _DelayedAction(Struct, frozen=True):
    """Something to do after the bytes before it."""

    due: float
    action: Callable[[], None]


class FaultyDirection:
    """See ``link.Disturbance``."""

    def __init__(self, pipe: Pipe, faults: Faults) -> None:
        self.delayed = 0
        self.pipe = pipe
        self._faults = faults
        self._applied: dict[str, _ActiveFault] = {}
        self._queue: deque[_DelayedBytes | _DelayedAction] = deque()
        self._due = 0.0  # nothing goes before what came before it
        self._timer: LoopTimer | None = None
        self._clocks: list[LoopTimer] = []
        self._passed = 0
        self._swallows = False
        self._holds = False  # a bandwidth of 0: nothing passes until the fault is changed
        self._operations = 0
        self._waiting: bytes = b""  # an operation that lets the next one go first
        self._hold_timer: LoopTimer | None = None
        self._decoder = self._whole_operations()
        self._undecoded = b""
        pipe.disturbance = self
        self.change()

    def _whole_operations(self) -> StreamDecoder | None:
        """A decoder, if anybody asks for operations, or may ask."""
        faults = self._faults
        needs_operations = faults.may_change or any(
            fault.kind in OF_OPERATIONS for fault in faults.active.values()
        )
        return faults.dialect.decoder(self.pipe.direction) if faults.dialect and needs_operations else None

    @property
    def gone(self) -> bool:
        """Whether the connection is closed."""
        return self.pipe.link.closed or self.pipe.link.broken

    def end(self) -> None:
        """The connection is closed: a day's delay does not keep it, nor what was delayed."""
        self._cancel_clocks()
        for timer in (self._timer, self._hold_timer):
            if timer is not None:
                timer.cancel()
        self._queue.clear()
        self._waiting = b""
        self.delayed = 0

    def _cancel_clocks(self) -> None:
        for clock in self._clocks:
            clock.cancel()
        self._clocks.clear()

    def change(self) -> None:
        """Takes what is switched on now."""
        self._cancel_clocks()
        self._swallows = False
        known, self._applied = self._applied, {}
        for name, fault in self._faults.active.items():
            if fault.concerns(self.pipe.direction):
                same = known.get(name)
                fresh = _ActiveFault(name, fault, self.pipe, self._faults.seed)
                applied = same if same is not None and same.fault == fault else fresh
                if applied.concerns:
                    self._applied[name] = applied
                    self._start(applied)
        self._holds = any(not one.fault.size for one in self._of(FaultKind.BANDWIDTH))
        if self._queue:
            self._run()

    def _start(self, applied: _ActiveFault) -> None:
        fault = applied.fault
        if fault.kind is FaultKind.TIMEOUT:
            self._swallows = True
            self._note(applied)
        elif fault.kind in (FaultKind.LATENCY, FaultKind.BANDWIDTH, FaultKind.SLICE):
            self._note(applied)
        if fault.time and fault.kind in (FaultKind.TIMEOUT, FaultKind.LIMIT, FaultKind.RESET):
            loop = self._faults.loop
            self._clocks.append(loop.after(fault.time, lambda: self._end_connection(applied), self.pipe.link))

    def _of(self, kind: FaultKind) -> list[_ActiveFault]:
        return [applied for applied in self._applied.values() if applied.fault.kind is kind]

    # -- in ----------------------------------------------------------------------------------

    def forward(self, data: bytes) -> None:
        """Bytes were received."""
        received = time.monotonic()
        if self._decoder is None:
            self._pass(data, received)
            return
        try:
            operations = self._decoder.feed(data)
        except ProtocolError as error:
            operations = error.operations
            self._decoder = None  # what follows passes as it is
        self._undecoded += data
        at = 0
        of_operations = [one for one in self._applied.values() if one.fault.kind in OF_OPERATIONS]
        for operation in operations:
            at += len(operation.raw)
            self._operation(operation, of_operations, received)
        self._undecoded = self._undecoded[at:]
        if self._decoder is None:
            self._pass_rest(received)

    def forward_end(self) -> None:
        """The source has ended."""
        now = time.monotonic()
        self._release_held()
        self._pass_rest(now)
        for applied in self._of(FaultKind.SLOW_CLOSE):
            self._note(applied)
            now += applied.fault.time
        self._later(max(self._due, now), self.pipe.forward_end)

    def forward_reset(self, why: str) -> None:
        """The source was reset."""
        self._later(self._due, lambda: self.pipe.link.abort_now(self.pipe.direction, why))

    def _pass_rest(self, received: float) -> None:
        rest, self._undecoded = self._undecoded, b""
        self._pass(rest, received)

    # -- operations --------------------------------------------------------------------------

    def _operation(self, operation: Any, faults: list[_ActiveFault], received: float) -> None:
        """Passes it, later, twice, after the next one, or not at all."""
        self._operations += 1
        applied = self._faults_striking(operation, faults) if faults else []
        struck = [one.fault for one in applied]
        kinds = [fault.kind for fault in struck]
        if FaultKind.DROP in kinds:
            return
        data = self._rewrite(operation, struck) * (2 if FaultKind.DUPLICATE in kinds else 1)
        late = sum(fault.time for fault in struck if fault.kind is FaultKind.DELAY)
        if FaultKind.REORDER in kinds and not self._waiting:
            self._waiting = data
            self._hold_timer = self._faults.loop.after(LOOK_AHEAD_S, self._release_held, self.pipe.link)
            return
        self._pass(data, received + late)
        self._release_held()

    def _faults_striking(self, operation: Any, faults: list[_ActiveFault]) -> list[_ActiveFault]:
        assert self._faults.dialect is not None
        sender = self.pipe.direction.sender.value
        number = self.pipe.link.number
        fields = {"sender": sender, "connection": number, **self._faults.dialect.fields(operation)}
        struck = [applied for applied in faults if applied.strikes(fields)]
        if struck:
            text = self._operation_text(operation)
            for applied in struck:
                self._note(applied, f": {text}")
        return struck

    def _operation_text(self, operation: Any) -> str:
        """For a note: it is in the capture, which has no secrets."""
        dialect = self._faults.dialect
        assert dialect is not None
        return dialect.text(operation) if self._faults.keeps_secrets else dialect.redacted_text(operation)

    def _rewrite(self, operation: Any, struck: list[Fault]) -> bytes:
        changes = {name: value for fault in struck for name, value in fault.changes.items()}
        if not changes:
            return bytes(operation.raw)
        try:
            return rewritten(operation, changes)
        except ValueError as error:
            text = f"operation {self._operations} was not rewritten: {error}"
            self._faults.note(self.pipe.link, self.pipe.direction, text[:NOTE_CHARACTERS])
            return bytes(operation.raw)

    def _release_held(self) -> None:
        """What waited for the next operation goes now."""
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        waiting, self._waiting = self._waiting, b""
        if waiting and not self.gone:
            self._pass(waiting, time.monotonic())

    # -- bytes -------------------------------------------------------------------------------

    def _pass(self, data: bytes, received: float) -> None:
        """Puts bytes into the queue, each piece with its time."""
        if not data or self._swallows or self.gone:
            return
        cut = self._limit_reached(len(data))
        if cut is not None:
            data = data[: cut.fault.size - self._passed]
        self._passed += len(data)
        due = received
        for applied in self._of(FaultKind.LATENCY):
            fault = applied.fault
            due += max(fault.time + applied.random.uniform(-fault.jitter, fault.jitter), 0.0)
        due = max(due, self._due)
        delayed = self._in_pieces(data, due)
        self.delayed += len(data)
        self._queue.append(delayed)
        self._due = delayed.end
        if cut is not None:
            self._queue.append(_DelayedAction(self._due, lambda: self._end_connection(cut)))
        self._run()

    def _limit_reached(self, size: int) -> _ActiveFault | None:
        """The first fault that ends the connection within the next ``size`` bytes."""
        limits = [one for one in (*self._of(FaultKind.LIMIT), *self._of(FaultKind.RESET)) if one.fault.size]
        first = min(limits, key=lambda one: one.fault.size, default=None)
        return first if first is not None and self._passed + size >= first.fault.size else None

    def _in_pieces(self, data: bytes, due: float) -> _DelayedBytes:
        """As the faults cut it, from ``due`` on."""
        slices = self._of(FaultKind.SLICE)
        rate = min((one.fault.size for one in self._of(FaultKind.BANDWIDTH) if one.fault.size), default=0)
        sizes = [one.fault.size for one in slices] + ([max(int(rate * SMOOTH_S), 1)] if rate else [])
        step = max(min(sizes, default=len(data)), 1)
        return _DelayedBytes(due, data, step, sum(one.fault.time for one in slices), rate)

    # -- out ---------------------------------------------------------------------------------

    def _later(self, due: float, action: Callable[[], None]) -> None:
        self._due = due
        self._queue.append(_DelayedAction(due, action))
        self._run()

    def _run(self) -> None:
        """Forwards what is due, as far as the sink takes it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = time.monotonic()
        queue, pipe = self._queue, self.pipe
        while queue and queue[0].due <= now and not pipe.blocked and not self._holds and not self.gone:
            first = queue[0]
            if isinstance(first, _DelayedBytes):
                piece = first.next_piece()
                self.delayed -= len(piece)
                if first.is_sent:
                    queue.popleft()
                pipe.forward(piece)
            else:
                queue.popleft()
                first.action()
        if self.gone:
            self._queue.clear()
            self.delayed = 0
            return
        self.pipe.hold(now_held=self.delayed > DELAYED_BYTES or len(self._queue) > DELAYED_ENTRIES)
        if self._queue and not self._holds:
            wait = RETRY_S if self.pipe.blocked else 0.0
            self._timer = self._faults.loop.at(max(self._queue[0].due, now + wait), self._run, self.pipe.link)

    def _end_connection(self, applied: _ActiveFault) -> None:
        """The connection ends here."""
        if self.gone:
            return
        self._note(applied)
        if applied.fault.kind is FaultKind.RESET:
            self.pipe.link.abort_now(self.pipe.direction, f"fault {applied.name}")
        else:
            self._faults.end(self.pipe.link)

    def _note(self, applied: _ActiveFault, more: str = "") -> None:
        number = f" operation {self._operations}" if more else ""
        fault = applied.fault.text if self._faults.keeps_secrets else applied.fault.redacted_text
        text = f"fault {applied.name}: {fault}{number}{more}"
        self._faults.note(self.pipe.link, self.pipe.direction, text[:NOTE_CHARACTERS])
