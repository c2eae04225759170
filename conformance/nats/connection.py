"""One NATS connection of a check to the target. What connections share: ``base_connection``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from plumbline.bounds import OPERATION_BYTES
from plumbline.conformance.limits import DEFAULT_WITHIN_S
from plumbline.conformance.nats.differences import field_differences
from plumbline.conformance.nats.redaction import redacted
from plumbline.conformance.outcomes import Failed
from plumbline.conformance.sessions.connection import (
    Arrival,
    BaseConnection,
    ConnectionClosed,
    ConnectionContext,
)
from plumbline.conformance.targets.links import Link
from plumbline.wire.nats import (
    Connect,
    Decoder,
    Err,
    HPub,
    Info,
    Limits,
    Ok,
    Operation,
    Ping,
    Pong,
    Pub,
    Raw,
    Sender,
)
from plumbline.wire.nats.jetstream import API_PREFIX

__all__ = ["Arrival", "ConnectionClosed", "NatsConnection", "handshake"]

Expected = TypeVar("Expected", bound=Operation)

# Larger than the default max_payload: a check may see what a server sends too large.
CLIENT_LIMITS = Limits(max_payload=OPERATION_BYTES)


class NatsConnection(BaseConnection):
    """A NATS client under the check's full control."""

    unsolicited = (Ping, Info)  # what a server may send at any time
    liveness_request = "PING"

    def __init__(self, name: str, link: Link, wiring: ConnectionContext) -> None:
        self.api_prefix = API_PREFIX  # of JetStream, for this run
        self.nonce = ""  # of the newest INFO, which may have come already
        self._pongs_due = 0
        super().__init__(name, link, Decoder(Sender.SERVER, CLIENT_LIMITS), wiring)
        self.info: Info | None = None
        self.rewrite: Callable[[Operation], Operation] | None = None  # what is sent, as the run deploys it
        # Whether what has come only says that something must be sent again, which is done then.
        self.is_sent_again: Callable[[NatsConnection, Operation], bool] | None = None

    def send(self, *operations: Operation) -> None:
        """As the base."""
        self._pongs_due += sum(isinstance(operation, Ping) for operation in operations)
        super().send(*(operations if self.rewrite is None else map(self.rewrite, operations)))

    def _copied(self, operations: Sequence[Operation]) -> int:
        """Control lines, whose fields an operation has besides."""
        return sum(operation.head for operation in operations)

    def _journal_text(self, operation: Operation) -> tuple[str, bytes]:
        masked = redacted(operation)
        return repr(operation.raw)[2:-1] if isinstance(operation, Raw) else str(masked), masked.raw

    def _as_written(self, operation: Operation) -> Operation:
        """With the prefix of this run in place of $JS.API: the one place where that is changed."""
        if self.api_prefix == API_PREFIX or not isinstance(operation, Pub | HPub):
            return operation
        if not operation.subject.startswith(f"{API_PREFIX}."):
            return operation
        old, new = API_PREFIX.encode(), self.api_prefix.encode()
        args = [operation.args[0].replace(old, new, 1), *operation.args[1:]]
        head = operation.head + len(new) - len(old)
        return type(operation)(operation.raw.replace(old, new, 1), args, head)

    def _auto_reply(self, operation: Operation) -> None:
        if isinstance(operation, Info):
            self.nonce = str(operation.fields.get("nonce") or self.nonce)
        if isinstance(operation, Pong):
            self._pongs_due = max(self._pongs_due - 1, 0)
        if isinstance(operation, Ping) and self.answers_pings:
            self._send_auto_reply(Pong.make().raw, "PONG")

    def _send_liveness_request(self, stream: int | None) -> bool:
        self.send(Ping.make())
        return True

    def _is_liveness_reply(self, operation: Operation) -> bool:
        return isinstance(operation, Pong)

    def _liveness_replies_due(self, stream: int | None) -> int:
        return self._pongs_due

    def poll(
        self, deadline: float, skip: Collection[type[Any]] | None = None, stream: int | None = None
    ) -> Arrival | None:
        """As the base, without what ``is_sent_again``."""
        while True:
            arrival = super().poll(deadline, skip, stream)
            if arrival is None or self.is_sent_again is None:
                return arrival
            if not self.is_sent_again(self, arrival.operation):
                return arrival

    def take(self, within: float, skip: Collection[type[Operation]] | None = None) -> Operation | None:
        operation = super().take(within, skip)
        assert operation is None or isinstance(operation, Operation)
        return operation

    def send_bytes(self, data: bytes) -> None:
        """Write any bytes at all."""
        self.send(Raw.make(data))

    def expect(self, kind: type[Expected], *, within: float = DEFAULT_WITHIN_S, **fields: Any) -> Expected:
        """The next operation, which must be of ``kind`` and have these attribute values.

        ``status="404 No Messages"`` compares a status line. Raises ``Failed`` or ``Inconclusive``.
        """
        expected = " ".join([kind.verb, *(f"{name}={value!r}" for name, value in fields.items())])
        skip = tuple(unasked for unasked in self.unsolicited if unasked is not kind)

        def judge(operation: Operation) -> None:
            if different := field_differences(operation, kind, fields):
                self.mark_offending(operation)
                raise Failed(f"{self.name}: {'; '.join(different)}", expected=expected, actual=str(operation))

        operation = self.arrival(within, expected, skip, judge=judge).operation
        self._on_evidence()
        assert isinstance(operation, kind)
        return operation

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


def handshake(connection: NatsConnection, options: Callable[[], dict[str, Any]]) -> None:
    """INFO, CONNECT with ``options``, PING, PONG. Raises ``Failed`` if the target does not keep to it."""
    connection.info = connection.expect(Info, within=2.0)
    connection.send(Connect.make(options()), Ping.make())
    while not isinstance(operation := connection.arrival(2.0, "PONG after CONNECT").operation, Pong):
        if not isinstance(operation, Ok):
            raise Failed(
                f"{connection.name}: the handshake was refused",
                expected="PONG after CONNECT",
                actual=str(operation),
            )
