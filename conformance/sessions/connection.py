"""Connections of checks, for every protocol: send operations, receive decoded operations, log both.

Sockets are read for every connection of the session whenever one of them waits (``Pump``), so an
arrival carries the time it arrived, not the time somebody looked.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, NoReturn, Protocol

from msgspec import Struct

from plumbline.bounds import OPERATION_BYTES
from plumbline.conformance.limits import DEFAULT_WITHIN_S
from plumbline.conformance.outcomes import (
    ClosedInstead,
    Failed,
    Inconclusive,
    NothingCame,
    StillOpen,
    StoppedReading,
    Unanswered,
)
from plumbline.conformance.sessions.journal import Journal
from plumbline.conformance.sessions.pump import Pump
from plumbline.conformance.sessions.received import Received
from plumbline.conformance.targets.links import Link, early_bytes
from plumbline.wire.errors import ProtocolError

GRACE_S = 0.5  # how long after a limit an arrival still counts as late rather than as missing
PATIENCE = 4.0  # how many times as long as the question took
ANSWER_S = 2.0  # how long a server may take to answer the question that tells silence from loss
RECEIVE_BYTES = 256 * 1024
NEW_CONNECTION = "a new connection"  # what is asked where the protocol has no question


class ConnectionClosed(Inconclusive):
    """The peer closed the connection and everything it sent before has been taken."""


class Arrival(Struct, frozen=True):
    """An operation and the monotonic time in seconds at which its last byte was read."""

    operation: Any
    at: float


class Decoder(Protocol):
    """A codec of ``wire``. Raises ``ProtocolError``."""

    def feed(self, data: bytes) -> Sequence[Any]: ...


class _NoDecoder:
    """Of a connection that reads no more."""

    def feed(self, data: bytes) -> Sequence[Any]:
        raise AssertionError("the connection is closed")


_NO_DECODER = _NoDecoder()


class ConnectionContext(Struct, frozen=True):
    """What a session gives to its connections. ``address``: of the server, as the URL has it."""

    address: str
    pump: Pump
    journal: Journal
    received: Received
    slack_s: float
    is_alive: Callable[[], bool]
    on_send: Callable[[float, Any], None]
    on_evidence: Callable[[], None]


class BaseConnection:
    """A client connection under the check's full control.

    Windows (``within``, seconds) run from the call and are enforced with the target's slack added.
    ``Failed`` carries expected and actual; ``Inconclusive`` is raised for what came too late to
    judge, and for a server that stopped answering.

    A protocol adds: the decoder, what a server may send ``unsolicited``, what is answered by itself, the
    question that every living server answers, and the streams that a connection may have (AMQP: its
    channels).
    """

    unsolicited: ClassVar[tuple[type[Any], ...]] = ()  # skipped unless a check asks for it
    liveness_request: str = ""  # how reports call the question
    asked_on_stream: bool = False  # the question that was sent last is about one stream only

    def __init__(self, name: str, link: Link, decoder: Decoder, wiring: ConnectionContext) -> None:
        self.name = name
        self.answers_pings = True
        self.is_closed = False
        self.may_end = False  # the protocol's own words for the end have been exchanged
        self._link = link
        self._decoder = decoder
        self._pump = wiring.pump
        self._journal = wiring.journal
        self._received = wiring.received
        self._address = wiring.address
        self._slack_s = wiring.slack_s
        self._is_alive = wiring.is_alive
        self._on_send = wiring.on_send
        self._on_evidence = wiring.on_evidence
        self._arrived: deque[Arrival] = deque()
        self._broken: ProtocolError | None = None
        self._unfinished = 0  # bytes of operations that are not whole yet
        self._ended = False
        self._may_ask = False  # the question was sent, when it was last to be asked
        self._is_read = True
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pump.add(self, link)
        if early_bytes(link):
            self.readable()  # no selector would wake up for it

    # -- what a protocol adds ----------------------------------------------------------------

    def _journal_text(self, operation: Any) -> tuple[str, bytes]:
        """An operation that is sent, for the journal: its text and its bytes, without secrets."""
        return str(operation), operation.raw

    def _as_written(self, operation: Any) -> Any:
        """What is written for an operation of a check: the same, unless the URL says otherwise."""
        return operation

    def _auto_reply(self, operation: Any) -> None:
        """Answer by itself what an ordinary client answers."""

    def _send_liveness_request(self, stream: int | None) -> bool:
        """Send the question that every living server answers; False if one cannot ask on this connection.

        On ``stream`` where that is possible: its answer then comes behind what is awaited there.
        """
        raise NotImplementedError

    def _is_liveness_reply(self, operation: Any) -> bool:
        """Whether this is the answer to it."""
        raise NotImplementedError

    def _liveness_replies_due(self, stream: int | None) -> int:
        """How many such answers are due on ``stream`` for what the check itself has sent."""
        return 0

    def _is_on_stream(self, operation: Any, stream: int | None) -> bool:
        """Whether who waits on ``stream`` of this connection must look at ``operation``; None is all."""
        return True

    # -- out ---------------------------------------------------------------------------------

    def send(self, *operations: Any) -> None:
        """Write operations in one segment as far as TCP allows. A connection the peer has closed is no error
        here: what the peer sent before is still to be read, and reading tells of the close."""
        now = time.monotonic()
        written = [self._as_written(operation) for operation in operations]
        for operation, on_wire in zip(operations, written, strict=True):
            text, raw = self._journal_text(on_wire)
            self._journal.add(now, self.name, ">", text, raw)
            self._on_send(now, operation)
        self._write(b"".join(operation.raw for operation in written))

    def _send_auto_reply(self, raw: bytes, text: str) -> None:
        """Write what the check did not ask for."""
        self._journal.add(time.monotonic(), self.name, ">", text, raw)
        self._write(raw)

    def _write(self, data: bytes) -> None:
        # Blocking writes with reading in between: a target that stops reading must not stop us.
        try:
            self._link.settimeout(ANSWER_S)
            self._link.sendall(data)
        except TimeoutError:
            raise StoppedReading(f"{self.name}: the target stopped reading") from None
        except OSError:
            pass  # reset or closed, by the peer or by us: the next read says so

    # -- in ----------------------------------------------------------------------------------

    def readable(self) -> None:
        """Called by the pump: read what is there. Raises ``Flooded``."""
        self._link.settimeout(0)
        try:
            data = self._link.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._on_disconnect(f"connection lost: {error.strerror or error}")
            return
        now = time.monotonic()
        if not data:
            self._on_disconnect("closed by the server")
            return
        try:
            operations = self._decoder.feed(data)
        except ProtocolError as error:
            operations = list(error.operations)
            self._broken = error.with_traceback(None)  # whose frames hold all that was received
            self._broken.__context__ = self._broken.__cause__ = None
        self._received.add(len(operations), len(data) + self._copied(operations))
        self._unfinished += len(data) - sum(len(operation.raw) for operation in operations)
        if self._received.is_flood or self._unfinished > OPERATION_BYTES:
            self.close()
            operations = ()
            self.forget()
            raise self._received.flooded(self.name, self._unfinished)
        for operation in operations:
            self._journal.add(now, self.name, "<", str(operation), operation.raw)
            self._arrived.append(Arrival(operation, now))
            self._auto_reply(operation)
        if self._broken is not None:
            self._journal.add(now, self.name, "!", str(self._broken), data[:512])
            self._on_disconnect("unreadable")

    def _copied(self, operations: Sequence[Any]) -> int:
        """Bytes that these operations keep a second time, beside their raw bytes."""
        return 0

    def _on_disconnect(self, why: str) -> None:
        if self._ended:
            return
        self._ended = True
        self._journal.add(time.monotonic(), self.name, "!", why)
        self._pump.remove(self._link)

    def stop_reading(self) -> None:
        """Leave in the socket what comes from now on, as a client does that is too slow."""
        if self._is_read and not self._ended:
            self._pump.remove(self._link)
        self._is_read = False

    def resume_reading(self) -> None:
        """The end of ``stop_reading``."""
        if not self._is_read and not self._ended:
            self._pump.add(self, self._link)
        self._is_read = True

    def poll(
        self, deadline: float, skip: Collection[type[Any]] | None = None, stream: int | None = None
    ) -> Arrival | None:
        """The next arrival (on ``stream``), or None at the monotonic ``deadline``.

        Raises ``ConnectionClosed`` when the peer has closed and nothing is left, ``Failed`` when it sent
        bytes that are not the protocol.
        """
        unasked = self.unsolicited if skip is None else tuple(skip)
        place = -1  # of what was found among what has arrived

        def ready() -> bool:
            nonlocal place
            while self._arrived and isinstance(self._arrived[0].operation, unasked):
                self._arrived.popleft()
            matching = (
                position
                for position, arrival in enumerate(self._arrived)
                if self._is_on_stream(arrival.operation, stream)
                and not isinstance(arrival.operation, unasked)
            )
            place = next(matching, -1)
            return place >= 0 or self._ended

        if not self._pump.run(ready, deadline):
            return None
        if place >= 0:
            found = self._arrived[place]
            del self._arrived[place]
            return found
        if self._broken is not None:
            raise Failed(
                f"{self.name}: the target sent malformed protocol data",
                expected="an operation of the client protocol",
                actual=str(self._broken),
            )
        raise ConnectionClosed(f"{self.name}: the target closed the connection")

    @property
    def has_ended(self) -> bool:
        """Whether the connection is closed, by the peer or by us."""
        return self._ended

    def take(self, within: float, skip: Collection[type[Any]] | None = None) -> Any:
        """The next operation, or None when ``within`` (plus slack) has passed. Raises as ``poll``."""
        arrival = self.poll(time.monotonic() + within + self._slack_s, skip)
        return arrival.operation if arrival else None

    # -- evidence ----------------------------------------------------------------------------

    def arrival(
        self,
        within: float,
        expected: str,
        skip: Collection[type[Any]] | None = None,
        *,
        since: float | None = None,
        stream: int | None = None,
        judge: Callable[[Any], None] = lambda operation: None,
    ) -> Arrival:
        """The next arrival within a window that runs from ``since`` (default: now).

        ``judge`` raises ``Failed`` for a wrong operation: lateness excuses only the right one. Raises
        ``Failed`` also if the target is alive and sent nothing or closed; ``Inconclusive`` if the right
        operation was late, or the target does not answer.
        """
        limit = (since if since is not None else time.monotonic()) + within + self._slack_s
        try:
            arrival = self.poll(limit, skip, stream)
        except ConnectionClosed:
            self.disconnected_outcome(expected)
        if arrival is None:
            arrival = self._explain_silence(within, expected, skip, stream)
        judge(arrival.operation)
        if arrival.at > limit:
            raise Inconclusive(
                f"{self.name}: came {arrival.at - limit:.3f} s after its limit of {within:g} s",
                expected=expected,
                actual=str(arrival.operation),
            )
        return arrival

    def _explain_silence(
        self, within: float, expected: str, skip: Collection[type[Any]] | None, stream: int | None
    ) -> Arrival:
        """Nothing came in time: what came late.

        Raises ``NothingCame`` for silence, ``Inconclusive`` if the target is dead.
        """
        found = self._late_or_answered(stream, expected, skip, stream)
        if found is False and self.asked_on_stream:  # not every server knows the question for one channel
            found = self._late_or_answered(None, expected, skip, stream)
        if isinstance(found, Arrival):
            return found
        if not found:
            request = self.liveness_request if self._may_ask else NEW_CONNECTION
            message = f"nothing within {within:g} s, and {request} is not answered"
            raise self._unanswered(message, request, expected=expected, actual="nothing")
        raise NothingCame(
            f"{self.name}: no operation was received",
            expected=expected,
            actual=f"no operation within {within:g} s; the server answers {self.liveness_request}",
        )

    def _late_or_answered(
        self, asked: int | None, expected: str, skip: Collection[type[Any]] | None, stream: int | None
    ) -> Arrival | bool:
        """What came late on ``stream``; else whether the question on ``asked`` was answered."""
        sent_at = time.monotonic()
        due = self._liveness_replies_due(asked)  # they come first
        late: Arrival | None = None
        self._may_ask = self._send_liveness_request(asked)
        answered = not self._may_ask and self._is_alive()
        until = time.monotonic() + GRACE_S
        limit = time.monotonic() + ANSWER_S
        while (arrival := self._poll_or_lost(until if answered else limit, expected, skip)) is not None:
            if self._is_liveness_reply(arrival.operation):
                answered = True
                # Slow to answer this, it may be slow with the other, too; a quick one costs no time.
                until = max(until, arrival.at + PATIENCE * (arrival.at - sent_at))
                if due:
                    late, due = late or arrival, due - 1
                elif late is not None:
                    return late
            elif self._is_on_stream(arrival.operation, stream):
                return arrival
        return answered

    def _poll_or_lost(
        self, deadline: float, expected: str, skip: Collection[type[Any]] | None = None
    ) -> Arrival | None:
        try:
            return self.poll(deadline, skip)
        except ConnectionClosed:
            self.disconnected_outcome(expected)

    def disconnected_outcome(self, expected: str) -> NoReturn:
        """The peer closed instead of ``expected``: ``ClosedInstead`` if the target is alive, else
        ``Inconclusive``."""
        if self._is_alive():
            raise ClosedInstead(
                f"{self.name}: the target closed the connection",
                expected=expected,
                actual="connection closed; the target answers a new connection",
            ) from None
        message = "connection lost, and the target does not answer a new connection"
        raise self._unanswered(message, expected=expected, actual="connection lost") from None

    def expect_silence(self, for_s: float) -> None:
        """Nothing (but what is ``unsolicited``) arrives for ``for_s`` seconds."""
        expected = f"nothing for {for_s:g} s"
        limit = time.monotonic() + for_s
        arrival = self._poll_or_lost(limit, expected)
        if arrival is not None:
            self.mark_offending(arrival.operation)
            if arrival.at > limit:  # we were kept from reading, so it may have come after the silence
                raise Inconclusive(
                    f"{self.name}: an unexpected operation was received, and was read "
                    f"{arrival.at - limit:.3f} s after the silence",
                    expected=expected,
                    actual=str(arrival.operation),
                )
            raise Failed(
                f"{self.name}: an unexpected operation was received",
                expected=expected,
                actual=str(arrival.operation),
            )
        self._on_evidence()

    @property
    def is_blocked(self) -> bool:
        """Whether the server has announced that it reads nothing of this connection for now."""
        return False

    def _unanswered(self, message: str, request: str = NEW_CONNECTION, **evidence: str) -> Unanswered:
        return Unanswered(
            f"{self.name}: {message}",
            request=request,
            address=self._address,
            is_blocked=self.is_blocked,
            **evidence,
        )

    def expect_closed(self, within: float = DEFAULT_WITHIN_S) -> None:
        """The server closes this connection, sends nothing before, and answers a fresh one."""
        expected = f"connection closed within {within:g} s"
        limit = time.monotonic() + within + self._slack_s
        try:
            arrival = self.poll(limit) or self.poll(limit + GRACE_S)
        except ConnectionClosed:
            late = time.monotonic() - limit
            if late > 0:
                raise Inconclusive(
                    f"{self.name}: closed {late:.3f} s after its limit", expected=expected
                ) from None
            if not self._is_alive():
                message = "the target closed the connection and does not answer a new one"
                raise self._unanswered(message) from None
            self._on_evidence()
            return
        if arrival is not None:
            self.mark_offending(arrival.operation)
            raise Failed(
                f"{self.name}: the server did not close", expected=expected, actual=str(arrival.operation)
            )
        if not self._is_alive():
            message = "the server did not close, and does not answer a new connection"
            raise self._unanswered(message, expected=expected, actual="connection still open")
        raise StillOpen(
            f"{self.name}: the server did not close", expected=expected, actual="connection still open"
        )

    def send_bytes(self, data: bytes) -> None:
        """Write any bytes at all."""
        raise NotImplementedError

    def flush(self, within: float = ANSWER_S) -> Sequence[Any]:
        """Ask, and give what comes before the answer. Raises as ``arrival`` if none comes."""
        raise NotImplementedError

    def mark_offending(self, operation: Any) -> None:
        """Let reports point at the line of the journal that holds ``operation``."""
        self._journal.mark_offending(self.name, operation.raw)

    def abort(self) -> None:
        """Let the close that follows reset the TCP connection, as a crash of the client's machine does."""
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def forget(self) -> None:
        """Drop what has arrived and was not taken; a closed connection may be kept by a traceback."""
        self._arrived.clear()
        self._decoder = _NO_DECODER

    def close(self) -> None:
        """Close our side. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            if not self._ended:
                self.stop_reading()
                self._ended = True
                self._journal.add(time.monotonic(), self.name, "!", "closed by us")
            self._link.close()
