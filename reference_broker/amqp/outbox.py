"""How the broker speaks: what one event sends to each connection, in one batch, and what it closes."""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel, Connection
from plumbline.reference_broker.amqp.messages.message import Message
from plumbline.reference_broker.outputs import Close, Send
from plumbline.wire.amqp import SHAPES, FrameType, frame

__all__ = ["Close", "Outbox", "Output", "Send"]

Output = Send | Close


class Outbox:
    """The connections with something to send or to close."""

    def __init__(self) -> None:
        self._changed: list[Connection] = []

    def write(self, connection: Connection, data: bytes) -> None:
        """Send bytes at the end of this event."""
        if connection.ending:
            return
        if not connection.out:
            self._changed.append(connection)
        connection.out.append(data)

    def send(self, connection: Connection, number: int, method: str, *values: Any) -> None:
        """Send a method without content; ``values`` are all its arguments in their order."""
        self.write(connection, frame(FrameType.METHOD, number, SHAPES[method].encode_values(values)))

    def answer(self, channel: Channel, method: str, *values: Any) -> None:
        """Send a method without content on ``channel``."""
        self.send(channel.connection, channel.number, method, *values)

    def send_content(self, channel: Channel, method_frame: bytes, message: Message) -> None:
        """Send a method frame and the content of ``message`` after it."""
        connection = channel.connection
        self.write(connection, method_frame + message.content(channel.number, connection.frame_max))

    def end(self, connection: Connection) -> None:
        """Close the socket once everything is written."""
        if not connection.ending:
            connection.ending = True
            if not connection.out:
                self._changed.append(connection)

    def take(self, now: int) -> list[Output]:
        """What there is to send and close since the last call."""
        outputs: list[Output] = []
        for connection in self._changed:
            if connection.out:
                outputs.append(Send(connection.id, b"".join(connection.out)))
                connection.out.clear()
                connection.spoke = now
            if connection.ending:
                outputs.append(Close(connection.id))
        self._changed.clear()
        return outputs
