"""How a defect alters the JetStream API: the body of a request before it is read, or the answer to it.

``kind`` names requests by the type of their answers: ``stream_create``, ``consumer_info``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.jetstream_parts import jetstream_of
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import Route

Fields = dict[str, Any]


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

    def altered(route: Route, request: Request, header_block: bytes) -> Fields:
        return answer(route, change(request) if route.kind == kind else request, header_block)

    replace(api, "answer", altered)


def alter_answer(broker: Broker, kind: str, change: Callable[[Fields, Request], object]) -> None:
    """``change`` alters the fields of each such request's answer."""
    api = jetstream_of(broker).api
    answer = api.answer

    def altered(route: Route, request: Request, header_block: bytes) -> Fields:
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


def alter_error(broker: Broker, kind: str, err_code: int, instead: int, *, saying: str = "") -> None:
    """One error of such requests bears another err_code; ``saying`` is in its description."""

    def change(fields: Fields, request: Request) -> None:
        error = fields.get("error")
        if error and error["err_code"] == err_code and saying in error["description"]:
            error["err_code"] = instead

    alter_answer(broker, kind, change)


def body_of(request: Request) -> Fields | None:
    """The body, if it is a JSON object."""
    try:
        fields = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
