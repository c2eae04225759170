"""What happened to a replicated stream, as plain data: attempts to publish, reads from the leader, and what
each node stores. Times are those of ``cluster.history``."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.cluster.history import Attempt, Retention
from plumbline.cluster.nats.consumers.history import ConsumerHistory
from plumbline.cluster.nats.keys.history import KeyHistory


class LeaderRead(Struct, frozen=True):
    """One answered read of the message ``asked`` (a sequence) from the stream's leader. ``found``: its
    payload; None: the answer is that there is no such message."""

    invoked: int
    completed: int
    node: int  # to which the request was sent
    asked: int
    found: str | None


class NodeLog(Struct, frozen=True):
    """What one node stores after the run: sequence -> payload. ``complete``: every message was read.
    ``problem`` says why it was not."""

    node: int
    messages: dict[int, str]
    complete: bool = True
    problem: str = ""


class ClusterHistory(Struct, frozen=True):
    """One run. ``stream_exists``: the stream still answers after healing; ``is_whole``: every node was up to
    date in time. If ``retention`` is not limits, ``logs`` are what is left after the consumer was drained."""

    attempts: list[Attempt]
    reads: list[LeaderRead]
    logs: list[NodeLog]
    stream_exists: bool = True
    is_whole: bool = True
    problem: str = ""  # what was missing, if not whole
    consumer: ConsumerHistory | None = None
    keys: KeyHistory | None = None
    retention: Retention = Retention.LIMITS

    def removable(self) -> dict[int, int]:
        """Sequences that the stream may have removed, and since when: at the earliest when an ack of the
        message was sent."""
        if self.retention is Retention.LIMITS or self.consumer is None:
            return {}
        found: dict[int, int] = {}
        for one in self.consumer.deliveries:
            if one.acknowledged:
                found[one.sequence] = min(found.get(one.sequence, one.acknowledged), one.acknowledged)
        return found

    def is_kept(self, message: str) -> bool:
        """Whether the stream keeps this message at all."""
        takes = self.consumer is not None and self.consumer.takes(message)
        return self.retention is not Retention.INTEREST or takes

    def places(self, message: str, sequence: int) -> Iterator[str]:
        """Where each node has a message, what it has at ``sequence``, and each delivery; or, of the value of
        a key, other updates of the key."""
        update = self.keys.of_value(message) if self.keys is not None else None
        if self.keys is not None and update is not None:
            yield from self.keys.places(update, sequence)
            return
        for log in self.logs:
            at = [str(number) for number, payload in log.messages.items() if payload == message]
            there = log.messages.get(sequence)
            yield (
                f"node {log.node + 1}: {message} at {', '.join(at) or 'no sequence'}; "
                f"sequence {sequence} is {there or 'no message'}"
            )
        if self.consumer is not None and message:
            yield from self.consumer.places(sequence)
