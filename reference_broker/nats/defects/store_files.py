"""Defects of what outlives the broker. What is right: ``jetstream.files``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    alter_service,
    alter_streams,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubject
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.files.store import Block, FileStore
from plumbline.reference_broker.nats.jetstream.files.stream_files import StreamFiles
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.store import MemoryStore, Store
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

RECORD_HEAD = 30


def _after_recovery(broker: Broker, alter: Callable[[JetStream, int], None]) -> None:
    """``alter`` the service once it is as the files say."""

    def recover(self: JetStream, files: Mapping[str, bytes], now: int) -> list[str]:
        warnings = JetStream.recover(self, files, now)
        alter(self, now)
        return warnings

    alter_service(broker, recover=recover)


@jetstream_defect(
    "store-max-bytes-counts-payloads",
    breaks=("JS-STORE-015",),
    summary="max_bytes of a stream in files does not count the 30 bytes around subject and payload.",
)
def _(broker: Broker) -> None:
    def has_too_many_bytes(self: Stream) -> bool:
        counted = self.store.size - (RECORD_HEAD * len(self.store) if self.config.storage == "file" else 0)
        return 0 < self.config.max_bytes < counted

    alter_streams(broker, has_too_many_bytes=has_too_many_bytes)


@jetstream_defect(
    "store-deleted-messages-come-back",
    breaks=("JS-STORE-017",),
    summary="That a message was deleted is not written: after a restart it is there again.",
)
def _(broker: Broker) -> None:
    class Forgetful(FileStore):
        remove = MemoryStore.remove

    def open_store(self: Stream) -> Store:
        files = self.files
        return Forgetful(files.stream, files.folder, files.ledger) if files else Stream.open_store(self)

    alter_streams(broker, open_store=open_store)


@jetstream_defect(
    "store-memory-outlives-the-broker",
    breaks=("JS-STORE-018",),
    summary="A stream in memory is kept in files as well.",
)
def _(broker: Broker) -> None:
    def files_of(self: JetStream, config: StreamConfig) -> StreamFiles | None:
        return StreamFiles(config.name, self.config.ledger) if self.config.ledger is not None else None

    alter_service(broker, files_of=files_of)


@jetstream_defect(
    "store-consumers-begin-again",
    breaks=("JS-STORE-019", "JS-STORE-024"),
    summary="What a consumer has delivered and what was acknowledged is not written.",
)
def _(broker: Broker) -> None:
    def changed(self: Consumer, seq: int | None) -> None:
        pass

    alter_consumers(broker, changed=changed)


@jetstream_defect(
    "store-message-ids-are-forgotten",
    breaks=("JS-STORE-020",),
    summary="After a restart no message id is known.",
)
def _(broker: Broker) -> None:
    def forget(service: JetStream, now: int) -> None:
        for stream in service.streams.values():
            stream.duplicates = type(stream.duplicates)(stream.config.duplicate_window)

    _after_recovery(broker, forget)


@jetstream_defect(
    "store-ephemerals-are-forgotten",
    breaks=("JS-STORE-021",),
    summary="Ephemeral consumers do not outlive the broker.",
)
def _(broker: Broker) -> None:
    def forget(service: JetStream, now: int) -> None:
        for stream in service.streams.values():
            for consumer in tuple(stream.consumers.values()):
                if not consumer.config.durable_name:
                    stream.delete_consumer(consumer, now)

    _after_recovery(broker, forget)


@jetstream_defect(
    "store-acknowledges-before-it-writes",
    breaks=("JS-STORE-022",),
    summary="The last three records are not written yet when they are acknowledged.",
)
def _(broker: Broker) -> None:
    class Late(FileStore):
        def __init__(self, stream: str, files: StreamFiles) -> None:
            super().__init__(stream, files.folder, files.ledger)
            self.waiting: list[tuple[Block, bytes]] = []

        def _write(self, block: Block, record: bytes) -> None:
            self.waiting.append((block, record))
            if len(self.waiting) > 3:
                super()._write(*self.waiting.pop(0))

    def open_store(self: Stream) -> Store:
        return Late(self.files.stream, self.files) if self.files else Stream.open_store(self)

    alter_streams(broker, open_store=open_store)


@jetstream_defect(
    "store-some-acks-are-confirmed-and-forgotten",
    breaks=("JS-STORE-023",),
    summary="The ack of every third message is confirmed and changes nothing.",
)
def _(broker: Broker) -> None:
    def ack(self: Consumer, subject: AckSubject, now: int, *, sampled: bool) -> bool:
        return subject.stream_seq % 3 == 0 or Consumer.ack(self, subject, now, sampled=sampled)

    alter_consumers(broker, ack=ack)


@jetstream_defect(
    "store-delivered-counts-as-acknowledged",
    breaks=("JS-STORE-025",),
    summary="After a restart what was delivered is not delivered again, though nobody acknowledged it.",
)
def _(broker: Broker) -> None:
    def settle(service: JetStream, now: int) -> None:
        for stream in service.streams.values():
            for consumer in stream.consumers.values():
                acks = consumer.acks
                acks.pending.clear()
                acks.floor.consumer, acks.floor.stream = acks.delivered.consumer, acks.delivered.stream

    _after_recovery(broker, settle)
