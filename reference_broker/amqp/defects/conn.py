"""Defects in connections: headers, logins, terms, the end."""

from __future__ import annotations

from collections.abc import Sequence

from plumbline.reference_broker.amqp.alarms import Alarm
from plumbline.reference_broker.amqp.connection import Connection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    Values,
    before_sending,
    handling,
    never_sent,
    on_faults,
    overlooked,
    refused_with,
)
from plumbline.reference_broker.amqp.errors import (
    CHANNEL_ERROR,
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    AmqpFault,
)
from plumbline.reference_broker.amqp.lifecycle import Handler, Phase
from plumbline.wire.amqp import AmqpError, Method, Operation, ProtocolHeader


@defect(
    "start-names-another-version",
    breaks=("AMQP-CONN-001",),
    summary="connection.start says version 0.8.",
)
def _(broker: Broker) -> None:
    before_sending(broker, "connection.start", lambda connection, number, values: (0, 8, *values[2:]))


@defect(
    "wrong-header-gets-no-header",
    breaks=("AMQP-CONN-002",),
    summary="After an unsupported protocol header the socket is closed without a word.",
)
def _(broker: Broker) -> None:
    def refuse_header(connection: Connection) -> None:
        connection.phase = Phase.REFUSED
        broker.outbox.end(connection)

    replace(broker.handshake, "refuse_header", refuse_header)


@defect(
    "start-before-the-header-is-whole",
    breaks=("AMQP-CONN-004",),
    summary="connection.start is sent after the first bytes of a protocol header.",
)
def _(broker: Broker) -> None:
    original = broker.decode

    def decode(
        connection: Connection, data: bytes | Sequence[Operation]
    ) -> tuple[Sequence[Operation], AmqpError | None]:
        operations, error = original(connection, data)
        if connection.phase is Phase.HEADER and not operations and connection.decoder.unfinished:
            return [ProtocolHeader.make()], error
        return operations, error

    replace(broker, "decode", decode)


@defect("no-english", breaks=("AMQP-CONN-007",), summary="The only locale that is offered is de_DE.")
def _(broker: Broker) -> None:
    before_sending(broker, "connection.start", lambda connection, number, values: (*values[:-1], "de_DE"))


@defect(
    "every-second-login-fails",
    breaks=("AMQP-CONN-008",),
    summary="Every second login is refused, however valid.",
)
def _(broker: Broker) -> None:
    original = broker.handshake.admits
    logins = [0]

    def admits(user: str, password: str) -> bool:
        logins[0] += 1
        return original(user, password) and logins[0] % 2 == 1

    replace(broker.handshake, "admits", admits)


@defect("any-password-is-right", breaks=("AMQP-CONN-009",), summary="A known user needs no right password.")
def _(broker: Broker) -> None:
    replace(broker.handshake, "admits", lambda user, password: user in broker.config.users)


@defect(
    "any-mechanism-will-do",
    breaks=("AMQP-CONN-011",),
    summary="A mechanism that was not offered is taken for PLAIN.",
)
def _(broker: Broker) -> None:
    original = broker.handshake.credentials

    def credentials(mechanism: str, response: str) -> tuple[str, str] | None:
        known = original(mechanism, response)
        if known is not None or mechanism in ("PLAIN", "AMQPLAIN"):
            return known
        return next(iter(broker.config.users.items()))

    replace(broker.handshake, "credentials", credentials)


@defect(
    "malformed-plain-is-let-in",
    breaks=("AMQP-CONN-012",),
    summary="A PLAIN response without its two separators logs the first user in.",
)
def _(broker: Broker) -> None:
    original = broker.handshake.credentials

    def credentials(mechanism: str, response: str) -> tuple[str, str] | None:
        known = original(mechanism, response)
        if known is None and mechanism == "PLAIN":
            return next(iter(broker.config.users.items()))
        return known

    replace(broker.handshake, "credentials", credentials)


def _accepts(broker: Broker, **kinder: bool) -> None:
    """Terms that break only the bounds that are named are accepted."""

    def terms_are_acceptable(*, channel_max: int, frame_max: int, heartbeat: int) -> bool:
        config = broker.config
        return (
            (channel_max > 0)
            and (channel_max <= config.channel_max or "channels" in kinder)
            and (frame_max >= 4096 or ("small" in kinder and frame_max > 0))
            and (frame_max <= config.frame_max or "large" in kinder)
        )

    replace(broker.handshake, "terms_are_acceptable", terms_are_acceptable)


@defect(
    "tune-proposes-tiny-frames",
    breaks=("AMQP-CONN-013",),
    summary="connection.tune proposes a frame_max of 1024.",
)
def _(broker: Broker) -> None:
    before_sending(broker, "connection.tune", lambda connection, number, values: (values[0], 1024, values[2]))
    _accepts(broker, small=True)


@defect(
    "larger-frames-may-be-agreed",
    breaks=("AMQP-CONN-014",),
    summary="connection.tune-ok with a frame_max above the proposal is accepted.",
)
def _(broker: Broker) -> None:
    _accepts(broker, large=True)


