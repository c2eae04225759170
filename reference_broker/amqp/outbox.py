"""How the broker speaks: what one event sends to each connection, in one batch, and what it closes."""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.messages.message import PublishedMessage
from plumbline.reference_broker.outputs import CloseOutput, SendOutput
from plumbline.wire.amqp import SHAPES, FrameType, frame

__all__ = ["CloseOutput", "Outbox", "Output", "SendOutput"]

Output = SendOutput | CloseOutput


class Outbox:
    """The connections with something to send or to close."""

    def __init__(self) -> None:
        self._changed: list[AmqpClientConnection] = []

    def write(self, connection: AmqpClientConnection, data: bytes) -> None:
        """Send bytes at the end of this event."""
        if connection.ending:
            return
        if not connection.out:
            self._changed.append(connection)
        connection.out.append(data)

    def send(self, connection: AmqpClientConnection, number: int, method: str, *values: Any) -> None:
        """Send a method without content; ``values`` are all its arguments in their order."""
        self.write(connection, frame(FrameType.METHOD, number, SHAPES[method].encode_values(values)))

    def answer(self, channel: Channel, method: str, *values: Any) -> None:
        """Send a method without content on ``channel``."""
        self.send(channel.connection, channel.number, method, *values)

    def send_content(self, channel: Channel, method_frame: bytes, message: PublishedMessage) -> None:
        """Send a method frame and the content of ``message`` after it."""
        connection = channel.connection
        self.write(connection, method_frame + message.content(channel.number, connection.frame_max))

    def end(self, connection: AmqpClientConnection) -> None:
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
                outputs.append(SendOutput(connection.id, b"".join(connection.out)))
                connection.out.clear()
                connection.spoke = now
            if connection.ending:
                outputs.append(CloseOutput(connection.id))
        self._changed.clear()
        return outputs
