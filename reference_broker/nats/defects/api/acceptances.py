"""Defects of API requests that are to be refused and are not. Refused otherwise: ``error_codes.toml``.

Each takes the refused request for one that is right, or answers as if there were what it names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import add, new, replace
from plumbline.reference_broker.nats.defects.api_alterations import Fields, body_of
from plumbline.reference_broker.nats.defects.methods import jetstream_of
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import ROUTES, Api, ApiRoute
from plumbline.reference_broker.nats.jetstream.errors import ErrorCode
from plumbline.reference_broker.nats.jetstream.streams.config import MAX_NAME

_UNFIT = str.maketrans(dict.fromkeys("*>./\\", "_"))

Otherwise = Callable[[Api, Request], Request | Fields]
Body = dict[str, Any]


# -- requests that are taken for others ------------------------------------------------------------


def _with_body(change: Callable[[Body, list[str]], object]) -> Otherwise:
    """The body is another; ``change`` also gets the names in the subject."""

    def otherwise(api: Api, request: Request) -> Request:
        body = body_of(request) or {}
        change(body, request.names)
        return msgspec.structs.replace(request, body=msgspec.json.encode(body))

    return otherwise


def _with_origins(change: Callable[[Body], object]) -> Otherwise:
    """The mirror, or each source, is another."""

    def changed(body: Body, names: list[str]) -> None:
        for origin in [body["mirror"]] if "mirror" in body else body["sources"]:
            change(origin)

    return _with_body(changed)


def _with_config(change: Callable[[Body, list[str]], object]) -> Otherwise:
    return _with_body(lambda body, names: change(body.setdefault("config", {}), names))


def _renamed(to: Callable[[str], str]) -> Otherwise:
    """What the request is about has another name, in subject and body."""

    def otherwise(api: Api, request: Request) -> Request:
        body = body_of(request) or {}
        config = body.get("config", body)
        for field in ("name", "durable_name"):
            if field in config:
                config[field] = to(config[field])
        names = [*request.names[:-1], to(request.names[-1])]
        return Request(names, msgspec.json.encode(body), request.now)

    return otherwise


def _existing(api: Api, request: Request) -> Request:
    """The configuration that the stream has already."""
    config = api.jetstream.streams[request.names[0]].config
    return msgspec.structs.replace(request, body=msgspec.json.encode(config))


# -- answers in place of a refusal -----------------------------------------------------------------


def _as(**fields: Any) -> Otherwise:
    return lambda api, request: fields


def _as_created(api: Api, request: Request) -> Fields:
    """STREAM.UPDATE creates the stream that is not there."""
    return api.answer(ROUTES["STREAM.CREATE"], request, b"")


def _as_there(api: Api, request: Request) -> Fields:
    """As if there were such a consumer."""
    config = (body_of(request) or {}).get("config", {})
    return {"stream_name": request.names[0], "name": request.names[-1], "config": config}


def _without_limit(api: Api, request: Request) -> Fields:
    """One consumer more than max_consumers."""
    stream = api.jetstream.streams[request.names[0]]
    config = stream.config
    stream.config = msgspec.structs.replace(config, max_consumers=-1)
    answer = api.answer(ROUTES["CONSUMER.DURABLE.CREATE"], request, b"")
    stream.config = config
    return answer


def _elsewhere(body: Body, names: list[str]) -> None:
    body["subjects"] = [f"{names[0]}.elsewhere"]


def _without_empty_filters(config: Body, names: list[str]) -> None:
    config["filter_subjects"] = [subject for subject in config["filter_subjects"] if subject]


def _with_filter_of_the_subject(config: Body, names: list[str]) -> None:
    del config["filter_subjects"]
    config["filter_subject"] = ".".join(names[2:])


CREATE_STREAM, CREATE_CONSUMER = "stream_create", "consumer_create"

# The requirement, the name, the kind of request, the error that is right, part of its text, and what is
# done in its place.
_ACCEPTED: tuple[tuple[str, str, str, ErrorCode, str, Otherwise], ...] = (
    ("JS-API-031", "stream-in-use", CREATE_STREAM, errors.STREAM_NAME_IN_USE, "", _existing),
    ("JS-API-033", "stream-overlap", CREATE_STREAM, errors.STREAM_SUBJECT_OVERLAP, "",
     _with_body(_elsewhere)),
    ("JS-API-038", "stream-name-with-wildcards", CREATE_STREAM, errors.STREAM_INVALID_CONFIG,
     "stream name is required", _renamed(lambda name: name.translate(_UNFIT))),
    ("JS-API-040", "stream-name-with-separators", CREATE_STREAM, errors.STREAM_NAME_HAS_PATH_SEPARATORS,
     "", _renamed(lambda name: name.translate(_UNFIT))),
    ("JS-API-042", "stream-name-too-long", CREATE_STREAM, errors.STREAM_INVALID_CONFIG,
     "stream name is too long", _renamed(lambda name: name[:MAX_NAME])),
    ("JS-API-048", "stream-on-the-api", CREATE_STREAM, errors.STREAM_INVALID_CONFIG, "jetstream api",
     _with_body(_elsewhere)),
    ("JS-API-057", "stream-update-of-none", "stream_update", errors.STREAM_NOT_FOUND, "", _as_created),
    ("JS-API-063", "stream-update-of-another", "stream_update", errors.STREAM_MISMATCH, "",
     _with_body(lambda body, names: body.update(name=names[0]))),
    ("JS-API-064", "stream-info-of-none", "stream_info", errors.STREAM_NOT_FOUND, "",
     _as(config={}, state={})),
    ("JS-API-066", "stream-delete-of-none", "stream_delete", errors.STREAM_NOT_FOUND, "", _as(success=True)),
    ("JS-API-084", "purge-of-none", "stream_purge", errors.STREAM_NOT_FOUND, "", _as(success=True, purged=0)),
    ("JS-API-135", "consumer-durable-without-name", CREATE_CONSUMER, errors.CONSUMER_DURABLE_NOT_SET, "",
     _with_config(lambda config, names: config.update(durable_name=names[1]))),
    ("JS-API-136", "consumer-ephemeral-with-durable-name", CREATE_CONSUMER,
     errors.CONSUMER_EPHEMERAL_WITH_DURABLE, "",
     _with_config(lambda config, names: config.pop("durable_name"))),
    ("JS-API-137", "consumer-without-stream", CREATE_CONSUMER, errors.STREAM_NOT_FOUND, "", _as_there),
    ("JS-API-142", "consumer-name-with-separators", CREATE_CONSUMER,
     errors.CONSUMER_NAME_HAS_PATH_SEPARATORS, "", _renamed(lambda name: name.translate(_UNFIT))),
    ("JS-API-143", "consumer-name-too-long", CREATE_CONSUMER, errors.CONSUMER_NAME_TOO_LONG, "",
     _renamed(lambda name: name[:MAX_NAME])),
    ("JS-API-146", "consumer-filter-of-another-subject", CREATE_CONSUMER,
     errors.CONSUMER_FILTER_NOT_MATCHING_SUBJECT, "",
     _with_config(lambda config, names: config.update(filter_subject=".".join(names[2:])))),
    ("JS-API-148", "consumer-action-create", CREATE_CONSUMER, errors.CONSUMER_ALREADY_EXISTS, "",
     _with_body(lambda body, names: body.pop("action"))),
    ("JS-API-149", "consumer-action-update", CREATE_CONSUMER, errors.CONSUMER_DOES_NOT_EXIST, "",
     _with_body(lambda body, names: body.pop("action"))),
    ("JS-API-152", "consumer-names-without-stream", "consumer_names", errors.STREAM_NOT_FOUND, "",
     _as(total=0, offset=0, limit=1024, consumers=[])),
    ("JS-API-153", "consumer-info-of-none", "consumer_info", errors.CONSUMER_NOT_FOUND, "", _as_there),
    ("JS-API-154", "consumer-info-without-stream", "consumer_info", errors.STREAM_NOT_FOUND, "", _as_there),
    ("JS-API-158", "consumer-delete-of-none", "consumer_delete", errors.CONSUMER_NOT_FOUND, "",
     _as(success=True)),
    ("JS-API-159", "consumer-limit", CREATE_CONSUMER, errors.CONSUMER_LIMIT_REACHED, "", _without_limit),
    ("JS-API-161", "consumer-filters-of-two-kinds", CREATE_CONSUMER, errors.CONSUMER_DUPLICATE_FILTERS, "",
     _with_config(lambda config, names: config.pop("filter_subjects"))),
    ("JS-API-162", "consumer-filters-that-overlap", CREATE_CONSUMER, errors.CONSUMER_OVERLAPPING_FILTERS,
     "", _with_config(lambda config, names: config.update(filter_subjects=config["filter_subjects"][:1]))),
    ("JS-API-163", "consumer-filter-of-nothing", CREATE_CONSUMER, errors.CONSUMER_EMPTY_FILTER, "",
     _with_config(_without_empty_filters)),
    ("JS-API-209", "consumer-filters-in-subject-and-body", CREATE_CONSUMER,
     errors.CONSUMER_MULTIPLE_FILTERS_IN_SUBJECT, "", _with_config(_with_filter_of_the_subject)),
    ("JS-API-210", "stream-transform-that-is-wrong", CREATE_STREAM, errors.STREAM_TRANSFORM_INVALID, "",
     _with_body(lambda body, names: body.pop("subject_transform"))),
    ("JS-API-223", "source-with-both-filters", CREATE_STREAM, errors.SOURCE_MULTIPLE_FILTERS, "",
     _with_origins(lambda origin: origin.pop("filter_subject"))),
    ("JS-API-223", "source-with-overlaps", CREATE_STREAM, errors.SOURCE_OVERLAPPING_FILTERS, "",
     _with_origins(lambda origin: origin["subject_transforms"].pop())),
    ("JS-API-223", "source-with-unknown-wildcards", CREATE_STREAM, errors.SOURCE_INVALID_TRANSFORM, "",
     _with_origins(lambda origin: origin.pop("subject_transforms"))),
    ("JS-API-223", "mirror-with-both-filters", CREATE_STREAM, errors.MIRROR_MULTIPLE_FILTERS, "",
     _with_origins(lambda origin: origin.pop("filter_subject"))),
    ("JS-API-223", "mirror-with-overlaps", CREATE_STREAM, errors.MIRROR_OVERLAPPING_FILTERS, "",
     _with_origins(lambda origin: origin["subject_transforms"].pop())),
    ("JS-API-223", "mirror-with-unknown-wildcards", CREATE_STREAM, errors.MIRROR_INVALID_TRANSFORM, "",
     _with_origins(lambda origin: origin.pop("subject_transforms"))),
    ("JS-PUB-089", "mirror-with-markers", CREATE_STREAM, errors.STREAM_INVALID_CONFIG, "markers forbidden",
     _with_body(lambda body, names: body.pop("subject_delete_marker_ttl"))),
    ("JS-API-227", "republish-cycle", CREATE_STREAM, errors.STREAM_INVALID_CONFIG, "cycle",
     _with_body(lambda body, names: body.pop("republish"))),
    ("JS-API-211", "snapshot-to-no-subject", "stream_snapshot", errors.SNAPSHOT_DELIVER_SUBJECT_INVALID, "",
     _as(config={}, state={})),
    ("JS-API-212", "restore-over-a-stream", "stream_restore", errors.STREAM_NAME_EXISTS_RESTORE_FAILED, "",
     _as(deliver_subject="$JS.SNAPSHOT.RESTORE.x")),
    ("JS-API-169", "mirror-with-subjects", CREATE_STREAM, errors.MIRROR_WITH_SUBJECTS, "",
     _with_body(lambda body, names: body.pop("subjects"))),
)  # fmt: skip


def _accepted(
    requirement: str, name: str, kind: str, right: ErrorCode, saying: str, otherwise: Otherwise
) -> None:
    def alter(broker: Broker) -> None:
        api = jetstream_of(broker).api
        answer = api.answer

        def altered(route: ApiRoute, request: Request, header_block: bytes) -> Fields:
            fields = answer(route, request, header_block)
            error = fields.get("error", {}) if route.kind == kind else {}
            if error.get("err_code") != right.err_code or saying not in error["description"]:
                return fields
            instead = otherwise(api, request)
            if isinstance(instead, Request):
                return answer(route, instead, header_block)
            return {**instead, "type": fields["type"]}

        replace(api, "answer", altered)

    summary = f"What is to be refused with {right.err_code} is accepted ({name})."
    add(new(f"{name}-is-accepted", (requirement,), summary, alter))


for _row in _ACCEPTED:
    _accepted(*_row)
