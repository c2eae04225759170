"""Defects that only the streams of buckets have: key-value and object stores. What is right: any stream."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_direct_get,
    alter_success,
    first_of_the_subject,
)
from plumbline.reference_broker.nats.defects.methods import (
    alter_consumers,
    alter_streams,
    jetstream_of,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.publish import PublishHeaders
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


def _is_bucket(stream: Stream) -> bool:
    return stream.config.name.startswith("KV_")


def _is_object_store(stream: Stream) -> bool:
    return stream.config.name.startswith("OBJ_")


# Key-value buckets


@method_defect(Stream.derive_settings, "JS-KV-001")
def kv_bucket_discards_old(self: Stream) -> None:
    """A bucket is created with discard old."""
    if _is_bucket(self):
        self.config = msgspec.structs.replace(self.config, discard="old")
    Stream.derive_settings(self)


Stored = tuple[StoredMessage | None, bytes]


def _alter_puts(broker: Broker, put: Callable[[Stream, bytes, bytes, bytes, int], Stored]) -> None:
    """Publishes into buckets are accepted by ``put``: of stream, subject, header block, payload, time."""

    def accept(self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int) -> Stored:
        accept = put if _is_bucket(self) else Stream.accept
        return accept(self, subject, header_block, payload, now)

    alter_streams(broker, accept=accept)


@defect("JS-KV-002")
def kv_revisions_count_per_key(broker: Broker) -> None:
    """The PubAck of a put tells how many revisions the key has."""

    def put(self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int) -> Stored:
        message, answer = Stream.accept(self, subject, header_block, payload, now)
        return message, self.puback % self.store.count_of(subject) if message else answer

    _alter_puts(broker, put)


@defect("JS-KV-003")
def kv_get_gives_the_oldest_value(broker: Broker) -> None:
    """A get gives the oldest value of the key."""

    def change(path: bytes, body: bytes) -> tuple[bytes, bytes]:
        return first_of_the_subject(path, body) if path.startswith(b"KV_") else (path, body)

    alter_direct_get(broker, change)


@defect("JS-KV-005")
def kv_missing_key_is_an_empty_value(broker: Broker) -> None:
    """A get of a key that was never put is answered with an empty message."""
    host = jetstream_of(broker).host
    publish = host.publish

    def published(subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> int:
        if header_block.startswith(b"NATS/1.0 404 Message Not Found"):
            header_block = b""
        return publish(subject, reply, header_block, payload)

    replace(host, "publish", published)


@defect("JS-KV-006")
def kv_legacy_get_is_not_in_base64(broker: Broker) -> None:
    """STREAM.MSG.GET from a bucket gives a value as it is."""

    def change(fields: Fields, request: Request) -> None:
        if request.names[0].startswith("KV_"):
            stream = jetstream_of(broker).streams[request.names[0]]
            message = stream.store.load(fields["message"]["seq"])
            fields["message"]["data"] = message.payload.decode() if message else ""

    alter_success(broker, "stream_msg_get", change)


def _alter_expectation(broker: Broker, check: Callable[[Stream, bytes, PublishHeaders], None]) -> None:
    def checked(self: Stream, subject: bytes, directives: PublishHeaders) -> None:
        (check if _is_bucket(self) else Stream.check_expected_last_subject_seq)(self, subject, directives)

    alter_streams(broker, check_expected_last_subject_seq=checked)


@defect("JS-KV-007")
def kv_create_overwrites(broker: Broker) -> None:
    """A create of a key that has a value replaces it."""

    def check(self: Stream, subject: bytes, directives: PublishHeaders) -> None:
        if directives.expected_last_subject_seq != 0:
            Stream.check_expected_last_subject_seq(self, subject, directives)

    _alter_expectation(broker, check)


@defect("JS-KV-008")
def kv_update_on_any_older_revision(broker: Broker) -> None:
    """An update is stored if the key ever had the revision it names."""

    def check(self: Stream, subject: bytes, directives: PublishHeaders) -> None:
        known = self.store.load(directives.expected_last_subject_seq or 0)
        if known is None or known.subject != subject:
            Stream.check_expected_last_subject_seq(self, subject, directives)

    _alter_expectation(broker, check)


@defect("JS-KV-008")
def kv_update_minds_other_keys(broker: Broker) -> None:
    """An update is refused if another key has changed since."""

    def check(self: Stream, subject: bytes, directives: PublishHeaders) -> None:
        if directives.expected_last_subject_seq not in (None, 0, self.store.last_seq):
            raise errors.WRONG_LAST_SEQUENCE(seq=self.store.last_seq)
        Stream.check_expected_last_subject_seq(self, subject, directives)

    _alter_expectation(broker, check)


@defect("JS-KV-009")
def kv_delete_removes_the_history(broker: Broker) -> None:
    """A deletion marker removes the earlier revisions of its key."""

    def put(self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int) -> Stored:
        stored = Stream.accept(self, subject, header_block, payload, now)
        if b"KV-Operation: DEL" in header_block:
            self.purge(now, subject, keep=1)
        return stored

    _alter_puts(broker, put)


@method_defect(Stream.roll_up, "JS-KV-010")
def kv_purge_keeps_a_revision(self: Stream, subject: bytes, rollup: str, now: int) -> None:
    """A purge leaves the last value of the key beside its marker."""
    if _is_bucket(self) and rollup == "sub":
        self.purge(now, subject, keep=2)
    else:
        Stream.roll_up(self, subject, rollup, now)


@method_defect(Stream.check_room_of_subject, "JS-KV-011")
def kv_full_history_refuses(self: Stream, subject: bytes, directives: PublishHeaders) -> None:
    """A put on a key whose history is full is refused."""
    if _is_bucket(self) and self.is_full(subject):
        raise errors.STORE_FAILED(reason="maximum messages per subject exceeded")
    Stream.check_room_of_subject(self, subject, directives)


def _count_itself(broker: Broker, is_meant: Callable[[Stream], bool]) -> None:
    """The ack subject of a message counts the message itself among those that follow."""

    def pending_after(self: Consumer, deliveries: int) -> int:
        return Consumer.pending_after(self, deliveries) + is_meant(self.stream)

    alter_consumers(broker, pending_after=pending_after)


@defect("JS-KV-012")
def kv_watch_counts_itself(broker: Broker) -> None:
    """The ack subject of a watch counts its own message among those that follow."""
    _count_itself(broker, _is_bucket)


@method_defect(Consumer.content, "JS-KV-014")
def kv_keys_come_without_sizes(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """A watch without values does not tell their sizes."""
    if self.config.headers_only and _is_bucket(self.stream):
        return message.header_block, b""
    return Consumer.content(self, message)


@defect("JS-KV-016")
def kv_equals_sign_ends_a_key(broker: Broker) -> None:
    """A key is cut at an equals sign when it is stored."""

    def put(self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int) -> Stored:
        return Stream.accept(self, subject.partition(b"=")[0], header_block, payload, now)

    _alter_puts(broker, put)


@method_defect(Stream.expire, "JS-KV-017")
def kv_key_leaves_no_marker(self: Stream, seq: int, now: int) -> None:
    """subject_delete_marker_ttl is ignored: a key whose time is over just goes."""
    self.remove(seq, now)


# Object stores


@method_defect(Stream.accept, "JS-OBJ-002")
def obj_metadata_in_lower_case(
    self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
) -> tuple[StoredMessage | None, bytes]:
    """Metadata is stored in lower case, the digest too."""
    if _is_object_store(self) and b".M." in subject:
        payload = payload.lower()
    return Stream.accept(self, subject, header_block, payload, now)


def _roll_up(broker: Broker, instead: str) -> None:
    """In buckets, every Nats-Rollup is taken for ``instead``."""

    def roll_up(self: Stream, subject: bytes, rollup: str, now: int) -> None:
        Stream.roll_up(self, subject, instead if rollup and _is_object_store(self) else rollup, now)

    alter_streams(broker, roll_up=roll_up)


@defect("JS-OBJ-003")
def obj_old_metadata_stays(broker: Broker) -> None:
    """Nats-Rollup does nothing in a bucket."""
    _roll_up(broker, "")


@defect("JS-OBJ-003")
def obj_metadata_removes_chunks(broker: Broker) -> None:
    """Metadata with Nats-Rollup: sub removes everything before it."""
    _roll_up(broker, "all")


@defect("JS-OBJ-004")
def obj_last_chunk_is_not_told(broker: Broker) -> None:
    """The ack subject of a chunk counts the chunk itself among those that follow."""
    _count_itself(broker, _is_object_store)


@method_defect(Stream.purge, "JS-OBJ-005")
def obj_purge_leaves_a_chunk(
    self: Stream, now: int, subject: bytes | None = None, *, below: int = 0, keep: int = 0
) -> int:
    """A purge of the chunks of an object leaves the last one."""
    if _is_object_store(self) and subject and b".C." in subject:
        keep = 1
    return Stream.purge(self, now, subject, below=below, keep=keep)
