"""Defects in the API of streams that show with the second of several: subjects, messages."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_answer,
    alter_body,
    alter_success,
    body_of,
)
from plumbline.reference_broker.nats.defects.methods import jetstream_of, method_defect
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.reference_broker.nats.jetstream.subjects import covers
from plumbline.wire.nats.subjects import collide

GET = "stream_msg_get"


# Subjects


@defect("JS-API-069")
def stream_names_look_at_the_first_subject(broker: Broker) -> None:
    """STREAM.NAMES with a subject compares it with the first subject of each stream."""

    def change(fields: Fields, request: Request) -> None:
        wanted = (body_of(request) or {}).get("subject")
        if wanted:
            streams = jetstream_of(broker).streams
            found = [
                name
                for name in fields["streams"] or ()
                if any(collide(wanted.encode(), one) for one in streams[name].config.patterns[:1])
            ]
            fields |= {"streams": found or None, "total": len(found)}

    alter_success(broker, "stream_names", change)


def _without_overlap(broker: Broker, kind: str) -> None:
    """Of the subjects that are asked for, later ones that another stream has are left out."""

    def change(fields: Fields, request: Request) -> None:
        first, *later = fields.get("subjects") or [""]
        taken = [
            pattern
            for name, stream in jetstream_of(broker).streams.items()
            for pattern in stream.config.patterns
            if name != request.names[0]
        ]
        free = [one for one in later if not any(collide(one.encode(), pattern) for pattern in taken)]
        if len(free) < len(later):
            fields["subjects"] = [first, *free]

    alter_body(broker, kind, change)


@defect("JS-API-033")
def later_subjects_of_a_new_stream_may_overlap(broker: Broker) -> None:
    """Creating a stream of which a later subject overlaps makes it without that subject."""
    _without_overlap(broker, "stream_create")


@defect("JS-API-216")
def later_subjects_of_an_update_may_overlap(broker: Broker) -> None:
    """An update that adds a subject of another stream is accepted without that subject."""
    _without_overlap(broker, "stream_update")


@defect("JS-API-216")
def updates_that_overlap_have_another_code(broker: Broker) -> None:
    """An update to subjects of another stream is refused with err_code 10052."""

    def change(fields: Fields, request: Request) -> None:
        if fields.get("error", {}).get("err_code") == errors.STREAM_SUBJECT_OVERLAP.err_code:
            fields["error"] |= {"code": 500, "err_code": 10052}

    alter_answer(broker, "stream_update", change)


@defect("JS-API-033")
def overlap_is_equality(broker: Broker) -> None:
    """A new stream may have a subject that overlaps with one of another stream but is not the same."""

    def change(fields: Fields, request: Request) -> None:
        others = [one for name, one in jetstream_of(broker).streams.items() if name != request.names[0]]
        taken = {pattern.decode() for stream in others for pattern in stream.config.patterns}
        subjects = fields.get("subjects") or []
        literal = [one for one in subjects if "*" not in one]
        if literal and len(literal) < len(subjects) and not taken & set(subjects):
            fields["subjects"] = literal

    alter_body(broker, "stream_create", change)


# Messages


@defect("JS-API-078")
def counts_by_subject_never_fall(broker: Broker) -> None:
    """STREAM.INFO with a subjects_filter goes on counting messages that were removed."""
    highest: dict[str, int] = {}

    def change(fields: Fields, request: Request) -> None:
        for subject, count in fields["state"].get("subjects", {}).items():
            highest[subject] = max(count, highest.get(subject, 0))
            fields["state"]["subjects"][subject] = highest[subject]

    alter_success(broker, "stream_info", change)


@defect("JS-API-078")
def counts_of_a_wildcard_are_of_all_below(broker: Broker) -> None:
    """A subjects_filter that ends with * also counts messages on longer subjects."""

    def change(fields: Fields, request: Request) -> None:
        wanted = fields.get("subjects_filter", "")
        if wanted.endswith(".*"):
            fields["subjects_filter"] = wanted[:-1] + ">"

    alter_body(broker, "stream_info", change)


def _as_answer(message: StoredMessage) -> dict[str, Any]:
    return {
        "subject": message.subject.decode(),
        "seq": message.seq,
        "data": b64encode(message.payload).decode(),
    }


@defect("JS-API-086")
def last_of_a_wildcard_is_by_name(broker: Broker) -> None:
    """STREAM.MSG.GET with a wildcard in last_by_subj gives the last message of the subject last by name."""

    def change(fields: Fields, request: Request) -> None:
        pattern = (body_of(request) or {}).get("last_by_subj", "").encode()
        if b"*" in pattern or b">" in pattern:
            store = jetstream_of(broker).streams[request.names[0]].store
            last = store.last_of(max(one for one in store.subjects() if covers(pattern, one)))
            assert last is not None
            fields["message"] |= _as_answer(last)

    alter_success(broker, GET, change)


@defect("JS-API-087")
def next_from_a_gap_is_missing(broker: Broker) -> None:
    """STREAM.MSG.GET with next_by_subj finds nothing from the sequence of a message that was deleted."""

    def change(fields: Fields, request: Request) -> None:
        asked = body_of(request) or {}
        stream = jetstream_of(broker).streams.get(request.names[0])
        if "next_by_subj" in asked and stream is not None and stream.store.load(asked.get("seq", 0)) is None:
            fields.pop("message", None)
            fields["error"] = errors.NO_MESSAGE_FOUND().reply()

    alter_answer(broker, GET, change)


# Limits


@method_defect(Stream.remove, "JS-PUB-041")
def max_age_ends_with_a_removal(self: Stream, seq: int, now: int) -> bool:
    """Once the oldest message was deleted none leaves by max_age."""
    was_first = seq == self.store.first_seq
    removed = Stream.remove(self, seq, now)
    if was_first and self.config.max_age > 0:
        self.config = msgspec.structs.replace(self.config, max_age=0)
    return removed


@method_defect(Stream.reconfigure, "JS-PUB-048")
def updates_end_lifetimes(self: Stream, config: StreamConfig, now: int) -> None:
    """After an update of a stream messages with Nats-TTL stay."""
    Stream.reconfigure(self, config, now)
    self.lifetimes = type(self.lifetimes)()


@method_defect(Stream.enforce_limits, "JS-PUB-042")
def copies_know_no_limit_by_subject(self: Stream, subject: bytes | None, now: int) -> None:
    """max_msgs_per_subject does not limit a stream with sources."""
    config = self.config
    if config.sources:
        self.config = msgspec.structs.replace(config, max_msgs_per_subject=-1)
    try:
        Stream.enforce_limits(self, subject, now)
    finally:
        self.config = config
