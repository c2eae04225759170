"""The seam between the broker core and a service that lives inside it, such as JetStream.

Neither side imports the other: the core drives a ``Service``, the service speaks through a ``Host``.
Time is integer nanoseconds since the Unix epoch and always comes in as ``now``.
Header blocks are the exact bytes between control line and payload, empty when there are none.
"""

from __future__ import annotations

from typing import Any, Protocol


class Host(Protocol):
    """What a service asks of the broker core."""

    def publish(self, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> int:
        """Route to the subscribers of the account, as the server's own message; how many got it."""
        ...

    def deliver(
        self, target: bytes, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes
    ) -> int:
        """Route to the subscribers of ``target`` a message that bears ``subject``; how many got it.

        A pull's inbox gets stored messages under the subject they were published on (ADR-13).
        """
        ...

    def has_interest(self, subject: bytes) -> bool:
        """Whether a publish on ``subject`` would reach anybody now."""
        ...

    def requester(self) -> dict[str, Any]:
        """Whose request is being answered, as advisories tell of it; ``server`` is always there."""
        ...

    def has_subscriber(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether a client has subscribed to exactly ``subject``, as a member of exactly that queue group."""
        ...

    def forget_routes(self) -> None:
        """What ``Service.handles_subject`` says has changed."""
        ...


class Service(Protocol):
    """A service the core consults for every message that a client publishes where it listens."""

    def handles_subject(self, subject: bytes) -> bool:
        """Whether messages on ``subject`` concern the service; true until ``Host.forget_routes``."""
        ...

    def on_message(
        self, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
    ) -> bool:
        """True if the service responded or took it: then there is no 503 for want of responders."""
        ...

    def on_subscribed(self, subject: bytes, now: int) -> None:
        """A client has subscribed to ``subject``, which may hold wildcards."""
        ...

    def on_unsubscribed(self, subject: bytes, now: int) -> None:
        """A subscription to ``subject`` has ended, in whatever way."""
        ...

    def wake(self, now: int) -> None:
        """Run what is due at ``now``."""
        ...

    def next_wake(self) -> int | None:
        """When the service next wants to be woken; None for never."""
        ...
