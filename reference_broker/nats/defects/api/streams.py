"""Defects in the creation of streams: defaults, what is shown, and what is accepted."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import add, defect, new
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_answer,
    alter_body,
    alter_request,
    alter_success,
    body_of,
)
from plumbline.reference_broker.nats.defects.methods import jetstream_of
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.wire.nats.subjects import collide
from plumbline.wire.units import MILLISECOND, MINUTE

KIND = "stream_create"


@defect("JS-API-021")
def stream_default_sealed_is_another(broker: Broker) -> None:
    """A stream that is created without sealed is shown with null."""

    def change(fields: Fields, request: Request) -> None:
        if "sealed" not in (body_of(request) or {}):
            fields["config"]["sealed"] = None

    alter_success(broker, KIND, change)


@defect("JS-API-191")
def metadata_of_streams_has_no_level(broker: Broker) -> None:
    """The metadata of a stream has no _nats.level."""
    alter_success(broker, "stream_info", lambda fields, _: fields["config"]["metadata"].pop("_nats.level"))


@defect("JS-API-191")
def metadata_of_streams_has_no_version(broker: Broker) -> None:
    """The metadata of a stream has no _nats.ver."""
    alter_success(broker, "stream_info", lambda fields, _: fields["config"]["metadata"].pop("_nats.ver"))


@defect("JS-API-191")
def metadata_of_streams_has_another_version(broker: Broker) -> None:
    """_nats.ver of a stream is not the version of the server."""
    alter_success(
        broker, "stream_info", lambda fields, _: fields["config"]["metadata"].update({"_nats.ver": "0.0.0"})
    )


@defect("JS-API-191")
def metadata_of_consumers_has_the_level_that_they_need(broker: Broker) -> None:
    """_nats.level of a consumer is what _nats.req.level is."""

    def change(fields: Fields, request: Request) -> None:
        metadata = fields["config"]["metadata"]
        metadata["_nats.level"] = metadata["_nats.req.level"]

    alter_success(broker, "consumer_info", change)


# Accepted: the requirement, the name, what is wrong, and what the broker makes of the body.
_ACCEPTED: tuple[tuple[str, str, str, Callable[[Fields, Request], object]], ...] = (
    (
        "JS-API-032",
        "stream-name-of-the-subject-wins",
        "Of two different stream names in subject and body the one in the subject is used.",
        lambda fields, request: fields.update(name=_legal(fields["name"], request.names[0])),
    ),
    (
        "JS-API-034",
        "stream-subject-twice-is-taken-once",
        "A subject that a stream has twice counts once.",
        lambda fields, _: fields.update(subjects=list(dict.fromkeys(fields.get("subjects", ())))),
    ),
    (
        "JS-API-037",
        "stream-name-ends-at-a-dot",
        "What follows a dot in a stream name is ignored.",
        lambda fields, _: fields.update(name=fields["name"].partition(".")[0]),
    ),
    (
        "JS-API-039",
        "stream-name-ends-at-a-blank",
        "What follows a blank in a stream name is ignored.",
        lambda fields, _: fields.update(name=fields["name"].partition(" ")[0]),
    ),
    (
        "JS-API-041",
        "stream-name-may-be-empty",
        "An empty name in the body is that of the subject.",
        lambda fields, request: fields.update(name=fields["name"] or request.names[0]),
    ),
    (
        "JS-API-051",
        "stream-window-is-cut-to-max-age",
        "A duplicate_window larger than max_age is cut.",
        lambda fields, _: fields.update(
            duplicate_window=min(fields.get("duplicate_window", 0), fields.get("max_age") or MINUTE)
        ),
    ),
    (
        "JS-API-053",
        "stream-max-age-is-raised",
        "A max_age below 100 ms is 100 ms.",
        lambda fields, _: fields.update(max_age=_raised(fields.get("max_age", 0))),
    ),
    (
        "JS-API-054",
        "stream-window-is-raised",
        "A duplicate_window below 100 ms is 100 ms.",
        lambda fields, _: fields.update(duplicate_window=_raised(fields.get("duplicate_window", 0))),
    ),
    (
        "JS-API-056",
        "stream-description-is-cut",
        "What a description has beyond 4096 bytes is cut off.",
        lambda fields, _: "description" in fields and fields.update(description=fields["description"][:4096]),
    ),
    (
        "JS-API-052",
        "stream-window-ignores-max-age",
        "The default duplicate_window of a stream with a short max_age is a tenth of it.",
        lambda fields, _: fields.setdefault("duplicate_window", fields.get("max_age", 0) // 10),
    ),
)


def _accepted(requirement: str, name: str, summary: str, change: Callable[[Fields, Request], object]) -> None:
    add(new(name, (requirement,), summary, lambda broker: alter_body(broker, KIND, change)))


def _legal(name: str, instead: str) -> str:
    """``instead``, for a name that is wrong only because it is another."""
    return instead if name and not set(name) & set(". ") else name


def _raised(duration: int) -> int:
    return max(duration, 100 * MILLISECOND) if duration > 0 else duration


for _change in _ACCEPTED:
    _accepted(*_change)


@defect("JS-API-030")
def stream_created_again_is_refused(broker: Broker) -> None:
    """Creating a stream again with the same configuration is refused as well."""
    there: list[bool] = [False]

    def look(request: Request) -> Request:
        there[0] = request.names[0] in jetstream_of(broker).streams
        return request

    def change(fields: Fields, request: Request) -> None:
        if "error" not in fields and there[0]:
            fields.clear()
            fields["error"] = {"code": 400, "err_code": 10058, "description": "stream name already in use"}

    alter_request(broker, KIND, look)
    alter_answer(broker, KIND, change)


@defect("JS-API-035")
def stream_subjects_may_overlap_inside(broker: Broker) -> None:
    """Of subjects of one stream that overlap the first is used alone."""

    def change(fields: Fields, request: Request) -> None:
        first, *others = fields.get("subjects") or [""]
        if any(collide(first.encode(), other.encode()) and other != first for other in others):
            fields["subjects"] = [first]

    alter_body(broker, KIND, change)


@defect("JS-API-036")
def stream_without_subjects_listens_below_its_name(broker: Broker) -> None:
    """A stream that is created without subjects listens on all below its name."""

    def change(fields: Fields, request: Request) -> None:
        if not {"subjects", "mirror", "sources"} & set(fields):
            fields["subjects"] = [f"{request.names[0]}.>"]

    alter_body(broker, KIND, change)


def _forgive(broker: Broker, when: Callable[[Request], bool]) -> None:
    """A body that cannot be read is one that has the stream's name alone."""

    def change(request: Request) -> Request:
        if not when(request):
            return request
        body = msgspec.json.encode({"name": request.names[0], "storage": "memory"})
        return msgspec.structs.replace(request, body=body)

    alter_request(broker, KIND, change)


@defect("JS-API-043")
def stream_body_need_not_be_json(broker: Broker) -> None:
    """A body that is not JSON is taken for an empty one."""
    _forgive(broker, lambda request: bool(request.body) and body_of(request) is None)


@defect("JS-API-044")
def stream_body_may_be_empty(broker: Broker) -> None:
    """An empty body creates a stream of the subject's name."""
    _forgive(broker, lambda request: not request.body)


@defect("JS-API-045")
def stream_number_as_text_is_ignored(broker: Broker) -> None:
    """Text in a field for a number is ignored."""

    def change(fields: Fields, request: Request) -> None:
        for name in [name for name, value in fields.items() if name.startswith("max_")]:
            if isinstance(fields[name], str):
                del fields[name]

    alter_body(broker, KIND, change)
