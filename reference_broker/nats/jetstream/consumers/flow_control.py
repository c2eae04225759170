"""Flow control of a push consumer: the window of bytes without a flow control reply.

Counts bytes and knows no wire. Source: docs.nats.io, "Consumers", "FlowControl"; the sizes as observed.
"""

from __future__ import annotations

FIRST_WINDOW = 2 * 1024 * 1024
LARGEST_WINDOW = 16 * FIRST_WINDOW


class FlowWindow:
    """Bytes that were sent and not yet answered for.

    One request is out at a time: ``pending_reply`` is its subject. ``size`` doubles with each answer.
    """

    def __init__(self) -> None:
        self.size = FIRST_WINDOW
        self.pending = 0
        self.pending_reply = b""
        self._covered = 0  # how much of ``pending`` the request asks about

    def is_full(self) -> bool:
        """Nothing more is sent before there is an answer."""
        return self.pending > self.size

    def sent(self, size: int) -> None:
        self.pending += size

    def needs_request(self) -> bool:
        """Half of the window is used, and no request was sent yet."""
        return not self.pending_reply and self.pending > self.size // 2

    def record_request(self, subject: bytes) -> None:
        self.pending_reply, self._covered = subject, self.pending

    def answered(self, subject: bytes) -> bool:
        """Whether ``subject`` is what was asked last; then the window opens, twice as wide."""
        if not self.pending_reply or subject != self.pending_reply:
            return False
        self.size = min(self.size * 2, LARGEST_WINDOW)
        self.pending -= self._covered
        self.pending_reply = b""
        return True
