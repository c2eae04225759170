"""What happened, as plain data: attempts to publish, reads from the leader, and what each node stores.

All times are nanoseconds of one clock that never goes back: ``invoked`` is read before the bytes are sent,
``completed`` after the answer was read. So the true operation is always inside the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct


class AttemptOutcome(StrEnum):
    """How one attempt to publish ended."""

    OK = "ok"  # acknowledged, with its sequence
    FAILED = "failed"  # surely not stored: no server took it
    INDETERMINATE = "indeterminate"  # no answer, or an error that does not exclude that it is stored


class Attempt(Struct):
    """One publish. ``id`` is the message: process and counter, ``3-17``. It is the payload and the message
    id, and a further attempt has the same one."""

    process: int
    counter: int
    node: int  # to which it was sent
    invoked: int
    completed: int = 0  # 0: no answer
    outcome: AttemptOutcome = AttemptOutcome.INDETERMINATE
    sequence: int = 0  # of the acknowledgement
    duplicate: bool = False  # the acknowledgement says that the stream had it already
    error: str = ""
    connection: int = 0  # of the process, counted from 1; 0: not known

    @property
    def id(self) -> str:
        return f"{self.process}-{self.counter}"


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
    date in time."""

    attempts: list[Attempt]
    reads: list[LeaderRead]
    logs: list[NodeLog]
    stream_exists: bool = True
    is_whole: bool = True
    problem: str = ""  # what was missing, if not whole

    def places(self, message: str, sequence: int) -> Iterator[str]:
        """Where each node has a message, and what it has at ``sequence``."""
        for log in self.logs:
            at = [str(number) for number, payload in log.messages.items() if payload == message]
            there = log.messages.get(sequence)
            yield (
                f"node {log.node + 1}: {message} at {', '.join(at) or 'no sequence'}; "
                f"sequence {sequence} is {there or 'no message'}"
            )
