"""Answers of the JetStream API, as far as a run needs them.

Source: docs.nats.io, "JetStream wire API Reference".
"""

from __future__ import annotations

from msgspec import Struct

from plumbline.untrusted import BadInputError, parse_json


class ApiError(Struct, frozen=True):
    """``error`` of a refusal."""

    code: int = 0
    err_code: int = 0
    description: str = ""

    def __str__(self) -> str:
        code = self.err_code or self.code
        return f"{self.description} ({code})" if code else self.description


class Replica(Struct, frozen=True):
    """One of ``cluster.replicas``."""

    name: str = ""
    current: bool = False


class ClusterInfo(Struct, frozen=True):
    """``cluster`` of a stream or a consumer."""

    leader: str = ""
    replicas: tuple[Replica, ...] | None = None


class StreamState(Struct, frozen=True):
    """``state`` of STREAM.INFO."""

    first_seq: int
    last_seq: int
    messages: int


class AckFloor(Struct, frozen=True):
    """``ack_floor`` of CONSUMER.INFO."""

    stream_seq: int


class StoredMessage(Struct, frozen=True):
    """``message`` of STREAM.MSG.GET."""

    seq: int = 0
    data: bytes = b""  # base64 in JSON


class Answer(Struct, frozen=True):
    """Fields of several answers. What is not an answer at all has an ``error`` that says so."""

    error: ApiError | None = None
    success: bool = False
    seq: int = 0
    duplicate: bool = False
    message: StoredMessage | None = None
    state: StreamState | None = None
    cluster: ClusterInfo | None = None
    ack_floor: AckFloor | None = None
    num_pending: int | None = None
    num_ack_pending: int | None = None

    @property
    def leader(self) -> str:
        """Of the stream or the consumer; empty without one."""
        return self.cluster.leader if self.cluster is not None else ""

    @property
    def err_code(self) -> int:
        """That of the error; 0 without one."""
        return self.error.err_code if self.error is not None else 0


def read_answer(payload: bytes) -> Answer:
    """Never fails: servers are not trusted."""
    try:
        return parse_json(payload or b"{}", Answer)
    except BadInputError as error:
        return Answer(error=ApiError(description=f"not an answer of the JetStream API: {error}"))
