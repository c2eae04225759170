"""Heartbeats: the broker sends them, and closes connections that are silent for too long.

Source: AMQP 0-9-1, 4.2.7 ("Heartbeats").
"""

from __future__ import annotations

from plumbline.reference_broker.amqp.alarms import Alarms, AmqpTimer
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.wire.amqp import Heartbeat

SILENT_INTERVALS = 2  # AMQP 0-9-1, 4.2.7
BEATS_PER_INTERVAL = 2
HEARTBEAT = Heartbeat.make().raw


class Heartbeats:
    """Those of all connections that agreed on an interval."""

    def __init__(self, alarms: Alarms, outbox: Outbox) -> None:
        self.alarms = alarms
        self.outbox = outbox

    def start(self, connection: AmqpClientConnection, now: int) -> None:
        """From now on, if there is an interval."""
        if connection.heartbeat:
            self.alarms.set((AmqpTimer.BEAT, connection.id), now + connection.heartbeat // BEATS_PER_INTERVAL)
            self.alarms.set((AmqpTimer.SILENCE, connection.id), now + SILENT_INTERVALS * connection.heartbeat)

    def send_heartbeat(self, connection: AmqpClientConnection, now: int) -> None:
        """Send a heartbeat, unless something else was sent."""
        half = connection.heartbeat // BEATS_PER_INTERVAL
        if now - connection.spoke >= half:
            self.outbox.write(connection, HEARTBEAT)
            connection.spoke = now
        self.alarms.set((AmqpTimer.BEAT, connection.id), connection.spoke + half)

    def check_heartbeat(self, connection: AmqpClientConnection, now: int) -> None:
        """End a connection that sent nothing for two intervals."""
        until = connection.last_received + SILENT_INTERVALS * connection.heartbeat
        if now < until or connection.is_slow:
            self.alarms.set((AmqpTimer.SILENCE, connection.id), max(until, now + connection.heartbeat))
        else:
            self.outbox.end(connection)
