"""Defects in updates, deletes, lists, infos and purges of streams."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_request,
    alter_success,
    body_of,
    refuse,
)
from plumbline.reference_broker.nats.defects.methods import (
    alter_streams,
    jetstream_of,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

# Updates


@defect("JS-API-058")
def stream_update_keeps_max_msgs(broker: Broker) -> None:
    """An update that adds subjects leaves max_msgs as it was."""

    def change(fields: Fields, request: Request) -> None:
        if len(fields.get("subjects", ())) > 1:
            fields.pop("max_msgs", None)

    alter_body(broker, "stream_update", change)


def _kept(broker: Broker, field: str, value: str) -> None:
    """An update to ``value`` has the effect of one that leaves the field as it is."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if stream is not None and fields.get(field) == value:
            fields[field] = getattr(stream.config, field)

    alter_body(broker, "stream_update", change)


@defect("JS-API-059")
def stream_update_ignores_storage(broker: Broker) -> None:
    """An update to file storage is ignored."""
    _kept(broker, "storage", "file")


@defect("JS-API-060")
def stream_update_ignores_retention(broker: Broker) -> None:
    """An update to a work queue is ignored."""
    _kept(broker, "retention", "workqueue")


# Deletes


@defect("JS-API-067")
def stream_delete_ignores_its_body(broker: Broker) -> None:
    """STREAM.DELETE with a body deletes as well."""
    alter_request(broker, "stream_delete", lambda request: msgspec.structs.replace(request, body=b""))


# Lists


@defect("JS-API-068")
def stream_names_are_unsorted(broker: Broker) -> None:
    """STREAM.NAMES gives the names in reverse order."""
    alter_success(broker, "stream_names", lambda fields, _: (fields["streams"] or []).reverse())


@defect("JS-API-069")
def stream_names_have_no_subject(broker: Broker) -> None:
    """STREAM.NAMES does not look at a subject without wildcards."""

    def change(fields: Fields, request: Request) -> None:
        if "*" not in fields.get("subject", "*"):
            del fields["subject"]

    alter_body(broker, "stream_names", change)


@defect("JS-API-072")
def stream_list_gives_names(broker: Broker) -> None:
    """STREAM.LIST gives names in place of infos."""

    def change(fields: Fields, request: Request) -> None:
        fields["streams"] = [{"name": info["config"]["name"]} for info in fields["streams"]]

    alter_success(broker, "stream_list", change)


@defect("JS-API-151")
def consumer_list_has_half_pages(broker: Broker) -> None:
    """CONSUMER.LIST gives 128 consumers at a time, and says 256."""
    alter_success(
        broker, "consumer_list", lambda fields, _: fields["consumers"].__delitem__(slice(128, None))
    )


# Infos


# Purges


def _purge(broker: Broker, change: Callable[[int, int], tuple[int, int]]) -> None:
    """A purge takes other values of ``below`` and ``keep``."""

    def purgeable(self: Stream, subject: bytes | None, below: int, keep: int) -> list[int]:
        return Stream.purgeable(self, subject, *change(below, keep))

    alter_streams(broker, purgeable=purgeable)


@defect("JS-API-080")
def purge_takes_the_sequence_as_well(broker: Broker) -> None:
    """A purge with seq removes that message as well."""
    _purge(broker, lambda below, keep: (below and below + 1, keep))


@defect("JS-API-081")
def purge_keeps_one_less(broker: Broker) -> None:
    """A purge keeps one message less."""
    _purge(broker, lambda below, keep: (below, max(keep - 1, 0)))


@method_defect(Stream.purgeable, "JS-API-081")
def purge_in_memory_keeps_sequences(self: Stream, subject: bytes | None, below: int, keep: int) -> list[int]:
    """A purge of a stream in memory keeps the last so many sequences, though messages of them are deleted."""
    if subject is None and keep and self.config.storage == "memory":
        return [each.seq for each in self.store.messages() if each.seq <= self.store.last_seq - keep]
    return Stream.purgeable(self, subject, below, keep)


@method_defect(Stream.purgeable, "JS-API-081")
def purge_in_files_keeps_sequences(self: Stream, subject: bytes | None, below: int, keep: int) -> list[int]:
    """A purge of a stream in files keeps the last so many sequences, though messages of them are deleted."""
    if subject is None and keep and self.config.storage == "file":
        return [each.seq for each in self.store.messages() if each.seq <= self.store.last_seq - keep]
    return Stream.purgeable(self, subject, below, keep)


@method_defect(Stream.purgeable, "JS-API-081")
def purge_keeps_no_more_than_half(self: Stream, subject: bytes | None, below: int, keep: int) -> list[int]:
    """A purge that is to keep all messages removes the first."""
    found = Stream.purgeable(self, subject, below, keep)
    is_all = subject is None and 0 < len(self.store) <= keep
    return [self.store.first_seq] if is_all else found


def _purges_all_below_1(broker: Broker, storage: str) -> None:
    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if stream is not None and stream.config.storage == storage and fields.get("seq") == 1:
            fields["seq"] = 0

    alter_body(broker, "stream_purge", change)


@defect("JS-API-080")
def purge_below_the_first_takes_all(broker: Broker) -> None:
    """A purge of a stream in memory with seq 1 removes everything."""
    _purges_all_below_1(broker, "memory")


@defect("JS-API-080")
def purge_in_files_below_the_first_takes_all(broker: Broker) -> None:
    """A purge of a stream in files with seq 1 removes everything."""
    _purges_all_below_1(broker, "file")


@defect("JS-API-080")
def purge_below_a_gap_fails(broker: Broker) -> None:
    """A purge with the seq of a message that is deleted is refused."""
    error = errors.NO_MESSAGE_FOUND()

    def is_gap(request: Request) -> bool:
        stream = jetstream_of(broker).streams.get(request.names[0])
        seq = (body_of(request) or {}).get("seq", 0)
        return stream is not None and 0 < seq <= stream.store.last_seq and stream.store.load(seq) is None

    refuse(broker, "stream_purge", error, is_gap)


@defect("JS-API-099")
def purge_with_an_empty_object_is_refused(broker: Broker) -> None:
    """A purge of everything is refused if its body is an empty object."""
    refuse(broker, "stream_purge", errors.BAD_REQUEST(), lambda request: body_of(request) == {})


@method_defect(Stream.purgeable, "JS-API-213")
def purge_of_a_subject_passes_over_seq(
    self: Stream, subject: bytes | None, below: int, keep: int
) -> list[int]:
    """A purge with filter and seq removes what is on the subject above the sequence as well."""
    return Stream.purgeable(self, subject, below if subject is None else 0, keep)


@method_defect(Stream.purgeable, "JS-API-213")
def purge_of_several_subjects_takes_the_first(
    self: Stream, subject: bytes | None, below: int, keep: int
) -> list[int]:
    """A purge whose filter has a wildcard removes the messages of one subject alone."""
    found = Stream.purgeable(self, subject, below, keep)
    if subject is None or b"*" not in subject:
        return found
    subjects = {seq: message.subject for seq in found if (message := self.store.load(seq)) is not None}
    return [seq for seq in found if subjects[seq] == subjects[found[0]]]
