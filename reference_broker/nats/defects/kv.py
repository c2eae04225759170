"""Defects that only the streams of key-value buckets have. What is right: the rules of any stream."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_answer, alter_success
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    alter_streams,
    jetstream_defect,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.publish import Directives
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


def _is_bucket(stream: Stream) -> bool:
    return stream.config.name.startswith("KV_")


@jetstream_defect(
    "kv-bucket-discards-old", breaks=("JS-KV-001",), summary="A bucket is created with discard old."
)
def _(broker: Broker) -> None:
    def configured(self: Stream) -> None:
        if _is_bucket(self):
            self.config = msgspec.structs.replace(self.config, discard="old")
        Stream.configured(self)

    alter_streams(broker, configured=configured)


Stored = tuple[Message | None, bytes]


def _alter_puts(broker: Broker, put: Callable[[Stream, bytes, bytes, bytes, int], Stored]) -> None:
    """Publishes into buckets are accepted by ``put``: of stream, subject, header block, payload, time."""

    def accept(self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int) -> Stored:
        accept = put if _is_bucket(self) else Stream.accept
        return accept(self, subject, header_block, payload, now)

    alter_streams(broker, accept=accept)


@jetstream_defect(
    "kv-revisions-count-per-key",
    breaks=("JS-KV-002",),
    summary="The PubAck of a put tells how many revisions the key has.",
)
def _(broker: Broker) -> None:
    def put(self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int) -> Stored:
        message, answer = Stream.accept(self, subject, header_block, payload, now)
        return message, self.puback % self.store.count_of(subject) if message else answer

    _alter_puts(broker, put)


def _alter_direct_gets(broker: Broker, change: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> None:
    """Direct gets from buckets are answered as if they had the path and body that ``change`` gives."""
    api = jetstream_of(broker).api
    original = api.request

    def request(path: bytes, reply: bytes | None, header_block: bytes, body: bytes, now: int) -> bool:
        if path.startswith(b"DIRECT.GET.KV_"):
            path, body = change(path, body)
        return original(path, reply, header_block, body, now)

    replace(api, "request", request)


@jetstream_defect(
    "kv-get-gives-the-oldest-value", breaks=("JS-KV-003",), summary="A get gives the oldest value of the key."
)
def _(broker: Broker) -> None:
    def change(path: bytes, body: bytes) -> tuple[bytes, bytes]:
        stream, _, key = path[len(b"DIRECT.GET.") :].partition(b".")
        if not key:
            return path, body
        return b"DIRECT.GET." + stream, msgspec.json.encode({"seq": 1, "next_by_subj": key.decode()})

    _alter_direct_gets(broker, change)


@jetstream_defect(
    "kv-get-of-a-revision-gives-the-next",
    breaks=("JS-KV-004",),
    summary="A get of a revision gives the one after it.",
)
def _(broker: Broker) -> None:
    def change(path: bytes, body: bytes) -> tuple[bytes, bytes]:
        fields = msgspec.json.decode(body) if body else {}
        if "seq" in fields:
            body = msgspec.json.encode({"seq": fields["seq"] + 1})
        return path, body

    _alter_direct_gets(broker, change)


@jetstream_defect(
    "kv-missing-key-is-an-empty-value",
    breaks=("JS-KV-005",),
    summary="A get of a key that was never put is answered with an empty message.",
)
def _(broker: Broker) -> None:
    host = jetstream_of(broker).host
    publish = host.publish

    def published(subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> int:
        if header_block.startswith(b"NATS/1.0 404 Message Not Found"):
            header_block = b""
        return publish(subject, reply, header_block, payload)

    replace(host, "publish", published)


@jetstream_defect(
    "kv-legacy-get-is-not-in-base64",
    breaks=("JS-KV-006",),
    summary="STREAM.MSG.GET from a bucket gives a value as it is.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if request.names[0].startswith("KV_"):
            stream = jetstream_of(broker).streams[request.names[0]]
            message = stream.store.load(fields["message"]["seq"])
            fields["message"]["data"] = message.payload.decode() if message else ""

    alter_success(broker, "stream_msg_get", change)


def _alter_expectation(broker: Broker, check: Callable[[Stream, bytes, Directives], None]) -> None:
    def checked(self: Stream, subject: bytes, directives: Directives) -> None:
        (check if _is_bucket(self) else Stream.check_expected_last_subject_seq)(self, subject, directives)

    alter_streams(broker, check_expected_last_subject_seq=checked)


@jetstream_defect(
    "kv-create-overwrites", breaks=("JS-KV-007",), summary="A create of a key that has a value replaces it."
)
def _(broker: Broker) -> None:
    def check(self: Stream, subject: bytes, directives: Directives) -> None:
        if directives.expected_last_subject_seq != 0:
            Stream.check_expected_last_subject_seq(self, subject, directives)

    _alter_expectation(broker, check)


@jetstream_defect(
    "kv-update-on-any-older-revision",
    breaks=("JS-KV-008",),
    summary="An update is stored if the key ever had the revision it names.",
)
def _(broker: Broker) -> None:
    def check(self: Stream, subject: bytes, directives: Directives) -> None:
        known = self.store.load(directives.expected_last_subject_seq or 0)
        if known is None or known.subject != subject:
            Stream.check_expected_last_subject_seq(self, subject, directives)

    _alter_expectation(broker, check)


@jetstream_defect(
    "kv-update-minds-other-keys",
    breaks=("JS-KV-008",),
    summary="An update is refused if another key has changed since.",
)
def _(broker: Broker) -> None:
    def check(self: Stream, subject: bytes, directives: Directives) -> None:
        if directives.expected_last_subject_seq not in (None, 0, self.store.last_seq):
            raise errors.WRONG_LAST_SEQUENCE(seq=self.store.last_seq)
        Stream.check_expected_last_subject_seq(self, subject, directives)

    _alter_expectation(broker, check)


@jetstream_defect(
    "kv-delete-removes-the-history",
    breaks=("JS-KV-009",),
    summary="A deletion marker removes the earlier revisions of its key.",
)
def _(broker: Broker) -> None:
    def put(self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int) -> Stored:
        stored = Stream.accept(self, subject, header_block, payload, now)
        if b"KV-Operation: DEL" in header_block:
            self.purge(now, subject, keep=1)
        return stored

    _alter_puts(broker, put)


@jetstream_defect(
    "kv-purge-keeps-a-revision",
    breaks=("JS-KV-010",),
    summary="A purge leaves the last value of the key beside its marker.",
)
def _(broker: Broker) -> None:
    def roll_up(self: Stream, subject: bytes, rollup: str, now: int) -> None:
        if _is_bucket(self) and rollup == "sub":
            self.purge(now, subject, keep=2)
        else:
            Stream.roll_up(self, subject, rollup, now)

    alter_streams(broker, roll_up=roll_up)


@jetstream_defect(
    "kv-full-history-refuses",
    breaks=("JS-KV-011",),
    summary="A put on a key whose history is full is refused.",
)
def _(broker: Broker) -> None:
    def check_room_of_subject(self: Stream, subject: bytes, directives: Directives) -> None:
        if _is_bucket(self) and self.is_full(subject):
            raise errors.STORE_FAILED(reason="maximum messages per subject exceeded")
        Stream.check_room_of_subject(self, subject, directives)

    alter_streams(broker, check_room_of_subject=check_room_of_subject)


@jetstream_defect(
    "kv-watch-counts-itself",
    breaks=("JS-KV-012",),
    summary="The ack subject of a watch counts its own message among those that follow.",
)
def _(broker: Broker) -> None:
    def pending_after(self: Consumer, deliveries: int) -> int:
        pending = Consumer.pending_after(self, deliveries)
        return pending + 1 if _is_bucket(self.stream) else pending

    alter_consumers(broker, pending_after=pending_after)


@jetstream_defect(
    "kv-keys-come-without-sizes",
    breaks=("JS-KV-014",),
    summary="A watch without values does not tell their sizes.",
)
def _(broker: Broker) -> None:
    def content(self: Consumer, message: Message) -> tuple[bytes, bytes]:
        if self.config.headers_only and _is_bucket(self.stream):
            return message.header_block, b""
        return Consumer.content(self, message)

    alter_consumers(broker, content=content)


@jetstream_defect(
    "kv-refused-deletion-has-another-code",
    breaks=("JS-KV-015",),
    summary="The refusal to delete a message of a bucket has the err_code of a missing one.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if request.names[0].startswith("KV_") and "error" in fields:
            fields["error"]["err_code"] = 10043

    alter_answer(broker, "stream_msg_delete", change)


@jetstream_defect(
    "kv-equals-sign-ends-a-key",
    breaks=("JS-KV-016",),
    summary="A key is cut at an equals sign when it is stored.",
)
def _(broker: Broker) -> None:
    def put(self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int) -> Stored:
        return Stream.accept(self, subject.partition(b"=")[0], header_block, payload, now)

    _alter_puts(broker, put)
