"""The files of one stream: what changes when it, or one of its consumers, is made, altered or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plumbline.reference_broker.nats.jetstream.files import layout
from plumbline.reference_broker.nats.jetstream.files.consumer_log import ConsumerLog
from plumbline.reference_broker.nats.jetstream.files.metadata import ConsumerMetadata, StreamMetadata
from plumbline.reference_broker.nats.jetstream.files.store import FileStore
from plumbline.reference_broker.write_queue import Remove, Replace, WriteQueue

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.consumers.delivery import ConsumerDelivery
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


class StreamFiles:
    """The folder of ``stream``, by name."""

    def __init__(self, stream: str, write_queue: WriteQueue) -> None:
        self.stream = stream
        self.folder = layout.stream_folder(stream)
        self.write_queue = write_queue

    def open_store(self) -> FileStore:
        return FileStore(self.stream, self.folder, self.write_queue)

    def save(self, stream: Stream) -> None:
        metadata = layout.seal(StreamMetadata(stream.config, stream.created))
        self.write_queue.enter(Replace(layout.stream_metadata(self.folder), metadata))

    def remove(self) -> None:
        self.write_queue.enter(Remove(self.folder))

    def open_log(self, consumer: ConsumerDelivery) -> ConsumerLog:
        return ConsumerLog(layout.consumer_log(self.folder, consumer.name), self.write_queue, consumer)

    def save_consumer(self, consumer: ConsumerDelivery) -> None:
        until = consumer.replay.until if consumer.replay is not None else None
        metadata = ConsumerMetadata(consumer.name, consumer.config, consumer.created, until)
        self.write_queue.enter(
            Replace(layout.consumer_metadata(self.folder, consumer.name), layout.seal(metadata))
        )

    def remove_consumer(self, consumer: ConsumerDelivery) -> None:
        if consumer.log is not None:
            self.write_queue.cancel_deferred(consumer.log)
            self.write_queue.enter(Remove(layout.consumer_metadata(self.folder, consumer.name)))
            self.write_queue.enter(Remove(consumer.log.path))
            consumer.log = None
