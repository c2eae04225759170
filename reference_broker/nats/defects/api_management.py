"""Defects in updates, deletes, lists, infos and purges of streams."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_error,
    alter_request,
    alter_success,
)
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_streams,
    jetstream_defect,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

STREAM_NOT_FOUND = 10059

# Refused, but with another err_code: the requirement, the name, the kind of request, the err_codes.
_ERRORS = (
    ("JS-API-057", "stream-update-of-none", "stream_update", STREAM_NOT_FOUND, 10052),
    ("JS-API-063", "stream-update-of-another", "stream_update", 10056, STREAM_NOT_FOUND),
    ("JS-API-064", "stream-info-of-none", "stream_info", STREAM_NOT_FOUND, 10014),
    ("JS-API-066", "stream-delete-of-none", "stream_delete", STREAM_NOT_FOUND, 10014),
    ("JS-API-084", "purge-of-none", "stream_purge", STREAM_NOT_FOUND, 10110),
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


# Updates


@jetstream_defect(
    "stream-update-keeps-max-msgs",
    breaks=("JS-API-058",),
    summary="An update that adds subjects leaves max_msgs as it was.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if len(fields.get("subjects", ())) > 1:
            fields.pop("max_msgs", None)

    alter_body(broker, "stream_update", change)


def _kept(broker: Broker, field: str, value: str) -> None:
    """An update to ``value`` is as good as one that leaves the field as it is."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if stream is not None and fields.get(field) == value:
            fields[field] = getattr(stream.config, field)

    alter_body(broker, "stream_update", change)


@jetstream_defect(
    "stream-update-ignores-storage", breaks=("JS-API-059",), summary="An update to file storage is ignored."
)
def _(broker: Broker) -> None:
    _kept(broker, "storage", "file")


@jetstream_defect(
    "stream-update-ignores-retention", breaks=("JS-API-060",), summary="An update to a work queue is ignored."
)
def _(broker: Broker) -> None:
    _kept(broker, "retention", "workqueue")


# Deletes


@jetstream_defect(
    "stream-delete-has-no-success",
    breaks=("JS-API-065",),
    summary="The answer to STREAM.DELETE lacks success.",
)
def _(broker: Broker) -> None:
    alter_success(broker, "stream_delete", lambda fields, _: fields.pop("success"))


@jetstream_defect(
    "stream-delete-ignores-its-body",
    breaks=("JS-API-067",),
    summary="STREAM.DELETE with a body deletes as well.",
)
def _(broker: Broker) -> None:
    alter_request(broker, "stream_delete", lambda request: msgspec.structs.replace(request, body=b""))


# Lists


@jetstream_defect(
    "stream-names-are-unsorted",
    breaks=("JS-API-068",),
    summary="STREAM.NAMES gives the names in reverse order.",
)
def _(broker: Broker) -> None:
    alter_success(broker, "stream_names", lambda fields, _: (fields["streams"] or []).reverse())


@jetstream_defect(
    "stream-names-limit-is-256", breaks=("JS-API-068",), summary="STREAM.NAMES tells a limit of 256."
)
def _(broker: Broker) -> None:
    alter_success(broker, "stream_names", lambda fields, _: fields.update(limit=256))


@jetstream_defect(
    "stream-names-have-no-subject",
    breaks=("JS-API-069",),
    summary="STREAM.NAMES does not look at a subject without wildcards.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if "*" not in fields.get("subject", "*"):
            del fields["subject"]

    alter_body(broker, "stream_names", change)


@jetstream_defect(
    "stream-names-have-no-offset",
    breaks=("JS-API-070",),
    summary="STREAM.NAMES begins with the first name always.",
)
def _(broker: Broker) -> None:
    alter_body(broker, "stream_names", lambda fields, _: fields.pop("offset", None))


@jetstream_defect(
    "stream-list-gives-names", breaks=("JS-API-072",), summary="STREAM.LIST gives names in place of infos."
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        fields["streams"] = [{"name": info["config"]["name"]} for info in fields["streams"]]

    alter_success(broker, "stream_list", change)


@jetstream_defect(
    "stream-names-of-none-are-missing",
    breaks=("JS-API-073",),
    summary="STREAM.NAMES that finds no stream is answered as if there were an error.",
)
def _(broker: Broker) -> None:
    _not_found(broker, "stream_names")


@jetstream_defect(
    "stream-list-of-none-is-missing",
    breaks=("JS-API-074",),
    summary="STREAM.LIST that finds no stream is answered as if there were an error.",
)
def _(broker: Broker) -> None:
    _not_found(broker, "stream_list")


def _not_found(broker: Broker, kind: str) -> None:
    def change(fields: Fields, request: Request) -> None:
        if not fields["total"]:
            fields["error"] = {"code": 404, "err_code": STREAM_NOT_FOUND, "description": "stream not found"}

    alter_success(broker, kind, change)


# Infos


@jetstream_defect(
    "stream-state-has-no-subject-count",
    breaks=("JS-API-077",),
    summary="The state of a stream lacks num_subjects.",
)
def _(broker: Broker) -> None:
    alter_success(broker, "stream_info", lambda fields, _: fields["state"].pop("num_subjects", None))


@jetstream_defect(
    "stream-state-counts-all-subjects",
    breaks=("JS-API-078",),
    summary="STREAM.INFO counts all subjects, whatever the subjects_filter.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if fields.get("subjects_filter"):
            fields["subjects_filter"] = ">"

    alter_body(broker, "stream_info", change)


# Purges


@jetstream_defect(
    "purge-tells-nothing", breaks=("JS-API-079",), summary="The answer to a purge has purged 0."
)
def _(broker: Broker) -> None:
    alter_success(broker, "stream_purge", lambda fields, _: fields.update(purged=0))


def _purge(broker: Broker, change: Callable[[int, int], tuple[int, int]]) -> None:
    """A purge takes other values of ``below`` and ``keep``."""

    def purgeable(self: Stream, subject: bytes | None, below: int, keep: int) -> list[int]:
        return Stream.purgeable(self, subject, *change(below, keep))

    alter_streams(broker, purgeable=purgeable)


@jetstream_defect(
    "purge-takes-the-sequence-as-well",
    breaks=("JS-API-080",),
    summary="A purge with seq removes that message as well.",
)
def _(broker: Broker) -> None:
    _purge(broker, lambda below, keep: (below and below + 1, keep))


@jetstream_defect("purge-keeps-one-less", breaks=("JS-API-081",), summary="A purge keeps one message less.")
def _(broker: Broker) -> None:
    _purge(broker, lambda below, keep: (below, max(keep - 1, 0)))


@jetstream_defect(
    "purge-has-no-filter", breaks=("JS-API-082",), summary="A purge with filter removes all subjects."
)
def _(broker: Broker) -> None:
    alter_body(broker, "stream_purge", lambda fields, _: fields.pop("filter", None))


@jetstream_defect(
    "purge-with-seq-and-keep-takes-keep",
    breaks=("JS-API-083",),
    summary="Of seq and keep in one purge keep is used.",
)
def _(broker: Broker) -> None:
    alter_body(broker, "stream_purge", lambda fields, _: "keep" in fields and fields.pop("seq", None))
