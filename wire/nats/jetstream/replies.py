"""Replies of JetStream: API errors, PubAcks, the state of streams and consumers.

Each is read from decoded JSON (``of``) or from a payload (``parse``). Unknown keys are ignored, since every
server release adds some; the keys without a default here are in every release. Times stay text (RFC 3339,
with nanoseconds, which Python's datetime would lose); durations are nanoseconds.
Sources: docs.nats.io, "JetStream wire API Reference"; ADR-1, "JetStream JSON API Design"; ADR-7, "NATS Server
Error Codes".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from msgspec import Struct, field

from plumbline.wire.json_text import json_object, shaped

# ``err_code`` of what programs look for in an answer (nats-server, errors.json).
STREAM_NOT_FOUND = 10059
NO_MESSAGE_FOUND = 10037


class ApiError(Struct, frozen=True):
    """The ``error`` object of a reply: ``code`` as in HTTP, ``err_code`` tells which (ADR-7)."""

    code: int
    err_code: int = 0
    description: str = ""

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> ApiError | None:
        """The error of a decoded reply, or None. Raises ``ProtocolError`` (``JSON``): it is not one."""
        error = reply.get("error")
        return None if error is None else shaped(error, cls, "error object")

    def __str__(self) -> str:
        return f"{self.code} {self.description} ({self.err_code})"


class Reply(Struct, frozen=True):
    """What the replies share: how they are read. Ask ``ApiError.of`` first."""

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Self:
        """Raises ``ProtocolError`` (``JSON``) if a key is missing or has another type."""
        return shaped(reply, cls, cls.__name__)

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Raises ``ProtocolError`` (``JSON``) if it is not JSON, or as ``of`` does."""
        return cls.of(json_object(payload))


class PubAck(Reply, frozen=True):
    """The answer to a message published into a stream."""

    stream: str
    seq: int
    duplicate: bool = False
    domain: str = ""
    val: str = ""  # the new value of a counter, 2.12
    batch: str = ""  # of an atomic batch: its id, 2.12
    count: int = 0  # and how many messages it had


class SequencePair(Struct, frozen=True):
    """A position as the consumer counts deliveries and as the stream counts messages."""

    consumer_seq: int
    stream_seq: int
    last_active: str | None = None

    def __str__(self) -> str:
        return f"{self.consumer_seq}/{self.stream_seq}"


class AssetCluster(Struct, frozen=True):
    """Where a stream or a consumer is."""

    leader: str = ""


class ConsumerInfo(Reply, frozen=True):
    """The answer to CONSUMER.INFO and CONSUMER.CREATE."""

    stream_name: str
    name: str
    delivered: SequencePair
    ack_floor: SequencePair
    num_ack_pending: int
    num_redelivered: int
    num_waiting: int
    num_pending: int
    config: dict[str, Any] = field(default_factory=dict)
    created: str = ""
    push_bound: bool = False
    paused: bool = False  # 2.11
    pause_remaining: int = 0  # nanoseconds
    cluster: AssetCluster | None = None  # of a server in a cluster


class StreamState(Struct, frozen=True):
    """What a stream holds. ``first_seq`` is ``last_seq + 1`` when it has been emptied, 0 when it is fresh."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    consumer_count: int
    first_ts: str = ""
    last_ts: str = ""
    num_subjects: int = 0
    subjects: dict[str, int] = field(default_factory=dict)  # only if asked for
    num_deleted: int = 0
    deleted: list[int] = field(default_factory=list)  # only if asked for


class StoredMessage(Struct, frozen=True):
    """A message in a stream. ``data`` and ``hdrs`` are base64 in JSON, and left out if they are empty."""

    seq: int
    subject: str = ""
    data: bytes = b""
    hdrs: bytes = b""


class MessageReply(Reply, frozen=True):
    """The answer to STREAM.MSG.GET."""

    message: StoredMessage


class StreamInfo(Reply, frozen=True):
    """The answer to STREAM.INFO and STREAM.CREATE."""

    config: dict[str, Any]
    state: StreamState
    created: str = ""
