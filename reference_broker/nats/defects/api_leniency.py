"""Defects in what the API should do or may do: optional fields, updates, direct gets, snapshots, domains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_error,
    alter_success,
    body_of,
)
from plumbline.reference_broker.nats.defects.jetstream_parts import jetstream_defect, jetstream_of
from plumbline.reference_broker.nats.jetstream import errors, subjects
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import Api, Route
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError

DIRECT_GET = b"DIRECT.GET."
END_OF_BATCH = b"NATS/1.0 204"
CREATE_STREAM, UPDATE_STREAM, CREATE_CONSUMER = "stream_create", "stream_update", "consumer_create"
Body = dict[str, Any]


# -- fields that are passed over -------------------------------------------------------------------

# The requirement, the name, the kind of request, and the path of the field in its body.
_PASSED_OVER = (
    ("JS-API-062", "max-consumers-of-an-update", UPDATE_STREAM, "max_consumers"),
    ("JS-API-061", "retention-of-an-update", UPDATE_STREAM, "retention"),
    ("JS-API-132", "filter-of-an-update", CREATE_CONSUMER, "config.filter_subject"),
    ("JS-API-165", "first-seq", CREATE_STREAM, "first_seq"),
    ("JS-API-166", "subject-transform", CREATE_STREAM, "subject_transform"),
    ("JS-API-171", "republish", CREATE_STREAM, "republish"),
    ("JS-API-173", "consumer-metadata", CREATE_CONSUMER, "config.metadata"),
)


def _passed_over(requirement: str, name: str, kind: str, path: str) -> None:
    @jetstream_defect(
        f"{name}-is-passed-over",
        breaks=(requirement,),
        summary=f"{path} of a request {kind.replace('_', '.').upper()} changes nothing.",
    )
    def _(broker: Broker) -> None:
        *way, field = path.split(".")

        def change(body: Fields, request: Request) -> None:
            for step in way:
                body = body.get(step, {})
            body.pop(field, None)

        alter_body(broker, kind, change)


for _field in _PASSED_OVER:
    _passed_over(*_field)


# -- requests that are refused ---------------------------------------------------------------------


def _changes_retention(api: Api, request: Request, body: Body) -> bool:
    stream = api.jetstream.streams.get(request.names[0])
    return stream is not None and body.get("retention", "limits") != stream.config.retention


def _changes_filter(api: Api, request: Request, body: Body) -> bool:
    stream = api.jetstream.streams.get(request.names[0])
    consumer = stream.consumers.get(request.names[-1]) if stream is not None else None
    return consumer is not None and body["config"].get("filter_subject", "") != consumer.config.filter_subject


def _filters_nothing(api: Api, request: Request, body: Body) -> bool:
    stream = api.jetstream.streams.get(request.names[0])
    wanted = body.get("config", {}).get("filter_subject", "").encode()
    if stream is None or not wanted:
        return False
    return not any(subjects.collide(wanted, pattern) for pattern in stream.config.patterns)


When = Callable[[Api, Request, Body], object]

# The requirement, the name, the kind of request, with which error, and when.
_REFUSED: tuple[tuple[str, str, str, JetStreamError, When], ...] = (
    ("JS-API-006", "account-info-with-a-body", "account_info", errors.NOT_EMPTY_REQUEST(),
     lambda api, request, body: body),
    ("JS-API-046", "unknown-key", CREATE_STREAM, errors.BAD_REQUEST(),
     lambda api, request, body: "frobnicate" in body),
    ("JS-API-061", "update-of-retention", UPDATE_STREAM,
     errors.STREAM_INVALID_CONFIG(reason="can not change retention"), _changes_retention),
    ("JS-API-132", "update-of-a-filter", CREATE_CONSUMER,
     errors.CONSUMER_CREATE_FAILED(reason="filter subject can not be updated"), _changes_filter),
    ("JS-API-140", "consumer-without-config", CREATE_CONSUMER, errors.BAD_REQUEST(),
     lambda api, request, body: "config" not in body),
    ("JS-API-160", "filter-that-matches-nothing", CREATE_CONSUMER,
     errors.CONSUMER_CREATE_FAILED(reason="filter matches nothing"), _filters_nothing),
)  # fmt: skip


def _refused(requirement: str, name: str, kind: str, error: JetStreamError, when: When) -> None:
    @jetstream_defect(
        f"{name}-gets-{error.err_code}",
        breaks=(requirement,),
        summary=f"{kind.replace('_', '.').upper()} is refused with {error.err_code} for {name}.",
    )
    def _(broker: Broker) -> None:
        api = jetstream_of(broker).api
        answer = api.answer

        def altered(route: Route, request: Request, header_block: bytes) -> Fields:
            if route.kind == kind and when(api, request, body_of(request) or {}):
                return {"type": f"io.nats.jetstream.api.v1.{kind}_response", "error": error.reply()}
            return answer(route, request, header_block)

        replace(api, "answer", altered)


for _refusal in _REFUSED:
    _refused(*_refusal)


# -- requests that are taken for others ------------------------------------------------------------


@jetstream_defect(
    "stream-below-js-is-accepted",
    breaks=("JS-API-075",),
    summary="A stream may have subjects below $JS. that are not those of events.",
)
def _(broker: Broker) -> None:
    def change(body: Fields, request: Request) -> None:
        body["subjects"] = [subject.replace("$JS.", "JS.") for subject in body.get("subjects", ())]

    alter_body(broker, CREATE_STREAM, change)


@jetstream_defect(
    "history-allows-direct-gets",
    breaks=("JS-API-123",),
    summary="A stream with max_msgs_per_subject gets allow_direct unasked.",
)
def _(broker: Broker) -> None:
    def change(body: Fields, request: Request) -> None:
        if body.get("max_msgs_per_subject", 0) > 0:
            body.setdefault("allow_direct", True)

    alter_body(broker, CREATE_STREAM, change)


@jetstream_defect(
    "consumer-without-config-starts-new",
    breaks=("JS-API-140",),
    summary="A consumer that is created with a stream_name alone has deliver_policy new.",
)
def _(broker: Broker) -> None:
    alter_body(
        broker, CREATE_CONSUMER, lambda body, request: body.setdefault("config", {"deliver_policy": "new"})
    )


@jetstream_defect(
    "names-show-the-offset-that-was-asked",
    breaks=("JS-API-071",),
    summary="STREAM.NAMES shows the offset of the request, though it is beyond the total.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        fields["offset"] = (body_of(request) or {}).get("offset", 0)

    alter_success(broker, "stream_names", change)


@jetstream_defect(
    "required-api-level-is-not-read",
    breaks=("JS-API-167",),
    summary="The header Nats-Required-Api-Level is passed over.",
)
def _(broker: Broker) -> None:
    replace(jetstream_of(broker).api, "check_level", lambda header_block: None)


@jetstream_defect(
    "snapshot-refusal-has-another-code",
    breaks=("JS-API-172",),
    summary="A snapshot that cannot be made is refused with 10003.",
)
def _(broker: Broker) -> None:
    alter_error(broker, "stream_snapshot", errors.SNAPSHOT_FAILED.err_code, errors.BAD_REQUEST.err_code)


@jetstream_defect(
    "domain-has-no-api",
    breaks=("JS-API-174",),
    summary="The API is not there below $JS.<domain>.API.",
)
def _(broker: Broker) -> None:
    replace(jetstream_of(broker), "_domain_prefix", None)


# -- direct gets -----------------------------------------------------------------------------------


def _before_direct_get(broker: Broker, change: Callable[[Api, bytes, Body], object]) -> None:
    """``change`` gets the stream's name and the fields of each DIRECT.GET."""
    api = jetstream_of(broker).api
    original = api.request

    def request(path: bytes, reply: bytes | None, header_block: bytes, body: bytes, now: int) -> bool:
        fields = body_of(Request([], body, now)) if path.startswith(DIRECT_GET) else None
        if fields is not None:
            change(api, path[len(DIRECT_GET) :], fields)
            body = msgspec.json.encode(fields)
        return original(path, reply, header_block, body, now)

    replace(api, "request", request)


@jetstream_defect(
    "direct-get-needs-no-permission",
    breaks=("JS-API-120",),
    summary="DIRECT.GET works on streams without allow_direct.",
)
def _(broker: Broker) -> None:
    def change(api: Api, name: bytes, fields: Body) -> None:
        stream = api.jetstream.streams.get(name.decode())
        if stream is not None:
            stream.config.allow_direct = True

    _before_direct_get(broker, change)


@jetstream_defect(
    "direct-get-batch-has-no-end",
    breaks=("JS-API-121", "JS-API-122"),
    summary="No status follows the messages of a batch of direct gets.",
)
def _(broker: Broker) -> None:
    original = broker.publish

    def publish(subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> int:
        if header_block.startswith(END_OF_BATCH):
            return 1
        return original(subject, reply, header_block, payload)

    replace(broker, "publish", publish)


@jetstream_defect(
    "direct-get-batch-is-one",
    breaks=("JS-API-121",),
    summary="DIRECT.GET with batch gets one message.",
)
def _(broker: Broker) -> None:
    _before_direct_get(broker, lambda api, name, fields: fields.pop("batch", None))
