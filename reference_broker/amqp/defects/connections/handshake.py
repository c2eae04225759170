"""Defects in connections: headers, terms, heartbeats, the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plumbline.reference_broker.amqp.alarms import AmqpTimer
from plumbline.reference_broker.amqp.connections.blocking import Blocking
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_sending,
    forgives,
    handling,
)
from plumbline.reference_broker.amqp.errors import (
    NOT_ALLOWED,
    AmqpReplyError,
)
from plumbline.reference_broker.amqp.lifecycle import Handler, Phase
from plumbline.wire.amqp import (
    FRAME_OVERHEAD,
    AmqpError,
    FrameType,
    Heartbeat,
    Limits,
    Method,
    Operation,
    ProtocolHeader,
    frame,
)
from plumbline.wire.errors import ErrorKind


@defect("AMQP-CONN-002")
def wrong_header_gets_no_header(broker: Broker) -> None:
    """After an unsupported protocol header the socket is closed without a word."""

    def refuse_header(connection: AmqpClientConnection) -> None:
        connection.phase = Phase.REFUSED
        broker.outbox.end(connection)

    replace(broker.handshake, "refuse_header", refuse_header)


@defect("AMQP-CONN-004")
def start_before_the_header_is_whole(broker: Broker) -> None:
    """connection.start is sent after the first bytes of a protocol header."""
    original = broker.decode

    def decode(
        connection: AmqpClientConnection, data: bytes | Sequence[Operation]
    ) -> tuple[Sequence[Operation], AmqpError | None]:
        operations, error = original(connection, data)
        if connection.phase is Phase.HEADER and not operations and connection.decoder.unfinished:
            return [ProtocolHeader.make()], error
        return operations, error

    replace(broker, "decode", decode)


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

    def open_vhost(connection: AmqpClientConnection, vhost: str) -> None:
        opens[0] += 1
        if opens[0] % 2 == 0:
            raise AmqpReplyError(NOT_ALLOWED, f"vhost {vhost} is closed")
        original(connection, vhost)

    replace(broker.handshake, "open", open_vhost)


@defect("AMQP-CONN-021")
def any_virtual_host_is_there(broker: Broker) -> None:
    """connection.open of an unknown virtual host opens the first one."""
    original = broker.handshake.open

    def open_vhost(connection: AmqpClientConnection, vhost: str) -> None:
        original(connection, vhost if vhost in broker.vhosts else next(iter(broker.vhosts)))

    replace(broker.handshake, "open", open_vhost)


@defect("AMQP-CONN-022")
def handshake_in_any_order(broker: Broker) -> None:
    """connection.open is accepted before connection.tune-ok, and even before the login."""

    def open_early(original: Handler, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        connection.frame_max, connection.channel_max = broker.config.frame_max, broker.config.channel_max
        broker.handshake.on_connection_open(connection, operation, now)

    handling(broker, "connection.open", phase=Phase.START_OK)(open_early)
    handling(broker, "connection.open", phase=Phase.TUNE_OK)(open_early)


@defect("AMQP-CONN-025")
def socket_outlives_close_ok(broker: Broker) -> None:
    """After the client's connection.close-ok the socket stays open."""
    broker.handlers[Phase.CLOSING] = dict(broker.handlers[Phase.REFUSED])
    original = broker.on_timer

    def ring(alarm: AmqpTimer, connection: AmqpClientConnection, now: int) -> None:
        if alarm is not AmqpTimer.END or connection.phase is not Phase.CLOSING:
            original(alarm, connection, now)

    replace(broker, "on_timer", ring)


@defect("AMQP-CONN-028")
def large_frames_are_taken(broker: Broker) -> None:
    """Frames above the agreed frame_max are accepted; bodies without a method are dropped."""
    replace(broker.handshake, "frame_limits", lambda frame_max: Limits(frame_max=16 * frame_max))
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, words="frame type 3 where a method")


@defect("AMQP-CONN-029")
def frames_of_exactly_frame_max_are_refused(broker: Broker) -> None:
    """A frame of exactly frame_max octets is refused as too large."""
    replace(
        broker.handshake, "frame_limits", lambda frame_max: Limits(frame_max=frame_max - FRAME_OVERHEAD - 1)
    )


