"""Defects in the creation of streams: defaults, what is shown, and what is accepted."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
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
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.subjects import collide
from plumbline.wire.durations import MILLISECOND, MINUTE

KIND = "stream_create"
INVALID_CONFIG = 10052

# Defaults: the requirement, the field, and the wrong value that a stream without it shows.
_DEFAULTS: tuple[tuple[str, str, object], ...] = (
    ("JS-API-010", "retention", "interest"),
    ("JS-API-011", "storage", "memory"),
    ("JS-API-012", "discard", "new"),
    ("JS-API-013", "max_consumers", 0),
    ("JS-API-014", "max_msgs", 0),
    ("JS-API-015", "max_bytes", 0),
    ("JS-API-016", "max_age", -1),
    ("JS-API-017", "max_msgs_per_subject", 0),
    ("JS-API-018", "max_msg_size", 0),
    ("JS-API-019", "num_replicas", 0),
    ("JS-API-020", "duplicate_window", MINUTE),
    ("JS-API-021", "sealed", None),
    ("JS-API-022", "deny_delete", True),
    ("JS-API-023", "deny_purge", True),
    ("JS-API-024", "allow_rollup_hdrs", True),
    ("JS-API-025", "allow_direct", True),
    ("JS-API-026", "mirror_direct", True),
)


def _default(requirement: str, field: str, value: object) -> None:
    @jetstream_defect(
        f"stream-default-{field.replace('_', '-')}-is-another",
        breaks=(requirement,),
        summary=f"A stream that is created without {field} is shown with {json.dumps(value)}.",
    )
    def _(broker: Broker) -> None:
        def change(fields: Fields, request: Request) -> None:
            if field not in (body_of(request) or {}):
                fields["config"][field] = value

        alter_success(broker, KIND, change)


for _row in _DEFAULTS:
    _default(*_row)


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
        "JS-API-050",
        "stream-has-five-replicas-at-most",
        "More than five replicas are one.",
        lambda fields, _: fields.update(
            num_replicas=_unless(fields.get("num_replicas", 0), above=5, else_=1)
        ),
    ),
    (
        "JS-API-049",
        "stream-has-one-replica",
        "Up to five replicas are one on a server without cluster.",
        lambda fields, _: fields.update(num_replicas=6 if fields.get("num_replicas", 0) > 5 else 1),
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
        "JS-API-055",
        "stream-discard-new-per-subject-stands-alone",
        "The field discard_new_per_subject without discard new is ignored.",
        lambda fields, _: fields.get("discard") == "new" or fields.pop("discard_new_per_subject", None),
    ),
    (
        "JS-API-055",
        "stream-discard-new-per-subject-needs-no-limit",
        "The field discard_new_per_subject without max_msgs_per_subject is ignored.",
        lambda fields, _: fields.get("max_msgs_per_subject") or fields.pop("discard_new_per_subject", None),
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
    @jetstream_defect(name, breaks=(requirement,), summary=summary)
    def _(broker: Broker) -> None:
        alter_body(broker, KIND, change)


def _legal(name: str, instead: str) -> str:
    """``instead``, for a name that is wrong only because it is another."""
    return instead if name and not set(name) & set(". ") else name


def _unless(value: int, *, above: int, else_: int) -> int:
    return else_ if value > above else value


def _raised(duration: int) -> int:
    return max(duration, 100 * MILLISECOND) if duration > 0 else duration


for _change in _ACCEPTED:
    _accepted(*_change)


# Refused, but with another err_code: the requirement, the name, the err_code, and what its description says.
_ERRORS = (
    ("JS-API-031", "stream-in-use", 10058, ""),
    ("JS-API-033", "stream-overlap", 10065, ""),
    ("JS-API-038", "stream-name-with-wildcards", INVALID_CONFIG, "stream name is required"),
    ("JS-API-040", "stream-name-with-separators", 10128, ""),
    ("JS-API-042", "stream-name-too-long", INVALID_CONFIG, "stream name is too long"),
    ("JS-API-048", "stream-on-the-api", INVALID_CONFIG, "jetstream api"),
)


def _error(requirement: str, name: str, err_code: int, saying: str) -> None:
    @jetstream_defect(
        f"{name}-has-another-code",
        breaks=(requirement,),
        summary=f"A refusal with {err_code} {saying and f'({saying}) '}has err_code 10051.",
    )
    def _(broker: Broker) -> None:
        alter_error(broker, KIND, err_code, 10051, saying=saying)


for _refusal in _ERRORS:
    _error(*_refusal)


@jetstream_defect(
    "stream-create-has-another-type",
    breaks=("JS-API-009",),
    summary="The answer to STREAM.CREATE has the type of a stream info.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        fields["type"] = "io.nats.jetstream.api.v1.stream_info_response"

    alter_success(broker, KIND, change)


@jetstream_defect(
    "stream-configuration-hides-max-msg-size",
    breaks=("JS-API-027",),
    summary="The configuration of a stream in its info lacks max_msg_size.",
)
def _(broker: Broker) -> None:
    alter_success(broker, "stream_info", lambda fields, _: fields["config"].pop("max_msg_size"))


@jetstream_defect(
    "stream-fresh-begins-at-one",
    breaks=("JS-API-028",),
    summary="A fresh stream has first_seq 1 in its state.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if not fields["state"]["last_seq"]:
            fields["state"]["first_seq"] = 1

    alter_success(broker, KIND, change)


@jetstream_defect(
    "stream-created-is-a-number",
    breaks=("JS-API-029",),
    summary="The created of a stream info is a number of seconds.",
)
def _(broker: Broker) -> None:
    alter_success(broker, "stream_info", lambda fields, _: fields.update(created=1795253744))


@jetstream_defect(
    "stream-created-again-is-refused",
    breaks=("JS-API-030",),
    summary="Creating a stream again with the same configuration is refused as well.",
)
def _(broker: Broker) -> None:
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


@jetstream_defect(
    "stream-subjects-may-overlap-inside",
    breaks=("JS-API-035",),
    summary="Of subjects of one stream that overlap the first is used alone.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        first, *others = fields.get("subjects") or [""]
        if any(collide(first.encode(), other.encode()) and other != first for other in others):
            fields["subjects"] = [first]

    alter_body(broker, KIND, change)


@jetstream_defect(
    "stream-without-subjects-listens-below-its-name",
    breaks=("JS-API-036",),
    summary="A stream that is created without subjects listens on all below its name.",
)
def _(broker: Broker) -> None:
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


@jetstream_defect(
    "stream-body-need-not-be-json",
    breaks=("JS-API-043",),
    summary="A body that is not JSON is taken for an empty one.",
)
def _(broker: Broker) -> None:
    _forgive(broker, lambda request: bool(request.body) and body_of(request) is None)


@jetstream_defect(
    "stream-body-may-be-empty",
    breaks=("JS-API-044",),
    summary="An empty body creates a stream of the subject's name.",
)
def _(broker: Broker) -> None:
    _forgive(broker, lambda request: not request.body)


@jetstream_defect(
    "stream-number-as-text-is-ignored",
    breaks=("JS-API-045",),
    summary="Text in a field for a number is ignored.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        for name in [name for name, value in fields.items() if name.startswith("max_")]:
            if isinstance(fields[name], str):
                del fields[name]

    alter_body(broker, KIND, change)


@jetstream_defect(
    "stream-unknown-retention-is-limits",
    breaks=("JS-API-047",),
    summary="A retention that there is not is taken for limits.",
)
def _(broker: Broker) -> None:
    known = ("limits", "interest", "workqueue")

    def change(fields: Fields, request: Request) -> None:
        if fields.get("retention") not in known:
            fields["retention"] = "limits"

    alter_body(broker, KIND, change)
