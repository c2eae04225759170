"""Defects in frames: their ends, types and sizes, heartbeats, what the frame of a method holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plumbline.reference_broker.amqp.alarms import Alarm
from plumbline.reference_broker.amqp.connection import Connection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import forgives
from plumbline.wire.amqp import FRAME_OVERHEAD, FrameType, Heartbeat, Limits, Operation, frame
from plumbline.wire.errors import ErrorKind


@defect("AMQP-CONN-026", "AMQP-ERRORS-007")
def frame_end_is_not_checked(broker: Broker) -> None:
    """A frame that does not end with 0xCE is dropped, and the connection goes on."""
    forgives(broker, ErrorKind.FRAME_END)


@defect("AMQP-CONN-027")
def unknown_frame_types_are_dropped(broker: Broker) -> None:
    """A frame of an unknown type is dropped, and the connection goes on."""
    forgives(broker, ErrorKind.FRAME_TYPE)


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
    replace(broker.outbox, "largest_frame", lambda connection: 0)


@defect("AMQP-CONN-032")
def heartbeats_on_channel_1(broker: Broker) -> None:
    """Heartbeat frames are sent on channel 1."""

    def beat(connection: Connection, now: int) -> None:
        broker.outbox.write(connection, frame(FrameType.HEARTBEAT, 1, b""))
        broker.alarms.set((Alarm.BEAT, connection.id), now + connection.heartbeat // 2)

    replace(broker.heartbeats, "beat", beat)


@defect("AMQP-CONN-033")
def no_heartbeats(broker: Broker) -> None:
    """The server sends no heartbeats."""
    replace(broker.heartbeats, "beat", lambda connection, now: None)


@defect("AMQP-CONN-034")
def silence_is_not_noticed(broker: Broker) -> None:
    """A client that says nothing for two heartbeat intervals stays connected."""
    replace(broker.heartbeats, "check_silence", lambda connection, now: None)


@defect("AMQP-CONN-035")
def only_heartbeats_count(broker: Broker) -> None:
    """Methods of the client do not count as a sign of life."""
    original = broker.received

    def received(connection_id: int, data: bytes | Sequence[Operation], now: int) -> Any:
        connection = broker.connections.get(connection_id)
        before = connection.heard if connection is not None else 0
        outputs = original(connection_id, data, now)
        if connection is not None and connection.heartbeat and data != Heartbeat.make().raw:
            connection.heard = before
        return outputs

    replace(broker, "received", received)


@defect("AMQP-CONN-036")
def heartbeats_on_any_channel(broker: Broker) -> None:
    """A heartbeat on a channel is taken for one of the connection."""
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, words="a heartbeat on")


@defect("AMQP-CONN-038")
def cut_arguments_are_overlooked(broker: Broker) -> None:
    """A method frame that ends before its last argument is dropped."""
    forgives(broker, ErrorKind.ARGUMENTS)


@defect("AMQP-CONN-040")
def unknown_methods_are_overlooked(broker: Broker) -> None:
    """A frame with an unknown class or method is dropped, and the connection goes on."""
    forgives(broker, ErrorKind.UNKNOWN_OPERATION)
