"""Defects of what outlives the broker. What is right: ``jetstream.files``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import (
    alter_service,
    alter_streams,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubjectFields, Pending
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.files.store import BlockFile, FileStore
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


@method_defect(Stream.has_too_many_bytes, "JS-STORE-015")
def store_max_bytes_counts_payloads(self: Stream) -> bool:
    """max_bytes of a stream in files does not count the 30 bytes around subject and payload."""
    counted = self.store.size - (RECORD_HEAD * len(self.store) if self.config.storage == "file" else 0)
    return 0 < self.config.max_bytes < counted


@defect("JS-STORE-017")
def store_deleted_messages_come_back(broker: Broker) -> None:
    """That a message was deleted is not written: after a restart it is there again."""

    class Forgetful(FileStore):
        remove = MemoryStore.remove

    def open_store(self: Stream) -> Store:
        files = self.files
        return Forgetful(files.stream, files.folder, files.write_queue) if files else Stream.open_store(self)

    alter_streams(broker, open_store=open_store)


@method_defect(JetStream.files_of, "JS-STORE-018")
def store_memory_outlives_the_broker(self: JetStream, config: StreamConfig) -> StreamFiles | None:
    """A stream in memory is kept in files as well."""
    return StreamFiles(config.name, self.config.write_queue) if self.config.write_queue is not None else None


@method_defect(Consumer.resume, "JS-STORE-019")
def restarted_push_consumers_forget_what_is_pending(self: Consumer, now: int) -> None:
    """After a restart a push consumer does not know what was not acknowledged."""
    if not self.config.is_pull:
        self.acks.pending.clear()
    Consumer.resume(self, now)


@method_defect(Consumer.resume, "JS-STORE-019")
def restarted_consumers_forget_their_filter(self: Consumer, now: int) -> None:
    """After a restart a consumer delivers what its filter leaves out."""
    self.subject_filter = None
    Consumer.resume(self, now)


@method_defect(Consumer.resume, "JS-STORE-019")
def restarted_consumers_know_the_floor_alone(self: Consumer, now: int) -> None:
    """After a restart all above the ack_floor is pending, also what was acknowledged out of order."""
    if self.acks.pending:
        for seq in range(self.acks.floor.stream + 1, self.acks.delivered.stream + 1):
            self.acks.pending.setdefault(seq, Pending(seq, now))
        self.acks.pending = dict(sorted(self.acks.pending.items()))
    Consumer.resume(self, now)


@method_defect(Consumer.on_state_changed, "JS-STORE-019", "JS-STORE-024")
def store_consumers_begin_again(self: Consumer, seq: int | None) -> None:
    """What a consumer has delivered and what was acknowledged is not written."""


@defect("JS-STORE-020")
def store_message_ids_are_forgotten(broker: Broker) -> None:
    """After a restart no message id is known."""

    def forget(service: JetStream, now: int) -> None:
        for stream in service.streams.values():
            stream.duplicates = type(stream.duplicates)(stream.config.duplicate_window)

    _after_recovery(broker, forget)


@defect("JS-STORE-021")
def store_ephemerals_are_forgotten(broker: Broker) -> None:
    """Ephemeral consumers do not outlive the broker."""

    def forget(service: JetStream, now: int) -> None:
        for stream in service.streams.values():
            for consumer in tuple(stream.consumers.values()):
                if not consumer.config.durable_name:
                    stream.delete_consumer(consumer, now)

    _after_recovery(broker, forget)


@defect("JS-STORE-022")
def store_acknowledges_before_it_writes(broker: Broker) -> None:
    """The last three records are not written yet when they are acknowledged."""

    class Late(FileStore):
        def __init__(self, stream: str, files: StreamFiles) -> None:
            super().__init__(stream, files.folder, files.write_queue)
            self.waiting: list[tuple[BlockFile, bytes]] = []

        def _write(self, block: BlockFile, record: bytes) -> None:
            self.waiting.append((block, record))
            if len(self.waiting) > 3:
                super()._write(*self.waiting.pop(0))

    def open_store(self: Stream) -> Store:
        return Late(self.files.stream, self.files) if self.files else Stream.open_store(self)

    alter_streams(broker, open_store=open_store)


@method_defect(Consumer.ack, "JS-STORE-023")
def store_some_acks_are_confirmed_and_forgotten(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """The ack of every third message is confirmed and changes nothing."""
    return subject.stream_seq % 3 == 0 or Consumer.ack(self, subject, now, sampled=sampled)


@defect("JS-STORE-025")
def store_delivered_counts_as_acknowledged(broker: Broker) -> None:
    """After a restart what was delivered is not delivered again, though it was not acknowledged."""

    def settle(service: JetStream, now: int) -> None:
        for stream in service.streams.values():
            for consumer in stream.consumers.values():
                acks = consumer.acks
                acks.pending.clear()
                acks.floor.consumer, acks.floor.stream = acks.delivered.consumer, acks.delivered.stream

    _after_recovery(broker, settle)


@method_defect(Stream.close, "JS-STORE-026")
def store_deleted_streams_come_back(self: Stream, now: int) -> None:
    """That a stream was deleted is not written: after a restart it is there again."""
    self.files = None
    Stream.close(self, now)


@method_defect(Stream.discard_consumer, "JS-STORE-026")
def store_deleted_consumers_come_back(self: Stream, consumer: Consumer, now: int) -> None:
    """That a consumer was deleted is not written: after a restart it is there again."""
    files, self.files = self.files, None
    Stream.discard_consumer(self, consumer, now)
    self.files = files


@method_defect(Stream.open_consumer, "JS-STORE-027")
def store_consumers_in_memory_are_written(
    self: Stream, name: str, config: ConsumerConfig, now: int
) -> Consumer:
    """mem_storage of a consumer changes nothing: after a restart it is there again."""
    consumer = Stream.open_consumer(self, name, config, now)
    if self.files is not None and config.mem_storage:
        consumer.keep_log(self.files)
    return consumer


@method_defect(Consumer.resume, "JS-STORE-028")
def store_delivery_counts_begin_again(self: Consumer, now: int) -> None:
    """After a restart it is not known how often a message was delivered."""
    self.acks.redelivered.clear()
    Consumer.resume(self, now)


@method_defect(Consumer.resume, "JS-STORE-028")
def store_delivery_count_of_the_last_is_forgotten(self: Consumer, now: int) -> None:
    """After a restart it is not known how often the last message of the stream was delivered."""
    self.acks.redelivered.pop(self.stream.store.last_seq, None)
    Consumer.resume(self, now)
