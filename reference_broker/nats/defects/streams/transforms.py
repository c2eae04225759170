"""Defects in what ``subject_transform`` and ``subject_transforms`` make of subjects, and what they take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_body, alter_success
from plumbline.reference_broker.nats.defects.methods import alter_streams, jetstream_of, method_defect
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.streams import copying
from plumbline.reference_broker.nats.jetstream.streams.mapping import mapping, mapping_ends
from plumbline.reference_broker.nats.jetstream.streams.origins import ANY_SUBJECT, stored_subject, transforms
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

Origin = dict[str, Any]
Ends = tuple[str, str]  # src and dest
DESTINATION = re.compile(r"\$(\d+)|\{\{wildcard\((\d+)\)\}\}")


# -- the transform of a stream ---------------------------------------------------------------------


@method_defect(Stream.publish, "JS-API-217")
def transform_is_a_filter(
    self: Stream, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
) -> None:
    """A stream with a subject_transform does not take what its src does not match."""
    if self.transform is None or self.transform(subject) is not None:
        Stream.publish(self, subject, reply, header_block, payload, now)


@method_defect(Stream.subject_on_entry, "JS-API-217")
def transform_matches_the_beginning(self: Stream, subject: bytes) -> bytes:
    """The src of a subject_transform matches also longer subjects that begin as it does."""
    src, dest = mapping_ends(self.config.subject_transform or {})
    if src.endswith(ANY_SUBJECT):
        return Stream.subject_on_entry(self, subject)
    beginning = b".".join(subject.split(b".")[: len(src.split("."))])
    return mapping(src, dest)(beginning) or subject


def _destination_defect(name: str, summary: str, change: Callable[[str], str], *requirements: str) -> None:
    """The dest of a subject_transform is read as another."""

    def give(broker: Broker) -> None:
        def changed(fields: Fields, request: Request) -> None:
            transform = fields.get("subject_transform") or {}
            if "dest" in transform:
                transform["dest"] = change(transform["dest"])

        alter_body(broker, "stream_create", changed)

    give.__doc__ = summary
    defect(*requirements, name=name)(give)


def in_order(dest: str) -> str:
    """Its wildcards, numbered from the first to the last."""
    numbers = iter(range(1, 10))
    return DESTINATION.sub(lambda found: f"${next(numbers)}", dest)


def _functions_as(what: str) -> Callable[[str], str]:
    return lambda dest: re.sub(r"\{\{(?!wildcard)\w+\([^}]*\)\}\}", what, dest)


_destination_defect(
    "transform-wildcards-come-in-order",
    "The wildcards in the dest of a subject_transform come in the order of its src.",
    in_order,
    "JS-API-218",
)
_destination_defect(
    "transform-drops-the-rest",
    "The > at the end of the dest of a subject_transform adds nothing.",
    lambda dest: dest.removesuffix(".>"),
    "JS-API-218",
)
_destination_defect(
    "transform-functions-are-the-whole-token",
    "A function in the dest of a subject_transform gives the first wildcard unchanged.",
    _functions_as("$1"),
    "JS-API-218",
)
_destination_defect(
    "transform-partitions-are-all-0",
    "The function partition in the dest of a subject_transform gives 0 always.",
    lambda dest: re.sub(r"\{\{partition\([^}]*\)\}\}", "0", dest),
    "JS-API-218",
)


@defect("JS-API-219")
def transform_comes_when_a_message_is_read(broker: Broker) -> None:
    """A message is stored under the subject that it was published on, and shown under the one of dest."""

    def subject_on_entry(self: Stream, subject: bytes) -> bytes:
        return subject

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams[request.names[0]]
        message = fields["message"]
        message["subject"] = Stream.subject_on_entry(stream, message["subject"].encode()).decode()

    alter_streams(broker, subject_on_entry=subject_on_entry)
    alter_success(broker, "stream_msg_get", change)


@method_defect(Stream.store_sourced, "JS-API-220")
def transform_is_not_for_sources(
    self: Stream, source: Origin, message: StoredMessage, now: int
) -> StoredMessage | None:
    """What comes from a source does not pass the subject_transform of the stream."""
    return _untransformed(self, lambda: Stream.store_sourced(self, source, message, now))


@method_defect(Stream.store_mirrored, "JS-API-220")
def transform_is_not_for_mirrors(self: Stream, message: StoredMessage) -> StoredMessage | None:
    """What a mirror gets does not pass the subject_transform of the stream."""
    return _untransformed(self, lambda: Stream.store_mirrored(self, message))


@method_defect(Stream.store_sourced, "JS-API-220")
def transform_of_the_stream_comes_first(
    self: Stream, source: Origin, message: StoredMessage, now: int
) -> StoredMessage | None:
    """The subject_transform of a stream is for the subject that a message had at its source."""
    if self.transform is None or not transforms(source):
        return Stream.store_sourced(self, source, message, now)
    subject = Stream.subject_on_entry(self, message.subject)
    changed = msgspec.structs.replace(message, subject=subject)
    origin = source if subject == message.subject else {**source, "subject_transforms": None}
    return _untransformed(self, lambda: Stream.store_sourced(self, origin, changed, now))


def _untransformed(stream: Stream, store: Callable[[], StoredMessage | None]) -> StoredMessage | None:
    transform, stream.transform = stream.transform, None
    try:
        return store()
    finally:
        stream.transform = transform


# -- the transforms of sources and mirrors ---------------------------------------------------------


def _to_any_subject(ends: Sequence[Fields]) -> Sequence[Fields]:
    return [*ends, {"src": ANY_SUBJECT, "dest": ""}]


def _unchanged(ends: Sequence[Fields]) -> Sequence[Fields]:
    return [{**each, "dest": ""} for each in ends]


def _first(ends: Sequence[Fields]) -> Sequence[Fields]:
    return ends[:1]


def _last(ends: Sequence[Fields]) -> Sequence[Fields]:
    return ends[-1:]


def _with_dest(ends: Sequence[Fields]) -> Sequence[Fields]:
    return [each for each in ends if each.get("dest")]


CHANGES = {
    "do-not-filter": ("take also what none of them matches", _to_any_subject),
    "keep-subjects": ("store what they match under its own subject", _unchanged),
    "are-the-first": ("count up to the first", _first),
    "are-the-last": ("count from the last", _last),
    "need-a-dest": ("count if they have a dest", _with_dest),
}


def _changed(origin: Origin, change: Callable[[Sequence[Fields]], Sequence[Fields]]) -> Origin:
    ends = origin.get("subject_transforms")
    return {**origin, "subject_transforms": change(ends)} if ends else origin


def _of_sources(change: Callable[[Sequence[Fields]], Sequence[Fields]]) -> Callable[[Broker], None]:
    def sources_that_take(self: Stream, origin: str, message: StoredMessage) -> Iterable[Origin]:
        sources = [_changed(source, change) for source in self.config.sources or ()]
        return copying.matching_sources(sources, origin, message)

    return lambda broker: alter_streams(broker, sources_that_take=sources_that_take)


def _of_mirrors(change: Callable[[Sequence[Fields]], Sequence[Fields]]) -> Callable[[Broker], None]:
    def store_mirrored(self: Stream, message: StoredMessage) -> StoredMessage | None:
        return _mirrored_as(self, _changed(self.config.mirror or {}, change), message)

    return lambda broker: alter_streams(broker, store_mirrored=store_mirrored)


def _mirrored_as(stream: Stream, mirror: Origin, message: StoredMessage) -> StoredMessage | None:
    """A message is stored as if this was the stream's mirror."""
    config, stream.config = stream.config, msgspec.structs.replace(stream.config, mirror=mirror)
    try:
        return Stream.store_mirrored(stream, message)
    finally:
        stream.config = config