@defect("AMQP-CONN-030")
def bodies_are_not_split(broker: Broker) -> None:
    """A body goes out in one frame, however small the client's frame_max is."""

    @handling(broker, "connection.tune-ok", phase=Phase.TUNE_OK)
    def tune_ok(original: Handler, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        original(connection, operation, now)
        connection.frame_max = 0


@defect("AMQP-CONN-032")
def heartbeats_on_channel_1(broker: Broker) -> None:
    """Heartbeat frames are sent on channel 1."""

    def beat(connection: AmqpClientConnection, now: int) -> None:
        broker.outbox.write(connection, frame(FrameType.HEARTBEAT, 1, b""))
        broker.alarms.set((AmqpTimer.BEAT, connection.id), now + connection.heartbeat // 2)

    replace(broker.heartbeats, "send_heartbeat", beat)


@defect("AMQP-CONN-033")
def no_heartbeats(broker: Broker) -> None:
    """The server sends no heartbeats."""
    replace(broker.heartbeats, "send_heartbeat", lambda connection, now: None)


@defect("AMQP-CONN-034")
def silence_is_not_noticed(broker: Broker) -> None:
    """A client that says nothing for two heartbeat intervals stays connected."""
    replace(broker.heartbeats, "check_heartbeat", lambda connection, now: None)


@defect("AMQP-CONN-035")
def only_heartbeats_count(broker: Broker) -> None:
    """Methods of the client do not count as a sign of life."""
    original = broker.on_data

    def received(connection_id: int, data: bytes | Sequence[Operation], now: int) -> Any:
        connection = broker.connections.get(connection_id)
        before = connection.last_received if connection is not None else 0
        outputs = original(connection_id, data, now)
        if connection is not None and connection.heartbeat and data != Heartbeat.make().raw:
            connection.last_received = before
        return outputs

    replace(broker, "on_data", received)


@defect("AMQP-CONN-003")
def old_headers_start_the_new_version(broker: Broker) -> None:
    """Whatever version a client asks for, connection.start says 0.9."""
    before_sending(
        broker,
        "connection.start",
        lambda connection, number, values: (0, 9, *values[2:]),
    )


def _claims_not(broker: Broker, capability: str) -> None:
    properties: dict[str, Any] = dict(broker.handshake.server_properties)
    claimed = {**properties["capabilities"], capability: False}
    broker.handshake.server_properties = {**properties, "capabilities": claimed}


@defect("AMQP-CONN-054")
def confirms_are_not_claimed(broker: Broker) -> None:
    """The capability publisher_confirms is false, and there are confirms."""
    _claims_not(broker, "publisher_confirms")


@defect("AMQP-CONN-054")
def exchange_bindings_are_not_claimed(broker: Broker) -> None:
    """The capability exchange_exchange_bindings is false, and exchanges can be bound."""
    _claims_not(broker, "exchange_exchange_bindings")


@defect("AMQP-CONN-054")
def nack_is_not_claimed(broker: Broker) -> None:
    """The capability basic.nack is false, and there is basic.nack."""
    _claims_not(broker, "basic.nack")


@defect("AMQP-CONN-054")
def cancel_notifications_are_not_claimed(broker: Broker) -> None:
    """The capability consumer_cancel_notify is false, and basic.cancel is sent."""
    _claims_not(broker, "consumer_cancel_notify")


@defect("AMQP-CONN-054")
def blocked_connections_are_not_claimed(broker: Broker) -> None:
    """The capability connection.blocked is false, and connection.blocked is sent."""
    _claims_not(broker, "connection.blocked")


@defect("AMQP-CONN-054")
def consumer_priorities_are_not_claimed(broker: Broker) -> None:
    """The capability consumer_priorities is false, and consumers have priorities."""
    _claims_not(broker, "consumer_priorities")


@defect("AMQP-CONN-054")
def authentication_failures_are_not_claimed(broker: Broker) -> None:
    """The capability authentication_failure_close is false, and wrong credentials are answered."""
    _claims_not(broker, "authentication_failure_close")


@defect("AMQP-CONN-054")
def prefetch_of_consumers_is_not_claimed(broker: Broker) -> None:
    """The capability per_consumer_qos is false, and each consumer has a prefetch of its own."""
    _claims_not(broker, "per_consumer_qos")


@defect("AMQP-CONN-054")
def direct_replies_are_not_claimed(broker: Broker) -> None:
    """The capability direct_reply_to is false, and there are direct replies."""
    _claims_not(broker, "direct_reply_to")


@defect("AMQP-CONN-055")
def opening_cannot_be_given_up(broker: Broker) -> None:
    """connection.close is ignored until connection.open."""
    for phase in (Phase.TUNE_OK, Phase.OPEN):

        @handling(broker, "connection.close", phase=phase)
        def handle(original: Handler, connection: Any, operation: Method, now: int) -> None:
            pass


@defect("AMQP-CONN-025")
def late_methods_delay_the_end(broker: Broker) -> None:
    """A method behind the broker's connection.close has the connection stay open a while."""

    @handling(broker, "channel.open", phase=Phase.CLOSING)
    def handle(original: Handler, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        broker.closing.close_without_reply(connection, now)


@defect("AMQP-CHAN-006")
def one_channel_more_is_open(broker: Broker) -> None:
    """One channel more than channel_max can be open."""
    original = broker.channels.open

    def open_channel(connection: AmqpClientConnection, number: int) -> None:
        connection.channel_max += 1
        try:
            original(connection, number)
        finally:
            connection.channel_max -= 1

    replace(broker.channels, "open", open_channel)


@defect("AMQP-CONN-049")
def everybody_waits_during_an_alarm(broker: Broker) -> None:
    """During an alarm every method of every client waits."""
    original = broker.handle_all

    def handle_all(connection: AmqpClientConnection, operations: Sequence[Operation], now: int) -> None:
        if broker.blocking.reason is None or not operations:
            original(connection, operations, now)
        else:
            connection.held_operations = list(operations)

    replace(broker, "handle_all", handle_all)


@defect("AMQP-CONN-056")
def small_frames_are_too_small(broker: Broker) -> None:
    """A frame_max of 4096 is refused."""
    original = broker.handshake.terms_are_acceptable

    def terms_are_acceptable(*, channel_max: int, frame_max: int, heartbeat: int) -> bool:
        return frame_max > 4096 and original(
            channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat
        )

    replace(broker.handshake, "terms_are_acceptable", terms_are_acceptable)


@defect("AMQP-CONN-002")
def the_second_header_counts(broker: Broker) -> None:
    """A protocol header right behind one that is not supported is answered, too."""
    original = broker.handshake.refuse_header

    def refuse_header(connection: AmqpClientConnection) -> None:
        original(connection)
        connection.ending = False
        connection.phase = Phase.HEADER

    replace(broker.handshake, "refuse_header", refuse_header)


@defect("AMQP-CONN-044")
def newcomers_are_not_notified(broker: Broker) -> None:
    """Only clients that were there before the alarm are sent connection.blocked."""
    unaware = Blocking(broker.outbox)  # which never hears of an alarm
    replace(broker.handshake, "blocking", unaware)
