"""Defects of the PubAck and of de-duplication. What is right: ``jetstream.stream``, ``jetstream.publish``."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import (
    alter_streams,
    jetstream_of,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.streams.publish import PublishHeaders
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats import Pub

Publish = Callable[[bytes, bytes | None, bytes, bytes], int]


@method_defect(Stream.derive_settings, "JS-PUB-001")
def pub_puback_without_seq(self: Stream) -> None:
    """A PubAck has no seq."""
    Stream.derive_settings(self)
    self.puback = self.puback.replace(b'"seq":', b'"sequence":')


@method_defect(Stream.derive_settings, "JS-PUB-001")
def pub_puback_names_no_stream(self: Stream) -> None:
    """The PubAck's stream is always empty."""
    Stream.derive_settings(self)
    self.puback = self.puback.replace(self.config.name.encode(), b"")


class _PubAckOfNeighbour(bytes):
    """The template, filled in with another sequence."""

    def __mod__(self, seq: int) -> bytes:
        return bytes.__mod__(self, ((seq - 1) ^ 1) + 1)


@method_defect(Stream.derive_settings, "JS-PUB-001")
def pub_puback_has_the_seq_of_a_neighbour(self: Stream) -> None:
    """The PubAcks of the first and second message are swapped, of the third and fourth, and so on."""
    Stream.derive_settings(self)
    self.puback = _PubAckOfNeighbour(self.puback)


