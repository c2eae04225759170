"""Defects of the PubAck and of de-duplication. What is right: ``jetstream.stream``, ``jetstream.publish``."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.connection import Connection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_streams,
    jetstream_defect,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream.streams.publish import Directives
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats import Pub

Publish = Callable[[bytes, bytes | None, bytes, bytes], int]


@jetstream_defect("pub-puback-without-seq", breaks=("JS-PUB-001",), summary="A PubAck has no seq.")
def _(broker: Broker) -> None:
    def configured(self: Stream) -> None:
        Stream.configured(self)
        self.puback = self.puback.replace(b'"seq":', b'"sequence":')

    alter_streams(broker, configured=configured)


@jetstream_defect(
    "pub-puback-names-no-stream", breaks=("JS-PUB-001",), summary="The PubAck's stream is always empty."
)
def _(broker: Broker) -> None:
    def configured(self: Stream) -> None:
        Stream.configured(self)
        self.puback = self.puback.replace(self.config.name.encode(), b"")

    alter_streams(broker, configured=configured)


def _alter_answers(broker: Broker, answer: Callable[[Publish, bytes, bytes], int]) -> None:
    """What streams say to publishers is said otherwise; ``answer`` gets the means, subject and bytes."""
    host = jetstream_of(broker).host
    publish = host.publish

    def published(subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> int:
        if payload.startswith(b'{"stream":'):
            return answer(publish, subject, payload)
        return publish(subject, reply, header_block, payload)

    replace(host, "publish", published)


@jetstream_defect("pub-puback-has-headers", breaks=("JS-PUB-002",), summary="A PubAck comes as HMSG.")
def _(broker: Broker) -> None:
    _alter_answers(
        broker, lambda publish, subject, payload: publish(subject, None, b"NATS/1.0\r\n\r\n", payload)
    )


@jetstream_defect("pub-puback-comes-twice", breaks=("JS-PUB-002",), summary="A PubAck comes twice.")
def _(broker: Broker) -> None:
    def twice(publish: Publish, subject: bytes, payload: bytes) -> int:
        publish(subject, None, b"", payload)
        return publish(subject, None, b"", payload)

    _alter_answers(broker, twice)


# De-duplication


@jetstream_defect(
    "pub-duplicate-is-not-told", breaks=("JS-PUB-003",), summary="The PubAck of a duplicate lacks duplicate."
)
def _(broker: Broker) -> None:
    def configured(self: Stream) -> None:
        Stream.configured(self)
        self.duplicate_puback = self.puback

    alter_streams(broker, configured=configured)


@jetstream_defect(
    "pub-duplicate-has-a-new-seq",
    breaks=("JS-PUB-003",),
    summary="The PubAck of a duplicate has the sequence that comes next.",
)
def _(broker: Broker) -> None:
    def duplicate_of(self: Stream, subject: bytes, directives: Directives, now: int) -> int | None:
        original = Stream.duplicate_of(self, subject, directives, now)
        return self.store.last_seq + 1 if original else None

    alter_streams(broker, duplicate_of=duplicate_of)


@jetstream_defect(
    "pub-duplicate-is-stored",
    breaks=("JS-PUB-004",),
    summary="A duplicate is told that it is one, and stored.",
)
def _(broker: Broker) -> None:
    def duplicate_of(self: Stream, subject: bytes, directives: Directives, now: int) -> int | None:
        original = Stream.duplicate_of(self, subject, directives, now)
        if original:
            self.store.append(subject, b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n", b"hello?", now)
        return original

    alter_streams(broker, duplicate_of=duplicate_of)


@jetstream_defect(
    "pub-duplicate-uses-up-a-seq", breaks=("JS-PUB-004",), summary="A duplicate uses up a stream sequence."
)
def _(broker: Broker) -> None:
    def duplicate_of(self: Stream, subject: bytes, directives: Directives, now: int) -> int | None:
        original = Stream.duplicate_of(self, subject, directives, now)
        if original:
            self.store.skip()
        return original

    alter_streams(broker, duplicate_of=duplicate_of)


@jetstream_defect(
    "pub-message-id-is-not-stored", breaks=("JS-PUB-005",), summary="Nats-Msg-Id is cut off what is stored."
)
def _(broker: Broker) -> None:
    def accept(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> tuple[Message | None, bytes]:
        message, answer = Stream.accept(self, subject, header_block, payload, now)
        if message is not None and b"Nats-Msg-Id" in header_block:
            message.header_block = b""
        return message, answer

    alter_streams(broker, accept=accept)


@jetstream_defect(
    "pub-duplicate-replaces-the-payload",
    breaks=("JS-PUB-005",),
    summary="A duplicate puts its payload in the place of the stored one.",
)
def _(broker: Broker) -> None:
    def accept(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> tuple[Message | None, bytes]:
        message, answer = Stream.accept(self, subject, header_block, payload, now)
        if message is None and b'"duplicate"' in answer:
            original = self.store.load(msgspec.json.decode(answer)["seq"])
            assert original is not None
            original.payload = payload
        return message, answer

    alter_streams(broker, accept=accept)


@jetstream_defect(
    "pub-duplicates-are-sought-by-subject",
    breaks=("JS-PUB-006",),
    summary="An id is a duplicate only on the subject it was stored on.",
)
def _(broker: Broker) -> None:
    def duplicate_of(self: Stream, subject: bytes, directives: Directives, now: int) -> int | None:
        original = Stream.duplicate_of(self, subject, directives, now)
        message = self.store.load(original) if original else None
        return original if message is not None and message.subject == subject else None

    alter_streams(broker, duplicate_of=duplicate_of)


@jetstream_defect(
    "pub-ids-are-never-forgotten", breaks=("JS-PUB-007",), summary="An id is a duplicate for ever."
)
def _(broker: Broker) -> None:
    def duplicate_of(self: Stream, subject: bytes, directives: Directives, now: int) -> int | None:
        return self.duplicates.seq_of(directives.msg_id, 0) if directives.msg_id else None

    alter_streams(broker, duplicate_of=duplicate_of)


@jetstream_defect(
    "pub-empty-id-is-an-id",
    breaks=("JS-PUB-008",),
    summary="An empty Nats-Msg-Id is compared like any other.",
)
def _(broker: Broker) -> None:
    _read_id(broker, rb"Nats-Msg-Id: *\r\n")


@jetstream_defect(
    "pub-message-id-in-any-case", breaks=("JS-PUB-009",), summary="nats-msg-id asks for de-duplication."
)
def _(broker: Broker) -> None:
    _read_id(broker, rb"nats-msg-id:")


def _read_id(broker: Broker, line: bytes) -> None:
    """A header block with such a line in it is taken to have one and the same message id."""

    def accept(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> tuple[Message | None, bytes]:
        if re.search(line, header_block):
            header_block = b"NATS/1.0\r\nNats-Msg-Id: -\r\n\r\n"
        return Stream.accept(self, subject, header_block, payload, now)

    alter_streams(broker, accept=accept)


# Without an answer, and beside the stream


@jetstream_defect(
    "pub-without-reply-is-not-stored",
    breaks=("JS-PUB-010",),
    summary="What is published without a reply subject is not stored.",
)
def _(broker: Broker) -> None:
    def publish(
        self: Stream, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
    ) -> None:
        if reply is not None:
            Stream.publish(self, subject, reply, header_block, payload, now)

    alter_streams(broker, publish=publish)


@jetstream_defect("pub-no-ack-acknowledges", breaks=("JS-PUB-030",), summary="no_ack is ignored.")
def _(broker: Broker) -> None:
    def configured(self: Stream) -> None:
        self.config = msgspec.structs.replace(self.config, no_ack=False)
        Stream.configured(self)

    alter_streams(broker, configured=configured)


@jetstream_defect(
    "pub-no-ack-stores-nothing", breaks=("JS-PUB-030",), summary="no_ack streams store nothing."
)
def _(broker: Broker) -> None:
    def publish(
        self: Stream, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
    ) -> None:
        if not self.config.no_ack:
            Stream.publish(self, subject, reply, header_block, payload, now)

    alter_streams(broker, publish=publish)


@jetstream_defect(
    "pub-puback-has-an-empty-domain", breaks=("JS-PUB-031",), summary="A PubAck without domain has domain."
)
def _(broker: Broker) -> None:
    def configured(self: Stream) -> None:
        Stream.configured(self)
        self.puback = self.puback[:-1] + b',"domain":""}'

    alter_streams(broker, configured=configured)


@jetstream_defect("pub-puback-hides-the-domain", breaks=("JS-PUB-031",), summary="A PubAck names no domain.")
def _(broker: Broker) -> None:
    def configured(self: Stream) -> None:
        Stream.configured(self)
        self.puback = self.puback.replace(b'"domain":', b'"where":')

    alter_streams(broker, configured=configured)


@jetstream_defect(
    "pub-no-503-without-a-stream",
    breaks=("JS-PUB-023",),
    summary="A server with streams lets publishes that none of them captures go unanswered.",
)
def _(broker: Broker) -> None:
    service, original = jetstream_of(broker), broker.nobody_responds

    def nobody_responds(connection: Connection, subject: bytes, reply: bytes) -> None:
        if not service.streams or subject.startswith(b"$"):
            original(connection, subject, reply)

    replace(broker, "nobody_responds", nobody_responds)


@jetstream_defect(
    "pub-stored-messages-reach-no-subscriber",
    breaks=("JS-PUB-032",),
    summary="What a stream has stored is not delivered to subscribers.",
)
def _(broker: Broker) -> None:
    service, original = jetstream_of(broker), broker.published

    def published(connection: Connection, operation: Pub, now: int) -> None:
        stream = service.find_stream(operation.args[0])
        if stream is None:
            original(connection, operation, now)
            return
        reply = operation.args[1] if len(operation.args) == 3 else None
        stream.publish(operation.args[0], reply, b"", operation.payload, now)

    replace(broker, "published", published)
