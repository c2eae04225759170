"""Requests to JetStream's API whose answers state something, and what these state.

Sources: docs.nats.io, "JetStream wire API Reference"; ADR-31, "Direct Get".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any
from zlib import crc32

from msgspec import Struct

from plumbline.monitors.facts import StreamFact
from plumbline.monitors.nats import facts
from plumbline.monitors.observation import Place
from plumbline.wire import nats
from plumbline.wire.json_text import json_object
from plumbline.wire.nats import jetstream

STREAM, SEQUENCE = "Nats-Stream", "Nats-Sequence"  # headers of a direct get


class Asked(StrEnum):
    """What a request asks for."""

    STREAM = "stream"
    CONSUMER = "consumer"
    MESSAGE = "message"
    DIRECT = "direct"


_ASKED = {
    ("STREAM", "INFO"): Asked.STREAM,
    ("STREAM", "CREATE"): Asked.STREAM,
    ("STREAM", "UPDATE"): Asked.STREAM,
    ("CONSUMER", "INFO"): Asked.CONSUMER,
    ("CONSUMER", "CREATE"): Asked.CONSUMER,
    ("CONSUMER", "DURABLE"): Asked.CONSUMER,  # .CREATE
    ("STREAM", "MSG"): Asked.MESSAGE,  # .GET
    ("DIRECT", "GET"): Asked.DIRECT,
}


class PendingQuery(Struct, frozen=True, tag="query"):
    """A request that has no answer yet. ``stream``: as its subject ends, of a request for a message."""

    place: Place
    asked: Asked
    stream: str
    domain: str


def query_of(tokens: Sequence[str], place: Place, domain: str) -> PendingQuery | None:
    """By the tokens of a subject of the API, without those before the verb. None: nothing is stated."""
    asked = _ASKED.get((tokens[0], tokens[1])) if len(tokens) > 2 else None
    if asked is None or (asked is Asked.MESSAGE and tokens[2] != "GET"):
        return None
    return PendingQuery(place, asked, tokens[-1], domain)


def stated(query: PendingQuery, operation: nats.Payload, about: Mapping[str, Any]) -> StreamFact | None:
    """What an answer without a status states. ``about``: what every fact of the stream has but its name.
    Raises ``ProtocolError`` for what is no such answer."""
    about = {**about, "domain": query.domain, "requested_at": query.place}
    if query.asked is Asked.DIRECT:
        return _read_directly(operation, about)
    answer = json_object(operation.payload)
    if jetstream.ApiError.of(answer) is not None:
        return None
    match query.asked:
        case Asked.STREAM:
            config = jetstream.StreamInfo.of(answer).config
            name, window = config.get("name"), config.get("duplicate_window")
            if not isinstance(name, str) or not isinstance(window, int):
                return None
            return facts.StreamStated(**about, stream=name, duplicate_window=window)
        case Asked.CONSUMER:
            info = jetstream.ConsumerInfo.of(answer)
            return facts.ConsumerStated(
                **about, stream=info.stream_name, consumer=info.name, created=info.created,
                leader=info.cluster.leader if info.cluster is not None else "",
                ack_floor=info.ack_floor.stream_seq,
            )  # fmt: skip
        case Asked.MESSAGE:
            message = jetstream.MessageReply.of(answer).message
            return facts.MessageRead(
                **about, stream=query.stream, seq=message.seq, checksum=crc32(message.data)
            )


def _read_directly(operation: nats.Payload, about: Mapping[str, Any]) -> StreamFact | None:
    headers = operation.headers
    stream, sequence = (headers.get(STREAM), headers.get(SEQUENCE)) if headers is not None else (None, None)
    if not stream or sequence is None or not sequence.isdecimal():
        return None
    return facts.MessageRead(**about, stream=stream, seq=int(sequence), checksum=crc32(operation.payload))