@defect(
    "tiny-frames-may-be-agreed",
    breaks=("AMQP-CONN-015",),
    summary="connection.tune-ok with a frame_max below 4096 is accepted.",
)
def _(broker: Broker) -> None:
    _accepts(broker, small=True)


@defect(
    "more-channels-may-be-agreed",
    breaks=("AMQP-CONN-017",),
    summary="connection.tune-ok with a channel_max above the proposal is accepted.",
)
def _(broker: Broker) -> None:
    _accepts(broker, channels=True)


@defect(
    "heartbeat-may-not-be-lowered",
    breaks=("AMQP-CONN-019",),
    summary="connection.tune-ok with another heartbeat than the proposed one, but 0, is refused.",
)
def _(broker: Broker) -> None:
    original = broker.handshake.terms_are_acceptable

    def terms_are_acceptable(*, channel_max: int, frame_max: int, heartbeat: int) -> bool:
        return heartbeat in (0, broker.config.heartbeat) and original(
            channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat
        )

    replace(broker.handshake, "terms_are_acceptable", terms_are_acceptable)


@defect(
    "every-second-open-fails",
    breaks=("AMQP-CONN-020",),
    summary="Every second connection.open is refused, though the virtual host is known.",
)
def _(broker: Broker) -> None:
    original = broker.handshake.open
    opens = [0]

    def open_vhost(connection: Connection, vhost: str) -> None:
        opens[0] += 1
        if opens[0] % 2 == 0:
            raise AmqpFault(NOT_ALLOWED, f"vhost {vhost} is closed")
        original(connection, vhost)

    replace(broker.handshake, "open", open_vhost)


@defect(
    "any-virtual-host-is-there",
    breaks=("AMQP-CONN-021",),
    summary="connection.open of an unknown virtual host opens the first one.",
)
def _(broker: Broker) -> None:
    original = broker.handshake.open

    def open_vhost(connection: Connection, vhost: str) -> None:
        original(connection, vhost if vhost in broker.vhosts else next(iter(broker.vhosts)))

    replace(broker.handshake, "open", open_vhost)


@defect(
    "handshake-in-any-order",
    breaks=("AMQP-CONN-022",),
    summary="connection.open is accepted before connection.tune-ok, and even before the login.",
)
def _(broker: Broker) -> None:
    def open_early(original: Handler, connection: Connection, operation: Method, now: int) -> None:
        connection.frame_max, connection.channel_max = broker.config.frame_max, broker.config.channel_max
        broker.handshake.on_connection_open(connection, operation, now)

    handling(broker, "connection.open", phase=Phase.START_OK)(open_early)
    handling(broker, "connection.open", phase=Phase.TUNE_OK)(open_early)


@defect(
    "second-handshake-is-overlooked",
    breaks=("AMQP-CONN-023",),
    summary="A second connection.start-ok or connection.open is ignored.",
)
def _(broker: Broker) -> None:
    overlooked(broker, code=CHANNEL_ERROR, method="connection.start-ok")
    overlooked(broker, code=CHANNEL_ERROR, method="connection.open")


@defect(
    "close-is-not-answered",
    breaks=("AMQP-CONN-024",),
    summary="A client's connection.close closes the socket without connection.close-ok.",
)
def _(broker: Broker) -> None:
    never_sent(broker, "connection.close-ok")


@defect(
    "socket-outlives-close-ok",
    breaks=("AMQP-CONN-025",),
    summary="After the client's connection.close-ok the socket stays open.",
)
def _(broker: Broker) -> None:
    broker.handlers[Phase.CLOSING] = dict(broker.handlers[Phase.REFUSED])
    original = broker.ring

    def ring(alarm: Alarm, connection: Connection, now: int) -> None:
        if alarm is not Alarm.END or connection.phase is not Phase.CLOSING:
            original(alarm, connection, now)

    replace(broker, "ring", ring)


@defect(
    "the-end-is-an-internal-error",
    breaks=("AMQP-ERRORS-002",),
    summary="When the broker stops it says 541 INTERNAL_ERROR.",
)
def _(broker: Broker) -> None:
    def change(connection: Connection, number: int, values: Values) -> Values:
        return (INTERNAL_ERROR, *values[1:]) if values[0] == CONNECTION_FORCED else values

    before_sending(broker, "connection.close", change)


@defect(
    "unknown-virtual-host-is-an-internal-error",
    breaks=("AMQP-ERRORS-012",),
    summary="530 NOT_ALLOWED is told as 541 INTERNAL_ERROR.",
)
def _(broker: Broker) -> None:
    refused_with(broker, INTERNAL_ERROR, code=NOT_ALLOWED)


@defect(
    "close-names-no-method",
    breaks=("AMQP-ERRORS-016", "AMQP-CHAN-011"),
    summary="channel.close names class 60, method 40, whatever method was wrong.",
)
def _(broker: Broker) -> None:
    def change(connection: Connection, operation: Method, fault: AmqpFault) -> AmqpFault:
        return AmqpFault(fault.code, fault.detail, cause=(60, 40))

    on_faults(broker, change)
