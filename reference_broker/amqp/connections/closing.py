"""How connections end: connection.close of either side, errors, bytes that are not AMQP.

Sources: AMQP 0-9-1, 1.2 ("Reply codes"), 4.10.2 (closing); RabbitMQ, "Authentication Failure Notifications".
"""

from __future__ import annotations

from plumbline.reference_broker.amqp.alarms import Alarms, AmqpTimer
from plumbline.reference_broker.amqp.config import NS
from plumbline.reference_broker.amqp.connections.channels import Channels
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection
from plumbline.reference_broker.amqp.errors import INTERNAL_ERROR, AmqpReplyError, reply_text
from plumbline.reference_broker.amqp.lifecycle import HANDSHAKE, Phase
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.wire.amqp import PROTOCOL_HEADER, AmqpError, Decoder, Method, Sender
from plumbline.wire.errors import ErrorKind


class Closing:
    """The ends of connections, and of channels by an error.

    ``refusal_delay`` and ``close_timeout`` are seconds.
    """

    def __init__(
        self,
        channels: Channels,
        alarms: Alarms,
        outbox: Outbox,
        *,
        refusal_delay: float,
        close_timeout: float,
    ) -> None:
        self.channels = channels
        self.alarms = alarms
        self.outbox = outbox
        self.refusal_delay = refusal_delay
        self.close_timeout = close_timeout

    def on_connection_close(self, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        """connection.close of a client: what was its own is gone before it gets close-ok."""
        self.channels.leave_all(connection, now)
        self.outbox.send(connection, 0, "connection.close-ok")
        connection.phase = Phase.REFUSED
        self.outbox.end(connection)

    def on_connection_close_ok(self, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        """connection.close-ok."""
        self.outbox.end(connection)

    def close(
        self,
        connection: AmqpClientConnection,
        code: int,
        detail: str,
        cause: tuple[int, int],
        wait: float,
        now: int,
    ) -> None:
        """connection.close of the broker; ``wait``: how many seconds its close-ok may take."""
        self.channels.leave_all(connection, now)
        connection.phase = Phase.CLOSING
        self.outbox.send(connection, 0, "connection.close", code, reply_text(code, detail), *cause)
        self.alarms.set((AmqpTimer.END, connection.id), now + round(wait * NS))

    def close_without_reply(self, connection: AmqpClientConnection, now: int) -> None:
        """Send nothing more. The socket is closed a while later, so that guessing takes its time."""
        connection.phase = Phase.REFUSED
        self.alarms.set((AmqpTimer.END, connection.id), now + round(self.refusal_delay * NS))

    def fail(
        self, connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError, now: int
    ) -> None:
        """Close what has to be closed, and name the method that was wrong."""
        cause = fault.cause or (operation.shape.class_id, operation.shape.method_id)
        if fault.is_hard:
            self.close(connection, fault.code, fault.detail, cause, self.close_timeout, now)
        else:
            self.channels.close(connection.channels[operation.channel], fault.code, fault.detail, cause, now)

    def handle_malformed(self, connection: AmqpClientConnection, error: AmqpError, now: int) -> None:
        """Bytes that are not AMQP. Before login the client gets no reason; later an answer may still come."""
        connection.decoder = self.new_decoder(connection)
        if connection.phase is Phase.RUNNING:
            code = INTERNAL_ERROR if error.kind is ErrorKind.PROPERTIES else error.reply_code
            cause = (error.class_id, error.method_id)
            self.close(connection, code, error.message, cause, self.refusal_delay, now)
        elif connection.phase in HANDSHAKE:
            self.close_without_reply(connection, now)

    def new_decoder(self, connection: AmqpClientConnection) -> Decoder:
        """For what comes after frames that could not be read."""
        decoder = Decoder(Sender.CLIENT, connection.decoder.limits)
        decoder.feed(PROTOCOL_HEADER)
        return decoder
