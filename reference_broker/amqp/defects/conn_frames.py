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


@defect(
    "frame-end-is-not-checked",
    breaks=("AMQP-CONN-026", "AMQP-ERRORS-007"),
    summary="A frame that does not end with 0xCE is dropped, and the connection goes on.",
)
def _(broker: Broker) -> None:
    forgives(broker, ErrorKind.FRAME_END)


@defect(
    "unknown-frame-types-are-dropped",
    breaks=("AMQP-CONN-027",),
    summary="A frame of an unknown type is dropped, and the connection goes on.",
)
def _(broker: Broker) -> None:
    forgives(broker, ErrorKind.FRAME_TYPE)


@defect(
    "large-frames-are-taken",
    breaks=("AMQP-CONN-028",),
    summary="Frames above the agreed frame_max are accepted; bodies without a method are dropped.",
)
def _(broker: Broker) -> None:
    replace(broker.handshake, "frame_limits", lambda frame_max: Limits(frame_max=16 * frame_max))
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, words="frame type 3 where a method")


@defect(
    "frames-of-exactly-frame-max-are-refused",
    breaks=("AMQP-CONN-029",),
    summary="A frame of exactly frame_max octets is refused as too large.",
)
def _(broker: Broker) -> None:
    replace(
        broker.handshake, "frame_limits", lambda frame_max: Limits(frame_max=frame_max - FRAME_OVERHEAD - 1)
    )


@defect(
    "bodies-are-not-split",
    breaks=("AMQP-CONN-030",),
    summary="A body goes out in one frame, however small the client's frame_max is.",
)
def _(broker: Broker) -> None:
    replace(broker.outbox, "largest_frame", lambda connection: 0)


@defect(
    "heartbeats-on-channel-1",
    breaks=("AMQP-CONN-032",),
    summary="Heartbeat frames are sent on channel 1.",
)
def _(broker: Broker) -> None:
    def beat(connection: Connection, now: int) -> None:
        broker.outbox.write(connection, frame(FrameType.HEARTBEAT, 1, b""))
        broker.alarms.set((Alarm.BEAT, connection.id), now + connection.heartbeat // 2)

    replace(broker.heartbeats, "beat", beat)


@defect("no-heartbeats", breaks=("AMQP-CONN-033",), summary="The server sends no heartbeats.")
def _(broker: Broker) -> None:
    replace(broker.heartbeats, "beat", lambda connection, now: None)


@defect(
    "silence-is-not-noticed",
    breaks=("AMQP-CONN-034",),
    summary="A client that says nothing for two heartbeat intervals stays connected.",
)
def _(broker: Broker) -> None:
    replace(broker.heartbeats, "check_silence", lambda connection, now: None)


@defect(
    "only-heartbeats-count",
    breaks=("AMQP-CONN-035",),
    summary="Methods of the client do not count as a sign of life.",
)
def _(broker: Broker) -> None:
    original = broker.received

    def received(connection_id: int, data: bytes | Sequence[Operation], now: int) -> Any:
        connection = broker.connections.get(connection_id)
        before = connection.heard if connection is not None else 0
        outputs = original(connection_id, data, now)
        if connection is not None and connection.heartbeat and data != Heartbeat.make().raw:
            connection.heard = before
        return outputs

    replace(broker, "received", received)


@defect(
    "heartbeats-on-any-channel",
    breaks=("AMQP-CONN-036",),
    summary="A heartbeat on a channel is taken for one of the connection.",
)
def _(broker: Broker) -> None:
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, words="a heartbeat on")


@defect(
    "cut-arguments-are-overlooked",
    breaks=("AMQP-CONN-038",),
    summary="A method frame that ends before its last argument is dropped.",
)
def _(broker: Broker) -> None:
    forgives(broker, ErrorKind.ARGUMENTS)


@defect(
    "unknown-methods-are-overlooked",
    breaks=("AMQP-CONN-040",),
    summary="A frame with an unknown class or method is dropped, and the connection goes on.",
)
def _(broker: Broker) -> None:
    forgives(broker, ErrorKind.UNKNOWN_OPERATION)
