"""What every API request shares: its names and body, strict or lenient decoding, pages of lists.

Source: docs.nats.io, "JetStream wire API Reference".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.jetstream import errors

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
    from plumbline.reference_broker.nats.jetstream.service import JetStream
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

T = TypeVar("T")

NAMES_LIMIT = 1024
LIST_LIMIT = 256


class Request(Struct, frozen=True):
    """One API request: what follows the verb in its subject, and its body."""

    names: list[str]
    body: bytes
    now: int


class PageRequest(Struct, kw_only=True):
    """The body of NAMES and LIST requests; ``subject`` keeps the streams that listen on it."""

    offset: int = 0
    subject: str = ""


def stream_of(jetstream: JetStream, name: str) -> Stream:
    """Raises ``JetStreamError`` if there is no such stream."""
    stream = jetstream.streams.get(name)
    if stream is None:
        raise errors.STREAM_NOT_FOUND()
    return stream


def consumer_of(jetstream: JetStream, stream: str, name: str) -> Consumer:
    """Raises ``JetStreamError`` if there is no such stream or consumer."""
    consumer = stream_of(jetstream, stream).consumers.get(name)
    if consumer is None:
        raise errors.CONSUMER_NOT_FOUND()
    return consumer


def decode(jetstream: JetStream, body: bytes, kind: type[T]) -> T:
    """A request body.

    Raises ``JetStreamError``: invalid JSON, a wrong type, and an unknown key where those are refused.
    """
    rules = jetstream.rules
    if not body and rules.empty_body_is_an_object:
        body = b"{}"
    try:
        if rules.strict_json:
            _refuse_unknown_keys(body, kind)
        return typed(body, kind)
    except UNDECODABLE as error:
        raise errors.INVALID_JSON(detail=f": {error}" if rules.json_errors_have_detail else "") from None


def decode_object(jetstream: JetStream, body: bytes, kind: type[T]) -> T:
    """A body that may also be empty, or no JSON at all: then nothing is asked for."""
    return decode(jetstream, body if body.lstrip()[:1] in (b"{", b"[") else b"{}", kind)


def typed(body: bytes, kind: type[T]) -> T:
    """A field that is null is not given. Raises ``ValueError``."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        if b"null" not in body:
            raise
        return msgspec.convert(_without_nulls(msgspec.json.decode(body)), kind)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _refuse_unknown_keys(body: bytes, kind: type[Any]) -> None:
    body_fields = msgspec.json.decode(body)
    if not isinstance(body_fields, dict):
        return
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in body_fields.items():
        if key not in fields:
            raise ValueError(f'json: unknown field "{key}"')
        inner = fields[key]
        if isinstance(inner, type) and issubclass(inner, Struct):
            _refuse_unknown_keys(msgspec.json.encode(value), inner)


def is_empty(body: bytes) -> bool:
    """Whether a body asks for nothing: no byte, or an object without a key."""
    try:
        return not body or msgspec.json.decode(body) == {}
    except UNDECODABLE:
        return False


def page(found: Sequence[Any], offset: int, limit: int) -> tuple[dict[str, int], list[Any]]:
    """The paging fields of a list reply, and the entries of that page."""
    start = min(max(offset, 0), len(found))
    return {"total": len(found), "offset": start, "limit": limit}, list(found[start : start + limit])