def _register(requirement: str, kind: str, name: str, summary: str, give: Callable[[Broker], None]) -> None:
    give.__doc__ = f"The subject_transforms of a {kind} {summary}."
    defect(requirement, name=f"{kind}-transforms-{name}")(give)


for _name, (_summary, _change) in CHANGES.items():
    _register("JS-API-221", "source", _name, _summary, _of_sources(_change))
    _register("JS-API-222", "mirror", _name, _summary, _of_mirrors(_change))


@method_defect(Stream.sources_that_take, "JS-API-221")
def source_transforms_are_for_what_there_was(
    self: Stream, origin: str, message: StoredMessage
) -> Iterable[Origin]:
    """The subject_transforms of a source are for what its origin had when the stream was made."""
    if message.time <= self.created:
        return Stream.sources_that_take(self, origin, message)
    sources = [{**source, "subject_transforms": None} for source in self.config.sources or ()]
    return copying.matching_sources(sources, origin, message)


@method_defect(Stream.store_mirrored, "JS-API-222", "JS-API-225")
def filtered_mirror_has_no_gaps(self: Stream, message: StoredMessage) -> StoredMessage | None:
    """A mirror that takes some messages of its origin gives them the sequences from 1 on."""
    mirror = self.config.mirror or {}
    if not (mirror.get("filter_subject") or mirror.get("subject_transforms")):
        return Stream.store_mirrored(self, message)
    subject = stored_subject(mirror, message.subject)
    if subject is None:
        return None
    return self.store.append(subject, message.header_block, message.payload, message.time)


