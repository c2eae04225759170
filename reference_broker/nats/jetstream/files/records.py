"""The records of a block file, and how to read back a block of which the end may be damaged.

A record is, in little endian: length of all of it (u32, top bit: has headers), sequence (u64), time (i64,
nanoseconds since the epoch), length of the subject (u16), subject, with headers their length (u32) and they,
message, 8 bytes of checksum. So a 5-byte message on a 4-byte subject takes 39 bytes. The top bits of the
sequence say what a record is that is no message. Source: deep dive, "Storage Overhead"; sizes as observed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

from msgspec import Struct

_HEAD = struct.Struct("<IQqH")
_LENGTH = struct.Struct("<I")
_HAS_HEADERS = 1 << 31
_CHECKSUM = 8
SMALLEST = _HEAD.size + _CHECKSUM

MESSAGE = 0
ERASED = 1 << 63  # the sequence is used up, without a message
REMOVED = 1 << 62  # the message of that sequence is gone
CONTINUES = 1 << 61  # begins a block: the next message gets that sequence
RESTARTS = 1 << 60  # all before is gone, and the next message gets that sequence
TOGETHER = 1 << 59  # the next so many bytes count only if all of them are there
_KIND = 0b11111 << 59
_SEQUENCE = ~_KIND & (1 << 64) - 1


class Record(Struct, frozen=True, gc=False):
    """One whole record; ``end`` is the offset of what follows it."""

    kind: int
    seq: int
    time: int
    subject: bytes
    header_block: bytes
    payload: bytes
    end: int


class DamagedRecordError(Exception):
    """What follows ``offset`` is no record; the text says why."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset = offset


class RecordCodec:
    """Writes and reads the records of one stream: those of another do not pass for its own."""

    def __init__(self, stream: str) -> None:
        key = hashlib.blake2b(stream.encode("utf-8", "surrogateescape"), digest_size=32).digest()
        self._start = hashlib.blake2b(digest_size=_CHECKSUM, key=key).copy

    def message(self, seq: int, time: int, subject: bytes, header_block: bytes, payload: bytes) -> bytes:
        """The record of a message."""
        return self._record(seq, time, subject, header_block, payload)

    def mark(self, kind: int, seq: int, time: int = 0) -> bytes:
        """A record that is no message."""
        return self._record(seq | kind, time, b"", b"", b"")

    def _record(self, seq: int, time: int, subject: bytes, header_block: bytes, payload: bytes) -> bytes:
        length = SMALLEST + len(subject) + len(payload)
        headers = b""
        if header_block:
            headers = _LENGTH.pack(len(header_block)) + header_block
            length = length + len(headers) | _HAS_HEADERS
        body = b"".join((_HEAD.pack(length, seq, time, len(subject)), subject, headers, payload))
        digest = self._start()
        digest.update(body)
        return body + digest.digest()

    def read(self, data: bytes) -> Iterator[Record]:
        """The records of a block. Raises ``DamagedRecordError`` after the last one before what is none."""
        offset = 0
        while offset < len(data):
            record = self._read_one(data, offset)
            if record.kind == TOGETHER:
                end = record.end + record.seq
                group = []
                try:
                    at = record.end
                    while at < end:
                        group.append(self._read_one(data, at))
                        at = group[-1].end
                except DamagedRecordError as damage:
                    raise DamagedRecordError(offset, f"a batch is not whole: {damage}") from None
                yield from group
                offset = at
                continue
            yield record
            offset = record.end

    def _read_one(self, data: bytes, offset: int) -> Record:
        if len(data) - offset < SMALLEST:
            raise DamagedRecordError(offset, "too short for a record")
        length, seq, time, subject_length = _HEAD.unpack_from(data, offset)
        has_headers, length = length & _HAS_HEADERS, length & ~_HAS_HEADERS
        if length < SMALLEST + subject_length + (_LENGTH.size if has_headers else 0):
            raise DamagedRecordError(offset, "no length of a record")
        end = offset + length
        if end > len(data):
            raise DamagedRecordError(
                offset, f"a record of {length} bytes of which {len(data) - offset} are there"
            )
        digest = self._start()
        digest.update(data[offset : end - _CHECKSUM])
        if digest.digest() != data[end - _CHECKSUM : end]:
            raise DamagedRecordError(offset, "the checksum is wrong")
        at = offset + _HEAD.size
        subject, at = data[at : at + subject_length], at + subject_length
        header_block = b""
        if has_headers:
            (size,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            header_block, at = data[at : at + size], at + size
        return Record(
            seq & _KIND, seq & _SEQUENCE, time, subject, header_block, data[at : end - _CHECKSUM], end
        )
