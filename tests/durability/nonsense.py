"""Stores whose checksums are right and whose content is nonsense: wrong types, missing fields, numbers that
cannot be. No broker writes such a store, but whoever can change its files can.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import msgspec

from plumbline.reference_broker.amqp.storage.records import FRAME
from plumbline.reference_broker.nats.jetstream.files import layout

LENGTH = struct.Struct("<I")  # of an entry in the log of a consumer
NUMBERS = (-1, 0, 7, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 1.5)
TEXTS = ("", "x", "a b\r\n>", "x" * 300)
VALUES: tuple[Any, ...] = (None, True, *NUMBERS, *TEXTS, [], [None], [[7]], {}, {"x": 7})


def altered(value: Any) -> Iterator[Any]:
    """``value`` with one thing in it replaced, or left out; and something else in its place."""
    yield from VALUES
    if isinstance(value, dict):
        for name in value:
            yield {key: one for key, one in value.items() if key != name}
            for other in altered(value[name]):
                yield {**value, name: other}
    elif isinstance(value, list):
        for place in range(len(value)):
            yield value[:place] + value[place + 1 :]
            yield value[: place + 1] + value[place:]
            for other in altered(value[place]):
                yield [*value[:place], other, *value[place + 1 :]]
    elif isinstance(value, bytes):
        yield from (b"", b"\xff" * 9, value[:-1], value * 2)


def nats_nonsense(path: str, data: bytes) -> Iterator[bytes]:
    """What a file of the NATS broker could hold instead; its checksums are right."""
    if path.endswith(".json"):
        for other in altered(json.loads(data.partition(b"\n")[0])):
            yield layout.seal(other)
    elif path.endswith(".log"):
        entries = [msgspec.msgpack.decode(body) for body in _bodies(data, LENGTH, layout.CHECKSUM_SIZE)]
        for other in altered(entries):
            if isinstance(other, list):
                yield b"".join(map(_log_entry, other))


def amqp_nonsense(journal: bytes) -> Iterator[bytes]:
    """The same for a journal."""
    frames = [msgspec.msgpack.decode(body) for body in _bodies(journal, FRAME, 0)]
    for other in altered(frames):
        if isinstance(other, list):
            yield b"".join(map(_frame, other))


def _bodies(data: bytes, head: struct.Struct, checksum: int) -> Iterator[bytes]:
    """What is between the length, with which ``head`` begins, and the checksum."""
    at = 0
    while at < len(data):
        size = head.unpack_from(data, at)[0]
        yield data[at + head.size : at + head.size + size]
        at += head.size + size + checksum


def _log_entry(value: Any) -> bytes:
    body = msgspec.msgpack.encode(value)
    head = LENGTH.pack(len(body))
    return head + body + layout.checksum(b"", head, body)


def _frame(value: Any) -> bytes:
    body = msgspec.msgpack.encode(value)
    return FRAME.pack(len(body), crc32(body)) + body
