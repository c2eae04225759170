"""Counters: each message on a subject adds to the value of the one before. Pure.

Knows no store: it gets the last message of the subject, and gives the one to be stored.
Source: ADR-49, "JetStream Distributed Counter CRDT"; order and texts of the refusals as servers answer.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from plumbline.bounds import MAX_COUNTER_DIGITS
from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.streams.publish import INCREMENT, PublishHeaders
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Headers, append_headers, remove_headers, replace_header

SOURCES = "Nats-Counter-Sources"

_NUMBER = re.compile(rf"[+-]?[0-9]{{1,{MAX_COUNTER_DIGITS}}}")

CounterSources = dict[str, dict[str, str]]  # origin -> its subject -> the value seen last


class CounterValue(Struct):
    """The body of a counter's message."""

    val: str


def read_increment(text: str) -> int | None:
    """None for what is no number, or longer than ``MAX_COUNTER_DIGITS``."""
    return int(text) if _NUMBER.fullmatch(text) else None


def check_increment(directives: PublishHeaders, payload: bytes, *, counts: bool) -> None:
    """What a client may send. ``counts``: the stream has allow_msg_counter. Raises ``JetStreamError``."""
    if not directives.increment:
        return
    if read_increment(directives.increment) is None:
        raise errors.COUNTER_INCREMENT_INVALID()
    if not counts:
        raise errors.COUNTERS_DISABLED()
    if payload:
        raise errors.COUNTER_HAS_PAYLOAD()
    if has_conditions(directives):
        raise errors.COUNTER_INCREMENT_INVALID()


def has_conditions(directives: PublishHeaders) -> bool:
    """Headers that do not go with an order-independent sum."""
    texts = (directives.rollup, directives.expected_stream, directives.expected_last_msg_id)
    numbers = (directives.expected_last_seq, directives.expected_last_subject_seq)
    return any(texts) or bool(directives.expected_last_subject) or any(one is not None for one in numbers)


def added(last: StoredMessage | None, header_block: bytes, increment: int) -> tuple[bytes, int]:
    """The headers to be stored, and the new value. Raises ``JetStreamError`` if ``last`` is no counter."""
    value, sources = (0, {}) if last is None else read_counter(last)
    return with_sources(header_block, sources), value + increment


def added_from(
    last: StoredMessage | None, header_block: bytes, origin: str, message: StoredMessage
) -> tuple[bytes, int]:
    """The same for a ``message`` of a source: what it adds is its value less the one seen there before."""
    value, sources = (0, {}) if last is None else read_counter(last)
    sourced, _ = read_counter(message)
    seen = sources.setdefault(origin, {})
    subject = message.subject.decode("utf-8", "replace")
    increment = sourced - (read_increment(seen.get(subject, "")) or 0)
    seen[subject] = str(sourced)
    return with_sources(replace_header(header_block, INCREMENT, str(increment)), sources), value + increment


def read_counter(message: StoredMessage) -> tuple[int, CounterSources]:
    """Value and sources of a stored message. Raises ``JetStreamError``."""
    try:
        found = read_increment(msgspec.json.decode(message.payload, type=CounterValue).val)
        text = Headers.parse(message.header_block).get(SOURCES) if message.header_block else None
        sources = msgspec.json.decode(text, type=CounterSources) if text else {}
    except (*UNDECODABLE, ProtocolError):
        raise errors.COUNTER_BROKEN() from None
    if found is None:
        raise errors.COUNTER_BROKEN()
    return found, sources


def body(value: int) -> bytes:
    """As it is stored."""
    return b'{"val":"%d"}' % value


def with_sources(header_block: bytes, sources: CounterSources) -> bytes:
    """Where the value came from is kept for ever, also where a message adds nothing to it."""
    if not sources:
        return header_block
    text = msgspec.json.encode(sources, order="sorted").decode()
    return append_headers(remove_headers(header_block, SOURCES), [(SOURCES, text)])
