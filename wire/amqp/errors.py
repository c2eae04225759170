"""What a codec of AMQP 0-9-1 raises: a ``ProtocolError`` with the reply code to send to the peer.

Source: AMQP 0-9-1, section 4.2.3 ("General Frame Format") and 1.2 (reply codes).
"""

from __future__ import annotations

from typing import Any

from plumbline.wire.errors import ErrorKind, ProtocolError

FRAME_ERROR, SYNTAX_ERROR, COMMAND_INVALID, CHANNEL_ERROR, UNEXPECTED_FRAME = 501, 502, 503, 504, 505

# RabbitMQ answers 501 where the document has 502 for values that cannot be read.
_REPLY_CODES = {ErrorKind.UNEXPECTED_FRAME: UNEXPECTED_FRAME, ErrorKind.UNKNOWN_OPERATION: COMMAND_INVALID}


class AmqpError(ProtocolError):
    """Bytes that AMQP 0-9-1 does not allow: always an error of the whole connection.

    ``reply_code``  what connection.close would say: 501, 503 or 505
    ``channel``     the channel of the offending frame
    ``class_id``, ``method_id``   the method in whose frame or content it was, or 0 and 0
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        offset: int = 0,
        excerpt: bytes = b"",
        operations: tuple[Any, ...] = (),
        channel: int = 0,
        class_id: int = 0,
        method_id: int = 0,
    ) -> None:
        super().__init__(kind, message, offset=offset, excerpt=excerpt, operations=operations)
        self.channel = channel
        self.class_id = class_id
        self.method_id = method_id

    @property
    def reply_code(self) -> int:
        return _REPLY_CODES.get(self.kind, FRAME_ERROR)

    def located(self, offset: int, excerpt: bytes, operations: tuple[Any, ...]) -> AmqpError:
        """The same error with its evidence: where it was, in which bytes, after which operations."""
        return AmqpError(
            self.kind,
            self.message,
            offset=offset,
            excerpt=excerpt,
            operations=operations,
            channel=self.channel,
            class_id=self.class_id,
            method_id=self.method_id,
        )
