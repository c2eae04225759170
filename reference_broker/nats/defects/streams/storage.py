"""Defects in the bytes that streams report. What is right: ``jetstream.store``."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_streams, method_defect
from plumbline.reference_broker.nats.jetstream.streams.store import (
    MemoryStore,
    Store,
    StoredMessage,
    file_record_size,
    memory_record_size,
)
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

FILE_WITHOUT_HEADERS = ("JS-STORE-001", "JS-STORE-002", "JS-STORE-003", "JS-STORE-004")
FILE_WITH_HEADERS = ("JS-STORE-005", "JS-STORE-006")
MEMORY_WITHOUT_HEADERS = ("JS-STORE-007", "JS-STORE-008", "JS-STORE-009", "JS-STORE-010")
MEMORY_WITH_HEADERS = ("JS-STORE-011", "JS-STORE-012")


def _alter_size(broker: Broker, storage: str, size_of: Callable[[bytes, bytes, bytes], int]) -> None:
    """``size_of`` gives the size of a record, of subject, header block and payload."""

    def open_store(self: Stream) -> Store:
        return MemoryStore(size_of) if self.config.storage == storage else Stream.open_store(self)

    alter_streams(broker, open_store=open_store)


@defect(*(FILE_WITHOUT_HEADERS + FILE_WITH_HEADERS))
def store_file_omits_the_checksum(broker: Broker) -> None:
    """The checksum of a record in a file is not counted."""
    _alter_size(broker, "file", lambda *record: file_record_size(*record) - 8)


@defect(*FILE_WITH_HEADERS)
def store_file_omits_the_size_of_headers(broker: Broker) -> None:
    """The 4 bytes before the headers of a record in a file are not counted."""
    _alter_size(broker, "file", lambda *record: file_record_size(*record) - (4 if record[1] else 0))


@defect(*(MEMORY_WITHOUT_HEADERS + MEMORY_WITH_HEADERS))
def store_memory_counts_as_files(broker: Broker) -> None:
    """A record in memory is counted as large as in a file."""
    _alter_size(broker, "memory", file_record_size)


@defect(*MEMORY_WITH_HEADERS)
def store_memory_omits_headers(broker: Broker) -> None:
    """The headers of a record in memory are not counted."""
    _alter_size(broker, "memory", lambda subject, block, payload: memory_record_size(subject, b"", payload))


@method_defect(Stream.remove, "JS-STORE-013")
def store_deleted_message_leaves_its_head(self: Stream, seq: int, now: int) -> bool:
    """A deleted message gives back its payload only."""
    message: StoredMessage | None = self.store.load(seq)
    if message is not None:
        record = self.store.size_of(message.subject, message.header_block, message.payload)
        self.store.size += record - len(message.payload)
    return Stream.remove(self, seq, now)


@method_defect(Stream.purge, "JS-STORE-014")
def store_purge_leaves_bytes(
    self: Stream, now: int, subject: bytes | None = None, *, below: int = 0, keep: int = 0
) -> int:
    """A purge of everything leaves the bytes as they were."""
    size = self.store.size
    purged = Stream.purge(self, now, subject, below=below, keep=keep)
    if not len(self.store):
        self.store.size = size
    return purged
