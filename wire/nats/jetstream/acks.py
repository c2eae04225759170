"""Acknowledgements: the reply subject that a delivered message carries, and what is published to it.

Sources: ADR-15, "JS Ack" (subjects); the JetStream model deep dive, "Acknowledgement Models" (payloads);
where those are silent, what nats-server 2.9 to 2.15 take, marked "servers".
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.json_text import json_object
from plumbline.wire.nats.jetstream.requests import PullRequest
from plumbline.wire.units import parse_duration

ACK_PREFIX = "$JS.ACK"
_MAX_UINT64 = 2**64 - 1


class AckSubject(Struct, frozen=True):
    """The reply subject of a delivered message; ``timestamp`` in nanoseconds since the epoch.

    Two layouts (ADR-15): 9 tokens, ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream_seq>.<consumer_seq>.
    <timestamp>.<pending>``; and 11 or more, with ``<domain>.<account hash>`` before the stream and perhaps a
    random token, or tokens yet to be thought of, at the end: ``random``. A domain of ``_`` means none.
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
        count = len(tokens)
        if tokens[:2] != ["$JS", "ACK"] or (count != 9 and count < 11):
            raise _bad_ack(subject, "expected $JS.ACK and 9, 11 or more tokens")
        domain, account = (None, None) if count == 9 else (tokens[2], tokens[3])
        first = 2 if count == 9 else 4
        stream, consumer, *numbers = tokens[first : first + 7]
        named = "" not in (stream, consumer, domain, account)
        if not named or not all(map(_is_uint64, numbers)):
            raise _bad_ack(subject, "expected names, then five numbers")
        delivered, stream_seq, consumer_seq, timestamp, pending = map(int, numbers)
        return cls(
            stream, consumer, delivered, stream_seq, consumer_seq, timestamp, pending,
            domain=None if domain == "_" else domain,
            account_hash=account,
            random=".".join(tokens[11:]) if count > 11 else None,
        )  # fmt: skip

    def __str__(self) -> str:
        """The subject: 9 tokens without ``account_hash``, else 11 or more."""
        layout = [] if self.account_hash is None else [self.domain or "_", self.account_hash]
        numbers = (self.delivered, self.stream_seq, self.consumer_seq, self.timestamp, self.pending)
        tail = [] if self.random is None else [self.random]
        return ".".join([ACK_PREFIX, *layout, self.stream, self.consumer, *map(str, numbers), *tail])


def without_account(subject: str) -> str:
    """An acknowledgement subject of 11 or more tokens in the layout of nine; any other subject as it is.

    Two subjects that differ only in domain, account hash and what follows the count have one meaning
    (ADR-15, "JS Ack", Token Version 2).
    """
    tokens = subject.split(".")
    if tokens[:2] != ACK_PREFIX.split(".") or len(tokens) < 11:
        return subject
    return ".".join((ACK_PREFIX, *tokens[4:11]))


def _is_uint64(token: str) -> bool:
    return token.isascii() and token.isdigit() and len(token) <= 20 and int(token) <= _MAX_UINT64


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

        Payloads are case-sensitive; ``+OK`` is the old spelling of ``+ACK``. Only ``-NAK``, ``+NXT`` and
        ``+TERM`` take an argument, a blank before it or not (servers): ``+ACK `` is ``UNKNOWN``.
        ``+TERM`` takes one since nats-server 2.10.4 (a reason); before, it is unknown with one.
        """
        if payload in (b"", b"+ACK", b"+OK"):
            return cls(AckKind.ACK)
        if payload == b"+WPI":
            return cls(AckKind.PROGRESS)
        for kind in (AckKind.NAK, AckKind.NEXT, AckKind.TERM):
            word = kind.encode()
            if payload.startswith(word):
                return cls(kind, payload[len(word) :].strip())
        return cls(AckKind.UNKNOWN, payload)

    def encode(self) -> bytes:
        """The payload; ``argument`` alone if ``UNKNOWN``."""
        if self.kind is AckKind.UNKNOWN:
            return self.argument
        word = self.kind.value.encode()
        return word + b" " + self.argument if self.argument else word

    @property
    def delay(self) -> int | None:
        """After how many nanoseconds ``-NAK`` wants redelivery; None: at once.

        ``-NAK {"delay": 500000000}`` or ``-NAK 500ms``; what is neither asks for none (servers). 0 and less
        are no longer than none, but the message then waits behind those not yet delivered.
        """
        if self.kind is not AckKind.NAK or not self.argument:
            return None
        if not self.argument.startswith(b"{"):
            return parse_duration(self.argument.decode("utf-8", "replace"))
        try:
            delay = json_object(self.argument).get("delay")
        except ProtocolError:
            return None
        if delay is None:
            return 0
        return delay if type(delay) is int and -(2**63) <= delay < 2**63 else None

    @property
    def next_request(self) -> PullRequest | None:
        """The pull request in ``+NXT``, for one message if it says nothing else; None for other kinds.

        Raises ``ProtocolError`` (``JSON``) as ``PullRequest.parse`` does.
        """
        return PullRequest.parse(self.argument) if self.kind is AckKind.NEXT else None

    @property
    def reason(self) -> str | None:
        """Why ``+TERM`` gives the message up, as the advisory then says; None without one."""
        if self.kind is not AckKind.TERM or not self.argument:
            return None
        return self.argument.decode("utf-8", "surrogateescape")
