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


@defect("AMQP-CONN-001")
def start_names_another_version(broker: Broker) -> None:
    """connection.start says version 0.8."""
    before_sending(broker, "connection.start", lambda connection, number, values: (0, 8, *values[2:]))


@defect("AMQP-CONN-002")
def wrong_header_gets_no_header(broker: Broker) -> None:
    """After an unsupported protocol header the socket is closed without a word."""

    def refuse_header(connection: Connection) -> None:
        connection.phase = Phase.REFUSED
        broker.outbox.end(connection)

    replace(broker.handshake, "refuse_header", refuse_header)


@defect("AMQP-CONN-004")
def start_before_the_header_is_whole(broker: Broker) -> None:
    """connection.start is sent after the first bytes of a protocol header."""
    original = broker.decode

    def decode(
        connection: Connection, data: bytes | Sequence[Operation]
    ) -> tuple[Sequence[Operation], AmqpError | None]:
        operations, error = original(connection, data)
        if connection.phase is Phase.HEADER and not operations and connection.decoder.unfinished:
            return [ProtocolHeader.make()], error
        return operations, error

    replace(broker, "decode", decode)


@defect("AMQP-CONN-007")
def no_english(broker: Broker) -> None:
    """The only locale that is offered is de_DE."""
    before_sending(broker, "connection.start", lambda connection, number, values: (*values[:-1], "de_DE"))


@defect("AMQP-CONN-008")
def every_second_login_fails(broker: Broker) -> None:
    """Every second login is refused, however valid."""
    original = broker.handshake.admits
    logins = [0]

    def admits(user: str, password: str) -> bool:
        logins[0] += 1
        return original(user, password) and logins[0] % 2 == 1

    replace(broker.handshake, "admits", admits)


@defect("AMQP-CONN-009")
def any_password_is_right(broker: Broker) -> None:
    """A known user needs no right password."""
    replace(broker.handshake, "admits", lambda user, password: user in broker.config.users)


@defect("AMQP-CONN-011")
def any_mechanism_will_do(broker: Broker) -> None:
    """A mechanism that was not offered is taken for PLAIN."""
    original = broker.handshake.credentials

    def credentials(mechanism: str, response: str) -> tuple[str, str] | None:
        known = original(mechanism, response)
        if known is not None or mechanism in ("PLAIN", "AMQPLAIN"):
            return known
        return next(iter(broker.config.users.items()))

    replace(broker.handshake, "credentials", credentials)


@defect("AMQP-CONN-012")
def malformed_plain_is_let_in(broker: Broker) -> None:
    """A PLAIN response without its two separators logs the first user in."""
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


@defect("AMQP-CONN-013")
def tune_proposes_tiny_frames(broker: Broker) -> None:
    """connection.tune proposes a frame_max of 1024."""
    before_sending(broker, "connection.tune", lambda connection, number, values: (values[0], 1024, values[2]))
    _accepts(broker, small=True)


@defect("AMQP-CONN-014")
def larger_frames_may_be_agreed(broker: Broker) -> None:
    """connection.tune-ok with a frame_max above the proposal is accepted."""
    _accepts(broker, large=True)


@defect("AMQP-CONN-015")
def tiny_frames_may_be_agreed(broker: Broker) -> None:
    """connection.tune-ok with a frame_max below 4096 is accepted."""
    _accepts(broker, small=True)


@defect("AMQP-CONN-017")
def more_channels_may_be_agreed(broker: Broker) -> None:
    """connection.tune-ok with a channel_max above the proposal is accepted."""
    _accepts(broker, channels=True)


@defect("AMQP-CONN-019")
def heartbeat_may_not_be_lowered(broker: Broker) -> None:
    """connection.tune-ok with another heartbeat than the proposed one, but 0, is refused."""
    original = broker.handshake.terms_are_acceptable

    def terms_are_acceptable(*, channel_max: int, frame_max: int, heartbeat: int) -> bool:
        return heartbeat in (0, broker.config.heartbeat) and original(
            channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat
        )

    replace(broker.handshake, "terms_are_acceptable", terms_are_acceptable)


@defect("AMQP-CONN-020")
def every_second_open_fails(broker: Broker) -> None:
    """Every second connection.open is refused, though the virtual host is known."""
    original = broker.handshake.open
    opens = [0]

    def open_vhost(connection: Connection, vhost: str) -> None:
        opens[0] += 1
        if opens[0] % 2 == 0:
            raise AmqpFault(NOT_ALLOWED, f"vhost {vhost} is closed")
        original(connection, vhost)

    replace(broker.handshake, "open", open_vhost)


@defect("AMQP-CONN-021")
def any_virtual_host_is_there(broker: Broker) -> None:
    """connection.open of an unknown virtual host opens the first one."""
    original = broker.handshake.open

    def open_vhost(connection: Connection, vhost: str) -> None:
        original(connection, vhost if vhost in broker.vhosts else next(iter(broker.vhosts)))

    replace(broker.handshake, "open", open_vhost)


@defect("AMQP-CONN-022")
def handshake_in_any_order(broker: Broker) -> None:
    """connection.open is accepted before connection.tune-ok, and even before the login."""

    def open_early(original: Handler, connection: Connection, operation: Method, now: int) -> None:
        connection.frame_max, connection.channel_max = broker.config.frame_max, broker.config.channel_max
        broker.handshake.on_connection_open(connection, operation, now)

    handling(broker, "connection.open", phase=Phase.START_OK)(open_early)
    handling(broker, "connection.open", phase=Phase.TUNE_OK)(open_early)


@defect("AMQP-CONN-023")
def second_handshake_is_overlooked(broker: Broker) -> None:
    """A second connection.start-ok or connection.open is ignored."""
    overlooked(broker, code=CHANNEL_ERROR, method="connection.start-ok")
    overlooked(broker, code=CHANNEL_ERROR, method="connection.open")


@defect("AMQP-CONN-024")
def close_is_not_answered(broker: Broker) -> None:
    """A client's connection.close closes the socket without connection.close-ok."""
    never_sent(broker, "connection.close-ok")


@defect("AMQP-CONN-025")
def socket_outlives_close_ok(broker: Broker) -> None:
    """After the client's connection.close-ok the socket stays open."""
    broker.handlers[Phase.CLOSING] = dict(broker.handlers[Phase.REFUSED])
    original = broker.ring

    def ring(alarm: Alarm, connection: Connection, now: int) -> None:
        if alarm is not Alarm.END or connection.phase is not Phase.CLOSING:
            original(alarm, connection, now)

    replace(broker, "ring", ring)


@defect("AMQP-ERRORS-002")
def the_end_is_an_internal_error(broker: Broker) -> None:
    """When the broker stops it says 541 INTERNAL_ERROR."""

    def change(connection: Connection, number: int, values: Values) -> Values:
        return (INTERNAL_ERROR, *values[1:]) if values[0] == CONNECTION_FORCED else values

    before_sending(broker, "connection.close", change)


@defect("AMQP-ERRORS-012")
def unknown_virtual_host_is_an_internal_error(broker: Broker) -> None:
    """530 NOT_ALLOWED is told as 541 INTERNAL_ERROR."""
    refused_with(broker, INTERNAL_ERROR, code=NOT_ALLOWED)


@defect("AMQP-ERRORS-016", "AMQP-CHAN-011")
def close_names_no_method(broker: Broker) -> None:
    """channel.close names class 60, method 40, whatever method was wrong."""

    def change(connection: Connection, operation: Method, fault: AmqpFault) -> AmqpFault:
        return AmqpFault(fault.code, fault.detail, cause=(60, 40))

    on_faults(broker, change)
