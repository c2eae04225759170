"""Defects in what the API should do or may do: optional fields, updates, domains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import add, defect, new, replace
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_success,
    body_of,
    refuse,
)
from plumbline.reference_broker.nats.defects.methods import jetstream_of
from plumbline.reference_broker.nats.jetstream import errors, subjects
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import Api
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError

CREATE_STREAM, UPDATE_STREAM, CREATE_CONSUMER = "stream_create", "stream_update", "consumer_create"
Body = dict[str, Any]


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
    ("JS-API-061", "update-of-retention", UPDATE_STREAM,
     errors.STREAM_INVALID_CONFIG(reason="can not change retention"), _changes_retention),
    ("JS-API-132", "update-of-a-filter", CREATE_CONSUMER,
     errors.CONSUMER_CREATE_FAILED(reason="filter subject can not be updated"), _changes_filter),
    ("JS-API-160", "filter-that-matches-nothing", CREATE_CONSUMER,
     errors.CONSUMER_CREATE_FAILED(reason="filter matches nothing"), _filters_nothing),
)  # fmt: skip


def _refused(requirement: str, name: str, kind: str, error: JetStreamError, when: When) -> None:
    def alter(broker: Broker) -> None:
        api = jetstream_of(broker).api
        refuse(broker, kind, error, lambda request: when(api, request, body_of(request) or {}))

    summary = f"{kind.replace('_', '.').upper()} is refused with {error.err_code} for {name}."
    add(new(f"{name}-gets-{error.err_code}", (requirement,), summary, alter))


for _refusal in _REFUSED:
    _refused(*_refusal)


# -- requests that are taken for others ------------------------------------------------------------


@defect("JS-API-075")
def stream_below_js_is_accepted(broker: Broker) -> None:
    """A stream may have subjects below $JS. that are not those of events."""

    def change(body: Fields, request: Request) -> None:
        body["subjects"] = [subject.replace("$JS.", "JS.") for subject in body.get("subjects", ())]

    alter_body(broker, CREATE_STREAM, change)


@defect("JS-API-071")
def names_show_the_offset_that_was_asked(broker: Broker) -> None:
    """STREAM.NAMES shows the offset of the request, though it is beyond the total."""

    def change(fields: Fields, request: Request) -> None:
        fields["offset"] = (body_of(request) or {}).get("offset", 0)

    alter_success(broker, "stream_names", change)


@defect("JS-API-167")
def required_api_level_is_not_read(broker: Broker) -> None:
    """The header Nats-Required-Api-Level is passed over."""
    replace(jetstream_of(broker).api, "check_level", lambda header_block: None)


@defect("JS-API-174")
def domain_has_no_api(broker: Broker) -> None:
    """The API is not there below $JS.<domain>.API."""
    replace(jetstream_of(broker), "_domain_prefix", None)
