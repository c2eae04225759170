"""What publishers did, as plain data.

All times are nanoseconds of one clock that never goes back: ``invoked`` is read before the bytes are sent,
``completed`` after the answer was read. So the true operation is always inside the two.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from plumbline.bounds import CLUSTER_MESSAGE_BYTES


def message_text(data: bytes) -> str:
    """How the history names a message: by its payload, or the beginning of one that is not of this run."""
    return data[:CLUSTER_MESSAGE_BYTES].decode("utf-8", "replace")


class AttemptOutcome(StrEnum):
    """How one attempt to publish ended."""

    OK = "ok"  # acknowledged, with its sequence
    FAILED = "failed"  # surely not stored: no server took it
    INDETERMINATE = "indeterminate"  # no answer, or an error that does not exclude that it is stored


class Retention(StrEnum):
    """Which messages a stream keeps: ``retention`` of its configuration."""

    LIMITS = "limits"  # all
    WORK_QUEUE = "workqueue"  # until a consumer has acknowledged them
    INTEREST = "interest"  # the same, and none that no consumer takes


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
