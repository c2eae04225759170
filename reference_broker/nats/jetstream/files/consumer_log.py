"""What a consumer has delivered and what was acknowledged, as a file that grows by what changes.

Every entry is the counters, and the state of each message that was touched since the last one; an entry that
is ``whole`` forgets what was before. In the file: length (u32, little endian), MessagePack, 8 bytes of
checksum.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.jetstream.consumers.ack import Pending, Sequences
from plumbline.reference_broker.nats.jetstream.consumers.position import ConsumerPosition
from plumbline.reference_broker.nats.jetstream.files.layout import CHECKSUM_SIZE, checksum
from plumbline.reference_broker.write_queue import Replace, WriteQueue

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.consumers.delivery import ConsumerDelivery

_LENGTH = struct.Struct("<I")
SMALLEST_TO_REWRITE = 64 * 1024  # bytes
REWRITE_AT = 8  # times what all of the state takes


class ChangedMessage(Struct, frozen=True, array_like=True):
    """One message: without ``consumer_seq`` it is not pending, without ``redelivered`` it never was."""

    seq: int
    consumer_seq: int | None
    stamp: int
    redelivered: int | None


class LogEntry(Struct, frozen=True, array_like=True):
    """The counters, and what was touched."""

    whole: bool
    delivered: tuple[int, int]
    floor: tuple[int, int]
    next_seq: int
    resume: int
    listed: list[int] | None  # None: the same as before, from the right, ``still_listed`` of them
    still_listed: int
    changed: list[ChangedMessage]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(LogEntry)


class ConsumerLog:
    """The file of one consumer; writes one entry for all that happens between two commits."""

    def __init__(self, path: str, write_queue: WriteQueue, consumer: ConsumerDelivery) -> None:
        self.path = path
        self.consumer = consumer
        self._write_queue = write_queue
        self._touched: set[int] = set()
        self._whole = True
        self._size = 0
        self._rewrite_at = 0

    def changed(self, seq: int | None) -> None:
        """The counters, and the state of ``seq``; None: perhaps that of every message."""
        if seq is None:
            self._whole = True
        else:
            self._touched.add(seq)
        self._write_queue.defer(self)

    def enter_changes(self) -> None:
        if self._whole or self._size > self._rewrite_at:
            data = whole_state(self.consumer)
            self._write_queue.enter(Replace(self.path, data))
            self._size, self._whole = len(data), False
            self._rewrite_at = max(SMALLEST_TO_REWRITE, REWRITE_AT * len(data))
        else:
            data = encode_entry(self.consumer, self._touched, whole=False)
            self._write_queue.append(self.path, data)
            self._size += len(data)
        self._touched.clear()


def encode_entry(consumer: ConsumerDelivery, touched: set[int], *, whole: bool) -> bytes:
    """The counters, and the state of the messages that were touched."""
    acks, position = consumer.acks, consumer.position
    states = []
    for seq in sorted(touched):
        pending = acks.pending.get(seq)
        number, stamp = (pending.consumer_seq, pending.stamp) if pending else (None, 0)
        states.append(ChangedMessage(seq, number, stamp, acks.redelivered.get(seq)))
    entry = LogEntry(
        whole,
        (acks.delivered.consumer, acks.delivered.stream),
        (acks.floor.consumer, acks.floor.stream),
        position.next_seq,
        position.resume,
        list(position.listed) if whole else None,
        len(position.listed),
        states,
    )
    body = _ENCODER.encode(entry)
    head = _LENGTH.pack(len(body))
    return head + body + checksum(b"", head, body)


def whole_state(consumer: ConsumerDelivery) -> bytes:
    """A file with one entry, that has everything."""
    acks = consumer.acks
    return encode_entry(consumer, {*acks.pending, *acks.redelivered}, whole=True)


def read(data: bytes) -> tuple[list[LogEntry], int]:
    """The whole entries of a file, and where they end."""
    entries: list[LogEntry] = []
    offset = 0
    while offset + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, offset)
        body = offset + _LENGTH.size
        end = body + length + CHECKSUM_SIZE
        if end > len(data):
            break
        if checksum(b"", data[offset : body + length]) != data[body + length : end]:
            break
        try:
            entries.append(_DECODER.decode(data[body : body + length]))
        except UNDECODABLE:
            break
        offset = end
    return entries, offset


def replay(consumer: ConsumerDelivery, entries: list[LogEntry]) -> None:
    """Put a new consumer into the state after ``entries``; when it was last active is not part of it, as with
    nats-server."""
    if not entries:
        return
    acks, last = consumer.acks, entries[-1]
    pending: dict[int, Pending] = {}
    listed: list[int] = []
    for entry in entries:
        if entry.whole:
            pending.clear()
            acks.redelivered.clear()
        if entry.listed is not None:
            listed = entry.listed
        for one in entry.changed:
            if one.consumer_seq is None:
                pending.pop(one.seq, None)
            else:
                pending[one.seq] = Pending(one.consumer_seq, one.stamp)
            if one.redelivered is None:
                acks.redelivered.pop(one.seq, None)
            else:
                acks.redelivered[one.seq] = one.redelivered
    acks.pending = dict(sorted(pending.items()))
    acks.delivered = Sequences(*last.delivered)
    acks.floor = Sequences(*last.floor)
    left = listed[len(listed) - last.still_listed :] if last.still_listed else []
    consumer.position = ConsumerPosition(last.next_seq, left, last.resume)