@method_defect(Stream.store_mirrored, "JS-API-222", "JS-API-225")
def mirror_filters_what_there_was(self: Stream, message: StoredMessage) -> StoredMessage | None:
    """A mirror takes all that its origin stores after the mirror was made."""
    mirror = self.config.mirror or {}
    if message.time > self.created:
        mirror = {**mirror, "filter_subject": None, "subject_transforms": None}
    return _mirrored_as(self, mirror, message)


@method_defect(Stream.store_mirrored, "JS-API-225")
def mirror_filter_is_ignored(self: Stream, message: StoredMessage) -> StoredMessage | None:
    """A mirror with a filter_subject takes all messages of its origin."""
    return _mirrored_as(self, {**(self.config.mirror or {}), "filter_subject": None}, message)


@method_defect(Stream.sources_that_take, "JS-API-224")
def first_source_takes_a_message(self: Stream, origin: str, message: StoredMessage) -> Iterable[Origin]:
    """Of the sources that match a message of one stream, only the first takes it."""
    return list(Stream.sources_that_take(self, origin, message))[:1]


# -- destinations that no server takes ---------------------------------------------------------------


def _any_token(src: str, dest: str) -> Ends:
    return src, dest.replace("*", "any")


def _same_tail(src: str, dest: str) -> Ends:
    if (src or ANY_SUBJECT).endswith(ANY_SUBJECT):
        return src, dest if not dest or dest.endswith(ANY_SUBJECT) else f"{dest}.{ANY_SUBJECT}"
    return src, dest.removesuffix(f".{ANY_SUBJECT}")


def _no_empty_token(src: str, dest: str) -> Ends:
    return src.replace("..", "."), dest.replace("..", ".")


_LENIENCIES: tuple[tuple[str, str, Callable[[str, str], Ends]], ...] = (
    ("wildcards", "* in a dest", _any_token),
    ("tails", "> in one of src and dest", _same_tail),
    ("empty-tokens", "empty tokens", _no_empty_token),
)


def _leniency(
    requirement: str, name: str, summary: str, of: Callable[[Fields], list[Any]], repair: Any
) -> None:
    """A stream is created as if each of its mappings that ``of`` gives were repaired first."""

    def give(broker: Broker) -> None:
        def changed(fields: Fields, request: Request) -> None:
            for each in of(fields):
                if isinstance(each, dict):
                    src, dest = repair(*mapping_ends(each))
                    each |= {"src": src, "dest": dest}

        alter_body(broker, "stream_create", changed)

    give.__doc__ = summary
    defect(requirement, name=name)(give)


def _mappings_of_stream(fields: Fields) -> list[Any]:
    return [fields.get("subject_transform")]


def _mappings_of_mirror(fields: Fields) -> list[Any]:
    return (fields.get("mirror") or {}).get("subject_transforms") or []


def _mappings_of_sources(fields: Fields) -> list[Any]:
    return [one for source in fields.get("sources") or () for one in source.get("subject_transforms") or ()]


def _mappings_of_republish(fields: Fields) -> list[Any]:
    return [fields.get("republish")]


for _name, _what, _repair in _LENIENCIES:
    _leniency(
        "JS-API-240",
        f"transform-takes-{_name}",
        f"A subject_transform may have {_what}.",
        _mappings_of_stream,
        _repair,
    )
    _leniency(
        "JS-API-241",
        f"republish-takes-{_name}",
        f"A republish may have {_what}.",
        _mappings_of_republish,
        _repair,
    )
for _name, _what, _repair in _LENIENCIES[:2]:
    _leniency(
        "JS-API-240",
        f"source-transform-takes-{_name}",
        f"A source may have {_what}.",
        _mappings_of_sources,
        _repair,
    )
    _leniency(
        "JS-API-240",
        f"mirror-transform-takes-{_name}",
        f"A mirror may have {_what}.",
        _mappings_of_mirror,
        _repair,
    )
