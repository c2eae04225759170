"""What the relay and the recorder count. Written by one thread, read by any."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Counters:
    """Bytes and connections since the start; ``recorded`` counts bytes of the files, packets included."""

    accepted: int = 0
    open: int = 0
    refused: int = 0  # the server could not be reached
    reset: int = 0
    failed: int = 0  # closed after an internal error
    passed: list[int] = field(default_factory=lambda: [0, 0])  # bytes to the server, and to the client
    recorded: int = 0
    unrecorded: int = 0  # forwarded, but not in any file: the recording had stopped
    withheld: int = 0  # received, and neither recorded nor forwarded for that reason
    redacted: int = 0  # bytes masked
    files: list[str] = field(default_factory=list)

    @property
    def to_server(self) -> int:
        """Bytes that were received for the server."""
        return self.passed[0]

    @property
    def to_client(self) -> int:
        """Bytes that were received for clients."""
        return self.passed[1]
