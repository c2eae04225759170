"""How a defect alters the JetStream API: the body of a request before it is read, or the answer to it.

``kind`` names requests by the type of their answers: ``stream_create``, ``consumer_info``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.methods import jetstream_of
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import ApiRoute
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Headers

Fields = dict[str, Any]

DIRECT_GET = b"DIRECT.GET."


def alter_body(broker: Broker, kind: str, change: Callable[[Fields, Request], object]) -> None:
    """``change`` alters the fields of each such request's body; one that is no object stays as it is."""

    def ask(request: Request) -> Request:
        fields = body_of(request)
        if fields is None:
            return request
        change(fields, request)
        return msgspec.structs.replace(request, body=msgspec.json.encode(fields))

    alter_request(broker, kind, ask)


def alter_request(broker: Broker, kind: str, change: Callable[[Request], Request]) -> None:
    """Each such request is answered as if it were another."""
    api = jetstream_of(broker).api
    answer = api.answer

    def altered(route: ApiRoute, request: Request, header_block: bytes) -> Fields:
        return answer(route, change(request) if route.kind == kind else request, header_block)

    replace(api, "answer", altered)


def alter_answer(broker: Broker, kind: str, change: Callable[[Fields, Request], object]) -> None:
    """``change`` alters the fields of each such request's answer."""
    api = jetstream_of(broker).api
    answer = api.answer

    def altered(route: ApiRoute, request: Request, header_block: bytes) -> Fields:
        fields = answer(route, request, header_block)
        if route.kind == kind:
            change(fields, request)
        return fields

    replace(api, "answer", altered)


def alter_success(broker: Broker, kind: str, change: Callable[[Fields, Request], object]) -> None:
    """The same, for answers that are no errors."""

    def unless_error(fields: Fields, request: Request) -> None:
        if "error" not in fields:
            change(fields, request)

    alter_answer(broker, kind, unless_error)


def refuse(broker: Broker, kind: str, error: JetStreamError, when: Callable[[Request], object]) -> None:
    """Such requests are refused with ``error``, without being read, where ``when`` says so."""
    api = jetstream_of(broker).api
    answer = api.answer

    def altered(route: ApiRoute, request: Request, header_block: bytes) -> Fields:
        if route.kind == kind and when(request):
            return {"type": f"io.nats.jetstream.api.v1.{kind}_response", "error": error.reply()}
        return answer(route, request, header_block)

    replace(api, "answer", altered)


def alter_direct_get(broker: Broker, change: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> None:
    """A direct get is answered as if it had another path (stream and subject) and body."""
    api = jetstream_of(broker).api
    original = api.request

    def request(path: bytes, reply: bytes | None, header_block: bytes, body: bytes, now: int) -> bool:
        if path.startswith(DIRECT_GET):
            rest, body = change(path.removeprefix(DIRECT_GET), body)
            path = DIRECT_GET + rest
        return original(path, reply, header_block, body, now)

    replace(api, "request", request)


def alter_direct_body(broker: Broker, change: Callable[[Fields, bytes], object]) -> None:
    """``change`` alters the fields in the body of each direct get; it also gets the path."""

    def altered(path: bytes, body: bytes) -> tuple[bytes, bytes]:
        fields = object_of(body)
        if fields is None:
            return path, body
        change(fields, path)
        return path, msgspec.json.encode(fields)

    alter_direct_get(broker, altered)


def alter_sent(broker: Broker, change: Callable[[Headers, bytes], tuple[bytes, bytes]]) -> None:
    """What the service sends with headers has others, or another payload."""
    host = jetstream_of(broker).host
    publish = host.publish

    def altered(subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> object:
        if header_block:
            with contextlib.suppress(ProtocolError):
                header_block, payload = change(Headers.parse(header_block), payload)
        return publish(subject, reply, header_block, payload)

    replace(host, "publish", altered)


def first_of_the_subject(path: bytes, body: bytes) -> tuple[bytes, bytes]:
    """A direct get of the last message on a subject as one of the first."""
    stream, _, subject = path.partition(b".")
    if not subject:
        return path, body
    return stream, msgspec.json.encode({"seq": 1, "next_by_subj": subject.decode()})


def body_of(request: Request) -> Fields | None:
    """The body, if it is a JSON object."""
    return object_of(request.body)


def object_of(body: bytes) -> Fields | None:
    """What is encoded, if it is a JSON object."""
    try:
        fields = msgspec.json.decode(body)
    except UNDECODABLE:
        return None
    return fields if isinstance(fields, dict) else None
