"""JetStream on top of NATS: subjects, request bodies, acknowledgements and statuses, as values.

Everything here is text or bytes inside a NATS operation; nothing knows who sends it or when.
Sources: docs.nats.io, "JetStream wire API Reference"; ADR-13, "Pull Subscribe internals";
ADR-15, "JetStream Subscribe Workflow" (ack subjects); the JetStream model deep dive,
"Acknowledgement Models".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from wire.errors import ErrorKind, ProtocolError
from wire.headers import Status

API_PREFIX = "$JS.API"
ACK_PREFIX = "$JS.ACK"

NO_MESSAGES = Status(404, "No Messages")
REQUEST_TIMEOUT = Status(408, "Request Timeout")
EXCEEDED_MAX_WAITING = Status(409, "Exceeded MaxWaiting")
CONSUMER_DELETED = Status(409, "Consumer Deleted")
CONSUMER_IS_PUSH_BASED = Status(409, "Consumer is push based")
MESSAGE_SIZE_EXCEEDS_MAX_BYTES = Status(409, "Message Size Exceeds MaxBytes")
IDLE_HEARTBEAT = Status(100, "Idle Heartbeat")
NO_RESPONDERS = Status(503)

PENDING_MESSAGES = "Nats-Pending-Messages"
PENDING_BYTES = "Nats-Pending-Bytes"
LAST_CONSUMER = "Nats-Last-Consumer"
LAST_STREAM = "Nats-Last-Stream"


def api_subject(verb: str, *names: str) -> str:
    """``api_subject("CONSUMER.INFO", "ORDERS", "DISPATCH")`` -> ``$JS.API.CONSUMER.INFO.ORDERS.DISPATCH``."""
    return ".".join((API_PREFIX, verb, *names))


def next_subject(stream: str, consumer: str) -> str:
    """Where a pull request for ``consumer`` goes (ADR-13, "Context")."""
    return api_subject("CONSUMER.MSG.NEXT", stream, consumer)


class PullRequest(Struct, frozen=True, omit_defaults=True):
    """The body of a pull request; durations in nanoseconds (ADR-13, "Request Body"; ADR-37)."""

    batch: int = 1
    expires: int = 0
    no_wait: bool = False
    max_bytes: int = 0
    idle_heartbeat: int = 0

    @classmethod
    def parse(cls, body: bytes) -> PullRequest:
        """Read a body: nothing, a bare integer, or JSON; any other text asks for one message.

        Raises ``ProtocolError`` (``JSON``) for text that starts as JSON and is not a request.
        """
        text = body.strip()
        if text.startswith(b"{"):
            try:
                request = msgspec.json.decode(text, type=cls)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                raise ProtocolError(ErrorKind.JSON, str(error), excerpt=body) from None
            # ADR-13, "batch": the minimum is 1, and servers read 0 as 1.
            return msgspec.structs.replace(request, batch=1) if request.batch == 0 else request
        if text.isdigit() and len(text) <= 18:
            return cls(batch=int(text) or 1)
        return cls()

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class AckSubject(Struct, frozen=True):
    """The reply subject of a delivered message; ``timestamp`` in nanoseconds since the epoch.

    Two layouts (ADR-15): 9 tokens ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream_seq>.
    <consumer_seq>.<timestamp>.<pending>``, and 11 or 12 with ``<domain>.<account hash>`` before the
    stream and perhaps a random token at the end. A domain of ``_`` means none.
    """

    stream: str
    consumer: str
    delivered: int
    stream_seq: int
    consumer_seq: int
    timestamp: int
    pending: int
    domain: str | None = None
    account_hash: str | None = None
    random: str | None = None

    @classmethod
    def parse(cls, subject: str) -> AckSubject:
        """Raises ``ProtocolError`` (``ARGUMENTS``) for a subject of neither layout."""
        tokens = subject.split(".")
        if tokens[:2] != ["$JS", "ACK"] or len(tokens) not in (9, 11, 12):
            raise _bad_ack(subject, "expected $JS.ACK and 9, 11 or 12 tokens")
        domain, account = (None, None) if len(tokens) == 9 else (tokens[2], tokens[3])
        first = 2 if len(tokens) == 9 else 4
        stream, consumer, *numbers = tokens[first : first + 7]
        if not stream or not consumer or not all(n.isascii() and n.isdigit() and len(n) < 20 for n in numbers):
            raise _bad_ack(subject, "expected names, then five numbers")
        delivered, stream_seq, consumer_seq, timestamp, pending = map(int, numbers)
        return cls(
            stream, consumer, delivered, stream_seq, consumer_seq, timestamp, pending,
            domain=None if domain == "_" else domain,
            account_hash=account,
            random=tokens[11] if len(tokens) == 12 else None,
        )  # fmt: skip

    def __str__(self) -> str:
        layout = [] if self.account_hash is None else [self.domain or "_", self.account_hash]
        numbers = (self.delivered, self.stream_seq, self.consumer_seq, self.timestamp, self.pending)
        tail = [] if self.random is None else [self.random]
        return ".".join([ACK_PREFIX, *layout, self.stream, self.consumer, *map(str, numbers), *tail])


def _bad_ack(subject: str, message: str) -> ProtocolError:
    excerpt = subject.encode("utf-8", "surrogateescape")
    return ProtocolError(ErrorKind.ARGUMENTS, f"ack subject: {message}", excerpt=excerpt)


class AckKind(StrEnum):
    """Deep dive, "Acknowledgement Models", table of types; the value is the payload's first word."""

    ACK = "+ACK"
    NAK = "-NAK"
    PROGRESS = "+WPI"
    NEXT = "+NXT"
    TERM = "+TERM"
    UNKNOWN = ""


class Ack(Struct, frozen=True):
    """An acknowledgement payload. ``argument`` is what follows the first word, without blanks around it."""

    kind: AckKind
    argument: bytes = b""

    @classmethod
    def parse(cls, payload: bytes) -> Ack:
        """Never raises: what is none of the documented payloads is ``UNKNOWN``, and acknowledges nothing.

        Payloads are case-sensitive, and ``+ACK`` takes no trailing blank. ``+OK`` is the old spelling of ``+ACK``.
        """
        if payload in (b"", b"+ACK", b"+OK"):
            return cls(AckKind.ACK)
        if payload == b"+WPI":
            return cls(AckKind.PROGRESS)
        for kind in (AckKind.NAK, AckKind.NEXT, AckKind.TERM):
            word = kind.encode()
            if payload == word or payload.startswith(word + b" ") or (kind is not AckKind.TERM and payload.startswith(word + b"{")):
                return cls(kind, payload[len(word) :].strip())
        return cls(AckKind.UNKNOWN, payload)

    def encode(self) -> bytes:
        if self.kind is AckKind.UNKNOWN:
            return self.argument
        word = self.kind.value.encode()
        return word + b" " + self.argument if self.argument else word


class ApiError(Struct, frozen=True):
    """The ``error`` object of a JetStream API reply (ADR-1; ADR-7 for ``err_code``)."""

    code: int
    err_code: int = 0
    description: str = ""

    @classmethod
    def of(cls, reply: dict[str, Any]) -> ApiError | None:
        """The error of a decoded reply, or None. Raises ``ProtocolError`` (``JSON``) if it has another shape."""
        if "error" not in reply:
            return None
        try:
            return msgspec.convert(reply["error"], cls)
        except msgspec.ValidationError as error:
            raise ProtocolError(ErrorKind.JSON, f"error object: {error}") from None

    def __str__(self) -> str:
        return f"{self.code} {self.description} ({self.err_code})"
