"""What a pull consumer delivered and stated, as plain data. Times are those of ``cluster.history``."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct


class AckKind(StrEnum):
    """What the client answered to a delivery."""

    NONE = "none"  # nothing, as if the ack was lost
    ACK = "ack"  # +ACK without a reply subject
    DOUBLE = "double ack"  # +ACK as a request, whose answer is awaited


class PullDelivery(Struct):
    """One message that came. ``pulled``: when the pull request was sent which it answers."""

    sequence: int  # in the stream
    message: str
    node: int  # to which the client is connected
    pulled: int
    at: int
    count: int = 1  # deliveries of it so far, as stated
    settlement: AckKind = AckKind.NONE
    acknowledged: int = 0  # when the ack was sent; 0: it was not
    confirmed: int = 0  # when the answer to a double ack was read; 0: none came


class ConsumerState(Struct, frozen=True):
    """One answer to CONSUMER.INFO. ``leader`` is the name of the node that leads the consumer, as stated."""

    invoked: int
    completed: int
    node: int  # to which the request was sent
    leader: str
    ack_floor: int  # sequence in the stream


class ConsumerHistory(Struct, frozen=True):
    """One consumer in one run. ``process``: it takes the messages of this publisher only; None: of all.
    ``last``: what it states after everything was drained. ``is_drained``: it was asked for messages until it
    stated that none is left, or until nothing came for long."""

    deliveries: list[PullDelivery]
    states: list[ConsumerState]
    last: ConsumerState | None = None
    process: int | None = None
    is_drained: bool = True
    problem: str = ""  # why it was not drained

    def places(self, sequence: int) -> Iterator[str]:
        """Each delivery of a message."""
        for one in self.deliveries:
            if one.sequence == sequence:
                confirmed = ", confirmed" if one.confirmed else ""
                yield (
                    f"delivered by node {one.node + 1}, delivery {one.count}: answered by "
                    f"{'nothing' if one.settlement is AckKind.NONE else one.settlement}{confirmed}"
                )

    def takes(self, message: str) -> bool:
        """Whether the filter of the consumer has this message."""
        return self.process is None or message.startswith(f"{self.process}-")
