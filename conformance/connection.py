"""One connection of a check to the target: raw operations out, decoded operations in, all of it logged.

Sockets are read for every connection of the session whenever one of them waits (``Pump``), so an
arrival carries the time it arrived, not the time somebody looked.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from conformance.differences import differences
from conformance.journal import Journal
from conformance.outcomes import Failed, Inconclusive
from conformance.pump import Pump
from conformance.redaction import redacted
from wire.errors import ProtocolError
from wire.headers import Status
from wire.nats import (
    Connect,
    Decoder,
    Err,
    HMsg,
    Info,
    Limits,
    Ok,
    Operation,
    Ping,
    Pong,
    Raw,
    Sender,
)

Expected = TypeVar("Expected", bound=Operation)

# What a server may send at any time, and no check asks for unless it says so.
UNASKED: tuple[type[Operation], ...] = (Ping, Info)
GRACE_S = 0.5  # how long after a limit an arrival still counts as late rather than as missing
ANSWER_S = 2.0  # how long a server may take to answer the PING that tells silence from loss
RECEIVE_BYTES = 256 * 1024
# A server may raise its max_payload to 64 MiB; the decoder must not be what refuses it.
CLIENT_LIMITS = Limits(max_payload=64 * 1024 * 1024 + 1024)


class Closed(Inconclusive):
    """The peer closed the connection and everything it sent before has been taken."""


class Arrival(Struct, frozen=True):
    """An operation and the monotonic time in seconds at which its last byte was read."""

    operation: Operation
    at: float


class Connection:
    """A client connection under the check's full control.

    Windows (``within``, seconds) run from the call and are enforced with the target's slack added.
    ``Failed`` carries expected and actual; ``Inconclusive`` is raised for what came too late to
    judge, and for a server that stopped answering.
    """

    def __init__(
        self,
        name: str,
        link: socket.socket,
        *,
        pump: Pump,
        journal: Journal,
        slack_s: float,
        is_alive: Callable[[], bool],
        on_send: Callable[[float, Operation], None],
        on_evidence: Callable[[], None],
    ) -> None:
        self.name = name
        self.info: Info | None = None
        self.answers_pings = True
        self.is_closed = False
        self._link = link
        self._pump = pump
        self._journal = journal
        self._slack_s = slack_s
        self._is_alive = is_alive
        self._on_send = on_send
        self._on_evidence = on_evidence
        self._decoder = Decoder(Sender.SERVER, CLIENT_LIMITS)
        self._arrived: deque[Arrival] = deque()
        self._broken: ProtocolError | None = None
        self._ended = False
        self._is_read = True
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pump.add(self, link)

    # -- out ---------------------------------------------------------------------------------

    def send(self, *operations: Operation) -> None:
        """Write operations in one segment as far as TCP allows. A connection the peer has closed is no error
        here: what the peer sent before is still to be read, and reading tells of the close."""
        now = time.monotonic()
        for operation in operations:
            shown = redacted(operation)
            text = repr(operation.raw)[2:-1] if isinstance(operation, Raw) else str(shown)
            self._journal.add(now, self.name, ">", text, shown.raw)
            self._on_send(now, operation)
        self._write(b"".join(operation.raw for operation in operations))

    def send_bytes(self, data: bytes) -> None:
        """Write any bytes at all."""
        self.send(Raw.make(data))

    def _write(self, data: bytes) -> None:
        # Blocking writes with reading in between: a target that stops reading must not stop us.
        self._link.settimeout(ANSWER_S)
        try:
            self._link.sendall(data)
        except TimeoutError:
            raise Inconclusive(f"{self.name}: the target stopped reading") from None
        except OSError:
            pass  # reset or closed by the peer: the next read says so

    # -- in ----------------------------------------------------------------------------------

    def readable(self) -> None:
        """Called by the pump: read what is there."""
        self._link.setblocking(False)
        try:
            data = self._link.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(f"connection lost: {error.strerror or error}")
            return
        now = time.monotonic()
        if not data:
            self._end("closed by the server")
            return
        try:
            operations = self._decoder.feed(data)
        except ProtocolError as error:
            operations = list(error.operations)
            self._broken = error
        for operation in operations:
            self._journal.add(now, self.name, "<", str(operation), operation.raw)
            self._arrived.append(Arrival(operation, now))
            if isinstance(operation, Ping) and self.answers_pings:
                self._journal.add(now, self.name, ">", "PONG", Pong.make().raw)
                self._write(Pong.make().raw)
        if self._broken is not None:
            self._journal.add(now, self.name, "!", str(self._broken), data[:512])
            self._end("unreadable")

    def _end(self, why: str) -> None:
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

    def read_on(self) -> None:
        """The end of ``stop_reading``."""
        if not self._is_read and not self._ended:
            self._pump.add(self, self._link)
        self._is_read = True

    def poll(self, deadline: float, skip: Collection[type[Operation]] = UNASKED) -> Arrival | None:
        """The next arrival, or None at the monotonic ``deadline``.

        Raises ``Closed`` when the peer has closed and nothing is left, ``Failed`` when it sent bytes that
        are not the protocol.
        """
        unasked = tuple(skip)

        def ready() -> bool:
            while self._arrived and isinstance(self._arrived[0].operation, unasked):
                self._arrived.popleft()
            return bool(self._arrived) or self._ended

        if not self._pump.run(ready, deadline):
            return None
        if self._arrived:
            return self._arrived.popleft()
        if self._broken is not None:
            raise Failed(
                f"{self.name}: the target sent what is not the protocol",
                expected="an operation of the client protocol",
                actual=str(self._broken),
            )
        raise Closed(f"{self.name}: the target closed the connection")

    def take(self, within: float, skip: Collection[type[Operation]] = UNASKED) -> Operation | None:
        """The next operation, or None when ``within`` (plus slack) has passed. Raises as ``poll``."""
        arrival = self.poll(time.monotonic() + within + self._slack_s, skip)
        return arrival.operation if arrival else None

    # -- evidence ----------------------------------------------------------------------------

    def expect(self, kind: type[Expected], *, within: float = 1.0, **fields: Any) -> Expected:
        """The next operation, which must be of ``kind`` and have these attribute values.

        ``status="404 No Messages"`` compares a status line. Raises ``Failed`` or ``Inconclusive``.
        """
        wanted = " ".join([kind.verb, *(f"{name}={value!r}" for name, value in fields.items())])
        skip = tuple(unasked for unasked in UNASKED if unasked is not kind)

        def judge(operation: Operation) -> None:
            if different := differences(operation, kind, fields):
                self.mark_offending(operation)
                raise Failed(f"{self.name}: {'; '.join(different)}", expected=wanted, actual=str(operation))

        operation = self.arrival(within, wanted, skip, judge=judge).operation
        self._on_evidence()
        assert isinstance(operation, kind)
        return operation

    def expect_status(self, code: int, description: str | None = None, *, within: float = 1.0) -> HMsg:
        """The next operation, which must be an HMSG with this status line."""
        if description is not None:
            return self.expect(HMsg, within=within, status=str(Status(code, description)))
        return self.expect(HMsg, within=within, status_code=code)

    def arrival(
        self,
        within: float,
        wanted: str,
        skip: Collection[type[Operation]] = UNASKED,
        *,
        since: float | None = None,
        judge: Callable[[Operation], None] = lambda operation: None,
    ) -> Arrival:
        """The next arrival within a window that runs from ``since`` (default: now).

        ``judge`` raises ``Failed`` for a wrong operation: lateness excuses only the right one. Raises
        ``Failed`` also if the target is alive and sent nothing or closed; ``Inconclusive`` if the right
        operation was late, or the target does not answer.
        """
        limit = (since if since is not None else time.monotonic()) + within + self._slack_s
        try:
            arrival = self.poll(limit, skip)
        except Closed:
            self.lost(wanted)
        if arrival is None:
            arrival = self._late(within, wanted, skip)
        judge(arrival.operation)
        if arrival.at > limit:
            raise Inconclusive(
                f"{self.name}: came {arrival.at - limit:.3f} s after its limit of {within:g} s",
                expected=wanted,
                actual=str(arrival.operation),
            )
        return arrival

    def _late(self, within: float, wanted: str, skip: Collection[type[Operation]]) -> Arrival:
        """Nothing came in time: what came late. Raises ``Failed`` for silence, ``Inconclusive`` if dead."""
        self.send(Ping.make())
        answered, until = False, time.monotonic() + GRACE_S
        limit = time.monotonic() + ANSWER_S
        while (arrival := self._poll_or_lost(until if answered else limit, wanted, skip)) is not None:
            if not isinstance(arrival.operation, Pong):
                return arrival
            answered = True
        if not answered:
            raise Inconclusive(
                f"{self.name}: nothing within {within:g} s, and PING is not answered",
                expected=wanted,
                actual="nothing",
            )
        raise Failed(
            f"{self.name}: nothing came",
            expected=wanted,
            actual=f"nothing within {within:g} s; the server answers PING",
        )

    def _poll_or_lost(
        self, deadline: float, wanted: str, skip: Collection[type[Operation]]
    ) -> Arrival | None:
        try:
            return self.poll(deadline, skip)
        except Closed:
            self.lost(wanted)

    def lost(self, wanted: str) -> NoReturn:
        """The peer closed instead of ``wanted``: ``Failed`` if the target is alive, else ``Inconclusive``."""
        if self._is_alive():
            raise Failed(
                f"{self.name}: the target closed the connection",
                expected=wanted,
                actual="connection closed; the target answers a fresh one",
            ) from None
        raise Inconclusive(
            f"{self.name}: connection lost, and the target does not answer a fresh one",
            expected=wanted,
            actual="connection lost",
        ) from None

    def nothing(self, for_s: float) -> None:
        """Nothing (but PING and INFO) arrives for ``for_s`` seconds."""
        wanted = f"nothing for {for_s:g} s"
        limit = time.monotonic() + for_s
        arrival = self._poll_or_lost(limit, wanted, UNASKED)
        if arrival is not None:
            self.mark_offending(arrival.operation)
            if arrival.at > limit:  # we were kept from reading, so it may have come after the silence
                raise Inconclusive(
                    f"{self.name}: something came, and was read {arrival.at - limit:.3f} s after the silence",
                    expected=wanted,
                    actual=str(arrival.operation),
                )
            raise Failed(f"{self.name}: something came", expected=wanted, actual=str(arrival.operation))
        self._on_evidence()

    def closed(self, within: float = 1.0) -> None:
        """The server closes this connection, sends nothing before, and answers a fresh one."""
        wanted = f"connection closed within {within:g} s"
        limit = time.monotonic() + within + self._slack_s
        try:
            arrival = self.poll(limit) or self.poll(limit + GRACE_S)
        except Closed:
            late = time.monotonic() - limit
            if late > 0:
                raise Inconclusive(
                    f"{self.name}: closed {late:.3f} s after its limit", expected=wanted
                ) from None
            if not self._is_alive():
                raise Inconclusive(
                    f"{self.name}: the target closed and answers no fresh connection"
                ) from None
            self._on_evidence()
            return
        if arrival is not None:
            self.mark_offending(arrival.operation)
            raise Failed(
                f"{self.name}: the server did not close", expected=wanted, actual=str(arrival.operation)
            )
        raise Failed(
            f"{self.name}: the server did not close", expected=wanted, actual="connection still open"
        )

    def flush(self, within: float = 2.0) -> list[Operation]:
        """PING, and what comes before its PONG, without +OK. Raises as ``arrival`` if none comes."""
        self.send(Ping.make())
        before: list[Operation] = []
        while not isinstance(operation := self.arrival(within, "PONG").operation, Pong):
            if isinstance(operation, Err):
                raise Failed(f"{self.name}: PING was refused", expected="PONG", actual=str(operation))
            if not isinstance(operation, Ok):
                before.append(operation)
        return before

    def mark_offending(self, operation: Operation) -> None:
        """Let reports point at the line of the journal that holds ``operation``."""
        self._journal.mark_offending(self.name, operation.raw)

    def close(self) -> None:
        """Close our side. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            if not self._ended:
                self.stop_reading()
                self._ended = True
                self._journal.add(time.monotonic(), self.name, "!", "closed by us")
            self._link.close()


def handshake(connection: Connection, options: dict[str, Any]) -> None:
    """INFO, CONNECT, PING, PONG. Raises ``Failed`` if the target does not keep to it."""
    connection.info = connection.expect(Info, within=2.0)
    connection.send(Connect.make(options), Ping.make())
    while not isinstance(operation := connection.arrival(2.0, "PONG after CONNECT").operation, Pong):
        if not isinstance(operation, Ok):
            raise Failed(
                f"{connection.name}: the handshake was refused",
                expected="PONG after CONNECT",
                actual=str(operation),
            )
