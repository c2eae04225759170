"""The interface of the reference broker for exploration: no sockets, and a clock that the caller moves."""

from __future__ import annotations

from typing import Protocol


class SimulatedBroker(Protocol):
    """A broker on a clock of its own. Connections are numbers; what it sends waits until it is taken."""

    def open(self) -> int:
        """A new connection; INFO waits on it."""
        ...

    def send(self, connection: int, data: bytes) -> None:
        """Bytes from the client. The answer waits at once, unless a timer has to run first."""
        ...

    def take(self, connection: int) -> bytes:
        """What was sent to the client since the last time."""
        ...

    def next_wake(self) -> float | None:
        """In how many seconds the next timer is due; None for never."""
        ...

    def advance(self, seconds: float) -> None:
        """Let time pass; what is due by then has run."""
        ...

    def restart(self) -> None:
        """End in order, with every connection, and go on with what is stored."""
        ...