def _alter_answers(broker: Broker, answer: Callable[[Publish, bytes, bytes], int]) -> None:
    """The answers of streams to publishers are changed; ``answer`` gets the means, subject and bytes."""
    host = jetstream_of(broker).host
    publish = host.publish

    def published(subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> int:
        if payload.startswith(b'{"stream":'):
            return answer(publish, subject, payload)
        return publish(subject, reply, header_block, payload)

    replace(host, "publish", published)


@defect("JS-PUB-002")
def pub_puback_has_headers(broker: Broker) -> None:
    """A PubAck comes as HMSG."""
    _alter_answers(
        broker, lambda publish, subject, payload: publish(subject, None, b"NATS/1.0\r\n\r\n", payload)
    )


@defect("JS-PUB-002")
def pub_puback_comes_twice(broker: Broker) -> None:
    """A PubAck comes twice."""

    def twice(publish: Publish, subject: bytes, payload: bytes) -> int:
        publish(subject, None, b"", payload)
        return publish(subject, None, b"", payload)

    _alter_answers(broker, twice)


# De-duplication


@method_defect(Stream.derive_settings, "JS-PUB-003")
def pub_duplicate_is_not_told(self: Stream) -> None:
    """The PubAck of a duplicate lacks duplicate."""
    Stream.derive_settings(self)
    self.duplicate_puback = self.puback


@method_defect(Stream.duplicate_of, "JS-PUB-003")
def pub_duplicate_has_a_new_seq(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> int | None:
    """The PubAck of a duplicate has the sequence that comes next."""
    original = Stream.duplicate_of(self, subject, directives, now)
    return self.store.last_seq + 1 if original else None


@method_defect(Stream.duplicate_of, "JS-PUB-003")
def pub_message_id_is_always_new(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> int | None:
    """Every message is stored, whatever Nats-Msg-Id it has."""
    return None


@method_defect(Stream.duplicate_of, "JS-PUB-004")
def pub_duplicate_is_stored(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> int | None:
    """A duplicate is answered as one, and stored."""
    original = Stream.duplicate_of(self, subject, directives, now)
    if original:
        self.store.append(subject, b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n", b"hello?", now)
    return original


@method_defect(Stream.duplicate_of, "JS-PUB-004")
def pub_duplicate_uses_up_a_seq(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> int | None:
    """A duplicate uses up a stream sequence."""
    original = Stream.duplicate_of(self, subject, directives, now)
    if original:
        self.store.skip()
    return original


@method_defect(Stream.accept, "JS-PUB-005")
def pub_message_id_is_not_stored(
    self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
) -> tuple[StoredMessage | None, bytes]:
    """Nats-Msg-Id is cut off what is stored."""
    message, answer = Stream.accept(self, subject, header_block, payload, now)
    if message is not None and b"Nats-Msg-Id" in header_block:
        message.header_block = b""
    return message, answer


@method_defect(Stream.accept, "JS-PUB-005")
def pub_duplicate_replaces_the_payload(
    self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
) -> tuple[StoredMessage | None, bytes]:
    """A duplicate puts its payload in the place of the stored one."""
    message, answer = Stream.accept(self, subject, header_block, payload, now)
    if message is None and b'"duplicate"' in answer:
        original = self.store.load(msgspec.json.decode(answer)["seq"])
        assert original is not None
        original.payload = payload
    return message, answer


@method_defect(Stream.duplicate_of, "JS-PUB-006")
def pub_duplicates_are_sought_by_subject(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> int | None:
    """An id is a duplicate only on the subject it was stored on."""
    original = Stream.duplicate_of(self, subject, directives, now)
    message = self.store.load(original) if original else None
    return original if message is not None and message.subject == subject else None


@method_defect(Stream.duplicate_of, "JS-PUB-007")
def pub_ids_are_never_forgotten(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> int | None:
    """An id is a duplicate for ever."""
    return self.duplicates.seq_of(directives.msg_id, 0) if directives.msg_id else None


@defect("JS-PUB-008")
def pub_empty_id_is_an_id(broker: Broker) -> None:
    """An empty Nats-Msg-Id is compared like any other."""
    _read_id(broker, rb"Nats-Msg-Id: *\r\n")


@defect("JS-PUB-009")
def pub_message_id_in_any_case(broker: Broker) -> None:
    """nats-msg-id asks for de-duplication."""
    _read_id(broker, rb"nats-msg-id:")


def _read_id(broker: Broker, line: bytes) -> None:
    """A header block with such a line in it is taken to have one and the same message id."""

    def accept(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        if re.search(line, header_block):
            header_block = b"NATS/1.0\r\nNats-Msg-Id: -\r\n\r\n"
        return Stream.accept(self, subject, header_block, payload, now)

    alter_streams(broker, accept=accept)


# Without an answer, and beside the stream


@method_defect(Stream.publish, "JS-PUB-010")
def pub_without_reply_is_not_stored(
    self: Stream, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
) -> None:
    """What is published without a reply subject is not stored."""
    if reply is not None:
        Stream.publish(self, subject, reply, header_block, payload, now)


@method_defect(Stream.derive_settings, "JS-PUB-030")
def pub_no_ack_acknowledges(self: Stream) -> None:
    """no_ack is ignored."""
    self.config = msgspec.structs.replace(self.config, no_ack=False)
    Stream.derive_settings(self)


@method_defect(Stream.publish, "JS-PUB-030")
def pub_no_ack_stores_nothing(
    self: Stream, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
) -> None:
    """no_ack streams store nothing."""
    if not self.config.no_ack:
        Stream.publish(self, subject, reply, header_block, payload, now)


@method_defect(Stream.derive_settings, "JS-PUB-031")
def pub_puback_has_an_empty_domain(self: Stream) -> None:
    """A PubAck without domain has domain."""
    Stream.derive_settings(self)
    self.puback = self.puback[:-1] + b',"domain":""}'


@method_defect(Stream.derive_settings, "JS-PUB-031")
def pub_puback_hides_the_domain(self: Stream) -> None:
    """A PubAck names no domain."""
    Stream.derive_settings(self)
    self.puback = self.puback.replace(b'"domain":', b'"where":')


@defect("JS-PUB-023")
def pub_no_503_without_a_stream(broker: Broker) -> None:
    """A server with streams lets publishes that none of them captures go unanswered."""
    service, original = jetstream_of(broker), broker.send_no_responders

    def nobody_responds(connection: NatsClientConnection, subject: bytes, reply: bytes) -> None:
        if not service.streams or subject.startswith(b"$"):
            original(connection, subject, reply)

    replace(broker, "send_no_responders", nobody_responds)


@defect("JS-PUB-032")
def pub_stored_messages_reach_no_subscriber(broker: Broker) -> None:
    """What a stream has stored is not delivered to subscribers."""
    service, original = jetstream_of(broker), broker.on_pub

    def published(connection: NatsClientConnection, operation: Pub, now: int) -> None:
        stream = service.find_stream(operation.args[0])
        if stream is None:
            original(connection, operation, now)
            return
        reply = operation.args[1] if len(operation.args) == 3 else None
        stream.publish(operation.args[0], reply, b"", operation.payload, now)

    replace(broker, "on_pub", published)


@method_defect(Stream.check_discard_new, "JS-PUB-055")
def dedup_of_what_was_refused(
    self: Stream, subject: bytes, header_block: bytes, payload: bytes, directives: PublishHeaders
) -> None:
    """The Nats-Msg-Id of a message that discard new refuses is taken."""
    if directives.msg_id:
        self.duplicates.remember(directives.msg_id, self.store.last_seq + 1, self.jetstream.now)
    Stream.check_discard_new(self, subject, header_block, payload, directives)


@method_defect(Stream.duplicate_of, "JS-PUB-055")
def dedup_ends_with_the_message(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> int | None:
    """The Nats-Msg-Id of a message that was deleted or purged is free again."""
    found = Stream.duplicate_of(self, subject, directives, now)
    return None if found is None or self.store.load(found) is None else found


@method_defect(Stream.duplicate_of, "JS-PUB-004")
def dedup_lets_a_rollup_remove(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> int | None:
    """A duplicate with Nats-Rollup is not stored, but removes the earlier messages."""
    found = Stream.duplicate_of(self, subject, directives, now)
    if found is not None and self.config.allow_rollup_hdrs:
        self.roll_up(subject, directives.rollup, now)
    return found
