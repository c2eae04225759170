"""Defects in messages on their way: payloads, replies, order, segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import Operation, Pub, Sub, Unsub

BURST = 20  # messages in one segment that make a burst


def _before_pub(broker: Broker, change: Callable[[NatsClientConnection, Pub], Pub | None]) -> None:
    """Each PUB is replaced before it is handled, or dropped."""
    original = broker.on_pub

    def published(connection: NatsClientConnection, operation: Pub, now: int) -> None:
        changed = change(connection, operation)
        if changed is not None:
            original(connection, changed, now)

    replace(broker, "on_pub", published)


@defect("CORE-018")
def empty_payload_is_lost(broker: Broker) -> None:
    """A PUB of zero bytes without reply is lost."""

    def change(connection: NatsClientConnection, operation: Pub) -> Pub | None:
        return None if len(operation.args) == 2 and not operation.payload else operation

    _before_pub(broker, change)


@defect("CORE-018", "CORE-098")
def requests_without_payload_lose_their_reply(broker: Broker) -> None:
    """A PUB of zero bytes is delivered without its reply subject."""

    def change(connection: NatsClientConnection, operation: Pub) -> Pub:
        if len(operation.args) == 3 and not operation.payload:
            return Pub.make(operation.subject, b"")
        return operation

    _before_pub(broker, change)


@defect("CORE-098")
def reply_is_lost(broker: Broker) -> None:
    """MSG lacks the reply subject that the publisher gave."""

    def change(connection: NatsClientConnection, operation: Pub) -> Pub:
        route = broker.router.route(operation.args[0])
        if len(operation.args) == 3 and (route.plain or route.groups):
            return Pub.make(operation.subject, operation.payload)
        return operation

    _before_pub(broker, change)


@defect("CORE-101")
def nul_bytes_become_blanks(broker: Broker) -> None:
    """NUL bytes in a payload become blanks."""

    def change(connection: NatsClientConnection, operation: Pub) -> Pub:
        if b"\0" not in operation.payload:
            return operation
        raw = operation.raw[: operation.head] + operation.raw[operation.head :].replace(b"\0", b" ")
        return Pub(raw, operation.args, operation.head)

    _before_pub(broker, change)


def _before_operations(broker: Broker, change: Callable[[Sequence[Operation]], Sequence[Operation]]) -> None:
    """What came in one segment is rearranged before it is handled."""
    original = broker.decode

    def decoded(
        connection: NatsClientConnection, data: bytes | Sequence[Operation]
    ) -> tuple[Sequence[Operation], ProtocolError | None]:
        operations, error = original(connection, data)
        return change(operations), error

    replace(broker, "decode", decoded)


@defect("CORE-100")
def bursts_are_out_of_order(broker: Broker) -> None:
    """Of 20 or more messages in one segment, two on the same subject change places."""

    def change(operations: Sequence[Operation]) -> Sequence[Operation]:
        if sum(isinstance(one, Pub) for one in operations) < BURST:
            return operations
        changed = list(operations)
        first = next(place for place, one in enumerate(changed) if isinstance(one, Pub))
        for place, one in enumerate(changed[first + 1 :], first + 1):
            if isinstance(one, Pub) and one.args[0] == changed[first].args[0]:
                changed[first], changed[place] = one, changed[first]
                break
        return changed

    _before_operations(broker, change)


@defect("CORE-103")
def unsub_waits_for_the_end_of_its_segment(broker: Broker) -> None:
    """UNSUB in the segment of its SUB is handled after everything else there."""

    def change(operations: Sequence[Operation]) -> Sequence[Operation]:
        here = {one.sid for one in operations if isinstance(one, Sub)}
        return sorted(
            operations, key=lambda one: isinstance(one, Unsub) and len(one.args) == 1 and one.sid in here
        )

    _before_operations(broker, change)


@method_defect(Broker.decode, "CORE-102")
def message_cut_inside_its_last_line_end_is_lost(
    broker: Broker, connection: NatsClientConnection, data: bytes | Sequence[Operation]
) -> tuple[Sequence[Operation], ProtocolError | None]:
    """A PUB whose last CR and LF come in different segments is lost."""
    cut = isinstance(data, bytes) and data[:1] == b"\n" and connection.decoder.unfinished[-1:] == b"\r"
    operations, error = Broker.decode(broker, connection, data)
    lost = cut and len(operations) > 0 and isinstance(operations[0], Pub)
    return operations[lost:], error
