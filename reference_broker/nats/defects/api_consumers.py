"""Defects in the creation, update, listing and deletion of consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_answer,
    alter_body,
    alter_error,
    alter_request,
    alter_success,
    body_of,
)
from plumbline.reference_broker.nats.defects.jetstream_parts import jetstream_defect, jetstream_of
from plumbline.reference_broker.nats.jetstream.api import consumers as consumer_api
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import Answer, Route

CREATE, INFO, NAMES, LIST, DELETE = (
    "consumer_create",
    "consumer_info",
    "consumer_names",
    "consumer_list",
    "consumer_delete",
)
STREAM_NOT_FOUND, CONSUMER_NOT_FOUND = 10059, 10014


def _config(request: Request) -> Fields:
    """The configuration in a request to create a consumer."""
    found = (body_of(request) or {}).get("config")
    return found if isinstance(found, dict) else {}


def _current(broker: Broker, request: Request) -> Any:
    """The configuration of the consumer that a request would update, or None."""
    stream = jetstream_of(broker).streams.get(request.names[0])
    consumer = stream.consumers.get(request.names[-1]) if stream else None
    return consumer.config if consumer else None


# Changes that are ignored: the requirement and the field that keeps its value.
_FIXED = (
    ("JS-API-126", "ack_wait"),
    ("JS-API-127", "deliver_policy"),
    ("JS-API-128", "ack_policy"),
    ("JS-API-129", "replay_policy"),
    ("JS-API-130", "deliver_subject"),
    ("JS-API-131", "max_waiting"),
)


def _fixed(requirement: str, field: str) -> None:
    @jetstream_defect(
        f"consumer-update-ignores-{field.replace('_', '-')}",
        breaks=(requirement,),
        summary=f"Another {field} for a consumer that exists is ignored.",
    )
    def _(broker: Broker) -> None:
        def change(fields: Fields, request: Request) -> None:
            current = _current(broker, request)
            if current is not None and field in fields.get("config", {}):
                fields["config"][field] = getattr(current, field)

        alter_body(broker, CREATE, change)


for _row in _FIXED:
    _fixed(*_row)


# Refused, but with another err_code: the requirement, the name, the kind, the err_codes.
_ERRORS = (
    ("JS-API-135", "consumer-durable-without-name", CREATE, 10018, 10017),
    ("JS-API-136", "consumer-ephemeral-with-durable-name", CREATE, 10020, 10017),
    ("JS-API-137", "consumer-without-stream", CREATE, STREAM_NOT_FOUND, CONSUMER_NOT_FOUND),
    ("JS-API-142", "consumer-name-with-separators", CREATE, 10127, 10103),
    ("JS-API-143", "consumer-name-too-long", CREATE, 10102, 10103),
    ("JS-API-146", "consumer-filter-of-another-subject", CREATE, 10131, 10093),
    ("JS-API-148", "consumer-action-create", CREATE, 10148, 10013),
    ("JS-API-149", "consumer-action-update", CREATE, 10149, CONSUMER_NOT_FOUND),
    ("JS-API-152", "consumer-names-without-stream", NAMES, STREAM_NOT_FOUND, CONSUMER_NOT_FOUND),
    ("JS-API-153", "consumer-info-of-none", INFO, CONSUMER_NOT_FOUND, STREAM_NOT_FOUND),
    ("JS-API-154", "consumer-info-without-stream", INFO, STREAM_NOT_FOUND, CONSUMER_NOT_FOUND),
    ("JS-API-158", "consumer-delete-of-none", DELETE, CONSUMER_NOT_FOUND, STREAM_NOT_FOUND),
    ("JS-API-159", "consumer-limit", CREATE, 10026, 10012),
    ("JS-API-161", "consumer-filters-of-two-kinds", CREATE, 10136, 10138),
    ("JS-API-162", "consumer-filters-that-overlap", CREATE, 10138, 10139),
    ("JS-API-163", "consumer-filter-of-nothing", CREATE, 10139, 10138),
)


def _error(requirement: str, name: str, kind: str, err_code: int, instead: int) -> None:
    @jetstream_defect(
        f"{name}-has-another-code",
        breaks=(requirement,),
        summary=f"A refusal of {kind.replace('_', '.').upper()} with {err_code} has err_code {instead}.",
    )
    def _(broker: Broker) -> None:
        alter_error(broker, kind, err_code, instead)


for _refusal in _ERRORS:
    _error(*_refusal)


# Creation


@jetstream_defect(
    "consumer-create-has-another-type",
    breaks=("JS-API-124",),
    summary="The answer to CONSUMER.DURABLE.CREATE has the type of a consumer info.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        fields["type"] = "io.nats.jetstream.api.v1.consumer_info_response"

    alter_success(broker, CREATE, change)


@jetstream_defect(
    "consumer-created-again-is-new",
    breaks=("JS-API-125",),
    summary="Creating a consumer again with the same configuration deletes the first.",
)
def _(broker: Broker) -> None:
    def anew(request: Request) -> Request:
        current, config = _current(broker, request), _config(request)
        if current is not None and all(getattr(current, name) == value for name, value in config.items()):
            stream = jetstream_of(broker).streams[request.names[0]]
            stream.delete_consumer(stream.consumers[request.names[-1]], request.now)
        return request

    alter_request(broker, CREATE, anew)


@jetstream_defect(
    "consumer-durable-name-of-the-subject-wins",
    breaks=("JS-API-133",),
    summary="CONSUMER.DURABLE.CREATE takes the name in its subject, whatever durable_name says.",
)
def _(broker: Broker) -> None:
    _take_the_name(broker, consumer_api.create_durable)


@jetstream_defect(
    "consumer-stream-of-the-subject-wins",
    breaks=("JS-API-134",),
    summary="A consumer is created for the stream in the subject, whatever stream_name says.",
)
def _(broker: Broker) -> None:
    alter_body(broker, CREATE, lambda fields, request: fields.update(stream_name=request.names[0]))


def _forgive(broker: Broker, when: Callable[[Request], bool]) -> None:
    """A body that cannot be read asks for a durable consumer with defaults."""

    def change(request: Request) -> Request:
        if not when(request):
            return request
        config = {"durable_name": request.names[-1], "ack_policy": "explicit"}
        body = msgspec.json.encode({"stream_name": request.names[0], "config": config})
        return msgspec.structs.replace(request, body=body)

    alter_request(broker, CREATE, change)


@jetstream_defect(
    "consumer-body-may-be-empty",
    breaks=("JS-API-138",),
    summary="An empty body creates a durable consumer.",
)
def _(broker: Broker) -> None:
    _forgive(broker, lambda request: not request.body)


@jetstream_defect(
    "consumer-body-need-not-be-json",
    breaks=("JS-API-139",),
    summary="A body that is not JSON creates a durable consumer.",
)
def _(broker: Broker) -> None:
    _forgive(broker, lambda request: bool(request.body) and body_of(request) is None)


@jetstream_defect(
    "consumer-name-with-wildcards-has-another-code",
    breaks=("JS-API-141",),
    summary="A durable name with a wildcard is refused as one with a path separator is.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if "error" in fields and set("*>") & set(request.names[-1]):
            fields["error"].update(code=400, err_code=10127)

    alter_answer(broker, CREATE, change)


@jetstream_defect(
    "consumer-named-stays",
    breaks=("JS-API-144",),
    summary="CONSUMER.CREATE.<stream>.<consumer> without durable_name makes a durable consumer.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if len(request.names) == 2 and "durable_name" not in _config(request):
            fields["config"]["durable_name"] = request.names[1]
            fields["config"].pop("inactive_threshold", None)

    alter_success(broker, CREATE, change)


@jetstream_defect(
    "consumer-filter-of-the-subject-is-lost",
    breaks=("JS-API-145",),
    summary="CONSUMER.CREATE.<stream>.<consumer>.<filter> makes a consumer without filter.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if len(request.names) > 2:
            fields["config"].pop("filter_subject", None)

    alter_success(broker, CREATE, change)


@jetstream_defect(
    "consumer-name-of-the-subject-wins",
    breaks=("JS-API-147",),
    summary="CONSUMER.CREATE.<stream>.<consumer> ignores another durable_name.",
)
def _(broker: Broker) -> None:
    _take_the_name(broker, consumer_api.create)


def _take_the_name(broker: Broker, form: Answer) -> None:
    """One form of the request takes the name in its subject for a durable_name that differs."""
    api = jetstream_of(broker).api
    answer = api.answer

    def altered(route: Route, request: Request, header_block: bytes) -> Fields:
        fields = body_of(request)
        if route.answer is form and len(request.names) == 2 and fields and "durable_name" in _config(request):
            fields["config"]["durable_name"] = request.names[1]
            request = msgspec.structs.replace(request, body=msgspec.json.encode(fields))
        return answer(route, request, header_block)

    replace(api, "answer", altered)


# Lists, infos, deletes


@jetstream_defect(
    "consumer-names-are-unsorted",
    breaks=("JS-API-150",),
    summary="CONSUMER.NAMES gives the names in reverse order.",
)
def _(broker: Broker) -> None:
    alter_success(broker, NAMES, lambda fields, _: fields["consumers"].reverse())


@jetstream_defect(
    "consumer-list-gives-names",
    breaks=("JS-API-151",),
    summary="CONSUMER.LIST gives names in place of infos.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        fields["consumers"] = [info["name"] for info in fields["consumers"]]

    alter_success(broker, LIST, change)


@jetstream_defect(
    "consumer-info-has-another-type",
    breaks=("JS-API-155",),
    summary="The answer to CONSUMER.INFO has the type of a created consumer.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        fields["type"] = "io.nats.jetstream.api.v1.consumer_create_response"

    alter_success(broker, INFO, change)


@jetstream_defect(
    "consumer-info-has-a-cluster",
    breaks=("JS-API-156",),
    summary="Consumer info names a cluster although there is none.",
)
def _(broker: Broker) -> None:
    alter_success(broker, INFO, lambda fields, _: fields.update(cluster={"leader": "S1"}))


@jetstream_defect(
    "consumer-delete-keeps-it",
    breaks=("JS-API-157",),
    summary="CONSUMER.DELETE is answered with success, and the consumer stays.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if "error" in fields:
            return
        stream = jetstream_of(broker).streams[request.names[0]]
        stream.add_consumer(request.names[1], kept.pop(), request.now)

    kept: list[Any] = []

    def remember(request: Request) -> Request:
        current = _current(broker, request)
        kept[:] = [current] if current is not None else []
        return request

    alter_request(broker, DELETE, remember)
    alter_answer(broker, DELETE, change)
