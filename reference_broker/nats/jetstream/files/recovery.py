"""From the files to the streams and consumers that a broker had when it ended, however it ended.

What is not whole is not served: the damaged end of a file is cut, a folder without readable metadata or with
that of another one is put aside, and each of these is a warning that says what was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.files import consumer_log, layout
from plumbline.reference_broker.nats.jetstream.files.metadata import ConsumerMetadata, StreamMetadata
from plumbline.reference_broker.nats.jetstream.files.records import Record
from plumbline.reference_broker.nats.jetstream.files.store import FileStore
from plumbline.reference_broker.nats.jetstream.streams import copying
from plumbline.reference_broker.nats.jetstream.streams.publish import read_directives
from plumbline.reference_broker.write_queue import Move, Remove, Truncate, WriteQueue

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


def recover(jetstream: JetStream, write_queue: WriteQueue, files: Mapping[str, bytes], now: int) -> list[str]:
    """Give ``jetstream``, which has no stream yet, what ``files`` hold; the warnings."""
    return _Recovery(jetstream, write_queue, files, now).run()


class _Recovery:
    """One start of one broker."""

    def __init__(
        self, jetstream: JetStream, write_queue: WriteQueue, files: Mapping[str, bytes], now: int
    ) -> None:
        self.jetstream = jetstream
        self.write_queue = write_queue
        self.files = files
        self.now = now
        self.warnings: list[str] = []
        self.sourced: dict[tuple[str, str], int] = {}  # stream and origin -> last sequence taken from there

    def run(self) -> list[str]:
        self.jetstream.now = self.now
        found = []
        for folder in sorted({"/".join(path.split("/")[:2]) for path in self.files}):
            if not folder.startswith(layout.STREAMS + "/"):
                continue
            path = layout.stream_metadata(folder)
            metadata = layout.unseal(self.files.get(path, b""), StreamMetadata)
            if metadata is None or layout.stream_folder(metadata.config.name) != folder:
                self.set_aside_damaged(folder, path, "the stream is not served")
            else:
                found.append((metadata.created, folder, metadata))
        for _, folder, metadata in sorted(found, key=lambda one: one[:2]):
            stream = self.stream(folder, metadata)
            if stream is not None:
                self.consumers(folder, stream)
        self.jetstream.on_streams_changed()
        for stream in tuple(self.jetstream.streams.values()):
            self.resume_stream(stream)
        return self.warnings

    def set_aside_damaged(self, path: str, damaged: str, consequence: str) -> None:
        backup_path = f"{layout.DAMAGED}/{self.now}-{path.replace('/', '-')}"
        self.write_queue.enter(Move(path, backup_path))
        what = "is damaged" if damaged in self.files else "is missing"
        self.warnings.append(f"{damaged} {what}: {consequence}; {path} is kept as {backup_path}")

    # Streams

    def stream(self, folder: str, metadata: StreamMetadata) -> Stream | None:
        jetstream, config = self.jetstream, metadata.config
        with self.write_queue.suppressed():
            stream = jetstream.stream_type(jetstream, config, metadata.created)
        store = stream.store
        if not isinstance(store, FileStore):  # a stream that was made again to be kept elsewhere
            return None
        jetstream.streams[config.name] = stream
        blocks = self.blocks(folder)
        with self.write_queue.suppressed():
            store.empty()
            cuts = store.restore(blocks, lambda record: self.remember_message_id(stream, record))
        store.apply_restored(blocks, cuts)
        for cut in cuts:
            self.warnings.append(
                f"{cut.path} is damaged at byte {cut.offset} ({cut.why}): the last {cut.lost} bytes are cut, "
                f"stream {config.name!r} has lost what was written there, from sequence {cut.seq} on"
            )
        for message in store.messages():
            directives = read_directives(message.header_block)
            try:
                lifetime = stream.read_ttl(directives)
            except JetStreamError:
                continue  # stored when the stream still took them
            stream.begin_lifetime(message.seq, lifetime, message.time)
        if stream.scheduler is not None:
            stream.scheduler.restore()
        return stream

    def blocks(self, folder: str) -> list[tuple[int, bytes]]:
        prefix = f"{folder}/msgs/"
        numbered = []
        for path, data in self.files.items():
            number, dot, suffix = path.removeprefix(prefix).partition(".")
            if path.startswith(prefix) and number.isdigit() and dot + suffix == ".blk":
                numbered.append((int(number), data))
        return sorted(numbered)

    def remember_message_id(self, stream: Stream, record: Record) -> None:
        """Message ids count for their window after a restart as well, also those of removed messages."""
        stream.last_msg_id = read_directives(record.header_block).msg_id
        if (taken := copying.copied_sequence(record.header_block)) is not None:
            self.sourced[stream.config.name, taken[0]] = taken[1]
        if stream.last_msg_id and record.time > self.now - stream.config.duplicate_window:
            stream.duplicates.remember(stream.last_msg_id, record.seq, record.time)

    # Consumers

    def consumers(self, folder: str, stream: Stream) -> None:
        prefix = f"{folder}/consumers/"
        found = []
        logs = {path for path in self.files if path.startswith(prefix) and path.endswith(".log")}
        for path in [path for path in self.files if path.startswith(prefix) and path.endswith(".json")]:
            log = path.removesuffix(".json") + ".log"
            metadata = layout.unseal(self.files[path], ConsumerMetadata)
            if metadata is None or layout.consumer_metadata(folder, metadata.name) != path:
                self.set_aside_damaged(path, path, f"a consumer of stream {stream.config.name!r} is lost")
            else:
                logs.discard(log)
                found.append((metadata.created, metadata.name, metadata, log))
        for path in logs:
            self.write_queue.enter(Remove(path))  # of a consumer that was being deleted
        for _, _, metadata, log in sorted(found, key=lambda one: one[:2]):
            self.consumer(stream, metadata, log)

    def consumer(self, stream: Stream, metadata: ConsumerMetadata, log: str) -> None:
        data = self.files.get(log, b"")
        entries, end = consumer_log.read(data)
        with self.write_queue.suppressed():
            consumer = stream.open_consumer(metadata.name, metadata.config, self.now)
            consumer.created = metadata.created
            if consumer.replay is not None and metadata.replay_until is not None:
                consumer.replay.until = metadata.replay_until
            consumer_log.replay(consumer, entries)
        if end < len(data):
            self.write_queue.enter(Truncate(log, end))
            self.warnings.append(
                f"{log} is damaged at byte {end}: the last {len(data) - end} bytes are cut, consumer "
                f"{metadata.name!r} of stream {stream.config.name!r} has lost what it delivered and what was "
                f"acknowledged after consumer sequence {consumer.acks.delivered.consumer}"
            )
        consumer.resume(self.now)

    # All of them

    def resume_stream(self, stream: Stream) -> None:
        """What a stream does by itself, from where it was."""
        if stream.config.mirror is not None:
            copying.catch_up(stream, self.now)
        for name in dict.fromkeys(source.get("name", "") for source in stream.config.sources or ()):
            self.resume_sourcing(stream, name)
        stream.release_settled()
        stream.enforce_limits(None, self.now)
        stream.on_age_timer(self.now)

    def resume_sourcing(self, stream: Stream, name: str) -> None:
        """Take from an origin what a crash has kept from being taken. Nothing is taken twice: where it is not
        known any more what was, nothing is."""
        origin = self.jetstream.streams.get(name)
        if origin is None:
            return
        last = max(self.sourced.get((stream.config.name, name), 0), stream.last_copied(name))
        if last or not stream.store.last_seq:
            for message in list(origin.store.messages(last + 1)):
                copying.copy(origin, stream, message, self.now)
