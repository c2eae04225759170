"""AMQP exceptions: a soft error closes the channel, a hard error the connection.

Source: AMQP 0-9-1, section 1.2 ("Reply codes"); texts as RabbitMQ words them.
"""

from __future__ import annotations

CONNECTION_FORCED = 320
ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, PRECONDITION_FAILED = 403, 404, 405, 406
FRAME_ERROR, SYNTAX_ERROR, COMMAND_INVALID, CHANNEL_ERROR, UNEXPECTED_FRAME = 501, 502, 503, 504, 505
NOT_ALLOWED, NOT_IMPLEMENTED, INTERNAL_ERROR = 530, 540, 541
NO_ROUTE = 312

NAMES = {
    CONNECTION_FORCED: "CONNECTION_FORCED",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}
_MAX_REPLY_TEXT = 255  # bytes of a short string


class AmqpReplyError(Exception):
    """What a client did that it may not do. Its code decides what is closed."""

    def __init__(self, code: int, detail: str, cause: tuple[int, int] | None = None) -> None:
        self.code = code
        self.detail = detail
        self.cause = cause  # class and method to name instead of the client's
        super().__init__(code, detail)

    @property
    def is_hard(self) -> bool:
        """Whether the whole connection ends. AMQP 0-9-1, 1.2: 403 to 406 are channel errors."""
        return not ACCESS_REFUSED <= self.code <= PRECONDITION_FAILED


def reply_text(code: int, detail: str) -> bytes:
    """``NOT_FOUND - no queue 'q' in vhost '/'``, cut to what a short string holds."""
    text = f"{NAMES[code]} - {detail}" if detail else NAMES[code]
    return text.encode("utf-8", "surrogateescape")[:_MAX_REPLY_TEXT]


def quoted(kind: str, name: str, vhost: str) -> str:
    """``queue 'q' in vhost '/'``."""
    return f"{kind} '{name}' in vhost '{vhost}'"
