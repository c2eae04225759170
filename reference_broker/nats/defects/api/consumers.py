"""Defects in the creation, update, listing and deletion of consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import add, defect, new, replace
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_answer,
    alter_body,
    alter_request,
    alter_success,
    body_of,
)
from plumbline.reference_broker.nats.defects.methods import jetstream_of
from plumbline.reference_broker.nats.jetstream.api import consumers as consumer_api
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import Answer, ApiRoute
from plumbline.reference_broker.nats.jetstream.errors import CONSUMER_NAME_HAS_PATH_SEPARATORS

CREATE, NAMES, LIST, DELETE = "consumer_create", "consumer_names", "consumer_list", "consumer_delete"


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
    def alter(broker: Broker) -> None:
        def change(fields: Fields, request: Request) -> None:
            current = _current(broker, request)
            if current is not None and field in fields.get("config", {}):
                fields["config"][field] = getattr(current, field)

        alter_body(broker, CREATE, change)

    name = f"consumer-update-ignores-{field.replace('_', '-')}"
    add(new(name, (requirement,), f"Another {field} for a consumer that exists is ignored.", alter))


for _row in _FIXED:
    _fixed(*_row)


# Creation


@defect("JS-API-125")
def consumer_created_again_is_new(broker: Broker) -> None:
    """Creating a consumer again with the same configuration deletes the first."""

    def anew(request: Request) -> Request:
        current, config = _current(broker, request), _config(request)
        if current is not None and all(getattr(current, name) == value for name, value in config.items()):
            stream = jetstream_of(broker).streams[request.names[0]]
            stream.delete_consumer(stream.consumers[request.names[-1]], request.now)
        return request

    alter_request(broker, CREATE, anew)


@defect("JS-API-133")
def consumer_durable_name_of_the_subject_wins(broker: Broker) -> None:
    """CONSUMER.DURABLE.CREATE takes the name in its subject, whatever durable_name says."""
    _take_the_name(broker, consumer_api.create_durable)


@defect("JS-API-134")
def consumer_stream_of_the_subject_wins(broker: Broker) -> None:
    """A consumer is created for the stream in the subject, whatever stream_name says."""
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


@defect("JS-API-138")
def consumer_body_may_be_empty(broker: Broker) -> None:
    """An empty body creates a durable consumer."""
    _forgive(broker, lambda request: not request.body)


@defect("JS-API-139")
def consumer_body_need_not_be_json(broker: Broker) -> None:
    """A body that is not JSON creates a durable consumer."""
    _forgive(broker, lambda request: bool(request.body) and body_of(request) is None)


@defect("JS-API-141")
def consumer_name_with_wildcards_has_another_code(broker: Broker) -> None:
    """A durable name with a wildcard is refused as one with a path separator is."""

    def change(fields: Fields, request: Request) -> None:
        if "error" in fields and set("*>") & set(request.names[-1]):
            fields["error"].update(code=400, err_code=CONSUMER_NAME_HAS_PATH_SEPARATORS.err_code)

    alter_answer(broker, CREATE, change)


@defect("JS-API-144")
def consumer_named_stays(broker: Broker) -> None:
    """CONSUMER.CREATE.<stream>.<consumer> without durable_name makes a durable consumer."""

    def change(fields: Fields, request: Request) -> None:
        if len(request.names) == 2 and "durable_name" not in _config(request):
            fields["config"]["durable_name"] = request.names[1]
            fields["config"].pop("inactive_threshold", None)

    alter_success(broker, CREATE, change)


@defect("JS-API-145")
def consumer_filter_of_the_subject_is_lost(broker: Broker) -> None:
    """CONSUMER.CREATE.<stream>.<consumer>.<filter> makes a consumer without filter."""

    def change(fields: Fields, request: Request) -> None:
        if len(request.names) > 2:
            fields["config"].pop("filter_subject", None)

    alter_success(broker, CREATE, change)


@defect("JS-API-147")
def consumer_name_of_the_subject_wins(broker: Broker) -> None:
    """CONSUMER.CREATE.<stream>.<consumer> ignores another durable_name."""
    _take_the_name(broker, consumer_api.create)


def _take_the_name(broker: Broker, form: Answer) -> None:
    """One form of the request takes the name in its subject for a durable_name that differs."""
    api = jetstream_of(broker).api
    answer = api.answer

    def altered(route: ApiRoute, request: Request, header_block: bytes) -> Fields:
        fields = body_of(request)
        if route.answer is form and len(request.names) == 2 and fields and "durable_name" in _config(request):
            fields["config"]["durable_name"] = request.names[1]
            request = msgspec.structs.replace(request, body=msgspec.json.encode(fields))
        return answer(route, request, header_block)

    replace(api, "answer", altered)


# Lists, infos, deletes


@defect("JS-API-150")
def consumer_names_are_unsorted(broker: Broker) -> None:
    """CONSUMER.NAMES gives the names in reverse order."""
    alter_success(broker, NAMES, lambda fields, _: fields["consumers"].reverse())


@defect("JS-API-151")
def consumer_list_gives_names(broker: Broker) -> None:
    """CONSUMER.LIST gives names in place of infos."""

    def change(fields: Fields, request: Request) -> None:
        fields["consumers"] = [info["name"] for info in fields["consumers"]]

    alter_success(broker, LIST, change)


@defect("JS-API-157")
def consumer_delete_keeps_it(broker: Broker) -> None:
    """CONSUMER.DELETE is answered with success, and the consumer stays."""

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
