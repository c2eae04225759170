"""The timers of an AMQP broker: what for, and of which connection or queue."""

from __future__ import annotations

from enum import Enum

from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.reference_broker.timers import Timers


class AmqpTimer(Enum):
    """What a timer is for. Its key is the alarm and a connection's id or a queue."""

    HANDSHAKE = "handshake"
    END = "end"  # close the socket
    BEAT = "beat"  # send a heartbeat, unless something was sent
    SILENCE = "silence"  # the client should have been heard
    UNSETTLED = "unsettled"  # a delivery may have waited too long for its acknowledgement
    HEAD = "head"  # the first message of a queue expires
    UNUSED = "unused"  # a queue expires


OF_CONNECTIONS = (
    AmqpTimer.HANDSHAKE,
    AmqpTimer.END,
    AmqpTimer.BEAT,
    AmqpTimer.SILENCE,
    AmqpTimer.UNSETTLED,
)

Alarms = Timers[tuple[AmqpTimer, int | Queue]]
