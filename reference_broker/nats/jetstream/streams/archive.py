"""A stream as one piece of bytes, for STREAM.SNAPSHOT and RESTORE. The format is this broker's own.

Records in MessagePack, each with its length, in chunks of the S2 framing format without compression: clients
look into an archive by a reader of S2. Pure. Source: "Snappy framing format description", 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from plumbline.bounds import MAX_MIRROR_GAP
from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.files import consumer_log
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
UNCOMPRESSED = b"\x01"  # the type of a chunk
LARGEST_CHUNK = 64 * 1024
_LENGTH = struct.Struct("<I")
_CHUNK_HEAD = 4  # type and length
_CRC_SIZE = 4
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reflected


class BadArchiveError(ValueError):
    """An archive that cannot be restored; the text says why."""


class Head(Struct, frozen=True, tag="plumbline 1"):
    """The first record."""

    stream: str
    first_seq: int
    last_seq: int
    messages: int


class Message(Struct, frozen=True, tag="message"):
    """A message of the stream; ``time`` in nanoseconds since the epoch."""

    seq: int
    subject: bytes
    header_block: bytes
    payload: bytes
    time: int


class ConsumerState(Struct, frozen=True, tag="consumer"):
    """A consumer; ``log`` is as in its file."""

    name: str
    config: ConsumerConfig
    created: int
    log: bytes


class End(Struct, frozen=True, tag="end"):
    """The last record. ``status`` is always the same."""

    status: Literal["complete"] = "complete"


Record = Head | Message | ConsumerState | End
_DECODER = msgspec.msgpack.Decoder(Record)


class Contents(Struct, frozen=True):
    """What a snapshot holds: taken at once, written piece by piece."""

    head: Head
    messages: list[StoredMessage]
    consumers: list[ConsumerState]

    @classmethod
    def of(cls, stream: Stream, *, with_consumers: bool) -> Contents:
        store = stream.store
        messages = list(store.messages())
        head = Head(stream.config.name, store.first_seq, store.last_seq, len(messages))
        consumers = stream.consumers.values() if with_consumers else ()
        return cls(head, messages, [_state(consumer) for consumer in consumers])

    def pieces(self, size: int) -> Iterator[bytes]:
        """The archive in pieces of ``size`` bytes; the last one has what is left."""
        data, waiting = bytearray(IDENTIFIER), bytearray()
        for record in self._records():
            waiting += _encoded(record)
            if len(waiting) >= LARGEST_CHUNK or isinstance(record, End):
                data += _framed(bytes(waiting))
                waiting.clear()
            while len(data) >= size:
                yield bytes(data[:size])
                del data[:size]
        yield bytes(data)

    def _records(self) -> Iterator[Record]:
        yield self.head
        for one in self.messages:
            yield Message(one.seq, one.subject, one.header_block, one.payload, one.time)
        yield from self.consumers
        yield End()


def _state(consumer: Consumer) -> ConsumerState:
    log = consumer_log.whole_state(consumer)
    return ConsumerState(consumer.name, consumer.config, consumer.created, log)


def _encoded(record: Record) -> bytes:
    body = msgspec.msgpack.encode(record)
    return _LENGTH.pack(len(body)) + body


def _framed(data: bytes) -> bytes:
    chunks = []
    for start in range(0, len(data), LARGEST_CHUNK):
        part = data[start : start + LARGEST_CHUNK]
        chunks += [UNCOMPRESSED, (len(part) + _CRC_SIZE).to_bytes(3, "little"), masked_crc(part), part]
    return b"".join(chunks)


def _table() -> tuple[int, ...]:
    values = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        values.append(value)
    return tuple(values)


_TABLE = _table()


def masked_crc(data: bytes) -> bytes:
    """CRC-32C, masked as the framing format says."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def read(data: bytes) -> Iterator[Record]:
    """The records of a whole archive. Raises ``BadArchiveError``."""
    content = b"".join(_chunks(data))
    start, size = 0, len(content)
    while start < size:
        body = start + _LENGTH.size
        end = body + _LENGTH.unpack_from(content, start)[0] if body <= size else size + 1
        if end > size:
            raise BadArchiveError("the archive is not whole")
        try:
            yield _DECODER.decode(content[body:end])
        except UNDECODABLE:
            raise BadArchiveError("the archive has an unknown record") from None
        start = end


def _chunks(data: bytes) -> Iterator[bytes]:
    if not data.startswith(IDENTIFIER):
        raise BadArchiveError("this is no archive of a stream")
    start = len(IDENTIFIER)
    while start < len(data):
        crc = start + _CHUNK_HEAD
        end = crc + int.from_bytes(data[start + 1 : crc], "little")
        body = data[crc + _CRC_SIZE : end]
        if data[start : start + 1] != UNCOMPRESSED or end > len(data):
            raise BadArchiveError("the archive was not made by this broker, or is not whole")
        if masked_crc(body) != data[crc : crc + _CRC_SIZE]:
            raise BadArchiveError("the archive is damaged")
        yield body
        start = end


def contents(data: bytes, name: str) -> Contents:
    """A whole archive of the stream ``name``. Raises ``BadArchiveError``."""
    records = list(read(data))
    if len(records) < 2 or not isinstance(records[0], Head) or not isinstance(records[-1], End):
        raise BadArchiveError("the archive is not whole")
    head = records[0]
    messages = [
        StoredMessage(one.seq, one.subject, one.header_block, one.payload, one.time)
        for one in records
        if isinstance(one, Message)
    ]
    consumers = [one for one in records if isinstance(one, ConsumerState)]
    if head.stream != name:
        raise BadArchiveError(f"the archive is of stream {head.stream}")
    if len(messages) != head.messages or not _rises(head, [one.seq for one in messages]):
        raise BadArchiveError("the archive has impossible sequences")
    return Contents(head, messages, consumers)


def _rises(head: Head, seqs: Iterable[int]) -> bool:
    """Whether the sequences are between first and last, and the gaps are not absurd."""
    before = head.first_seq - 1
    for seq in (*seqs, head.last_seq + 1):
        if not before < seq <= before + MAX_MIRROR_GAP + 1:
            return False
        before = seq
    return True


def fill(stream: Stream, found: Contents, now: int) -> None:
    """Put what an archive holds into a new stream."""
    store = stream.store
    store.restart_at(max(found.head.first_seq, 1))
    for message in found.messages:
        while store.last_seq < message.seq - 1:
            store.skip()
        stream.restore_message(message)
    while store.last_seq < found.head.last_seq:
        store.skip()
    for one in found.consumers:
        consumer = stream.open_consumer(one.name, one.config, now)
        consumer.created = one.created
        consumer_log.replay(consumer, consumer_log.read(one.log)[0])
        consumer.resume(now)
