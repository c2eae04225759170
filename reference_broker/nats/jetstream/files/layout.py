"""Where things are below ``<store_dir>/jetstream``, in the version that the stamp names.

::

    layout.json                          the stamp; another version is refused
    lock                                 held by the broker that writes here
    streams/<stream>/stream.json         configuration and time of creation
    streams/<stream>/msgs/<n>.blk        records, oldest block first (``records``)
    streams/<stream>/consumers/<c>.json  configuration and time of creation
    streams/<stream>/consumers/<c>.log   deliveries and acknowledgements (``consumer_log``)
    damaged/, trash/                     what could not be read; what is being deleted

Metadata is one JSON object and, on a second line, its checksum. Bytes of a name that not every file system
takes are escaped, and a long name is cut short; the name that counts is in the metadata.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

from plumbline.errors import UNDECODABLE

LAYOUT = "plumbline.jetstream"
VERSION = 1
STREAMS = "streams"
DAMAGED = "damaged"
MAX_NAME_LENGTH = 100
CHECKSUM_SIZE = 8

T = TypeVar("T")


def file_name(name: str) -> str:
    """A name as a file's, without a dot and unlike every other."""
    raw = name.encode("utf-8", "surrogateescape")
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
    escaped = "".join(chr(byte) if byte in plain else f"%{byte:02x}" for byte in raw)
    if len(escaped) <= MAX_NAME_LENGTH:
        return escaped
    return f"{escaped[: MAX_NAME_LENGTH - 33]}~{hashlib.blake2b(raw, digest_size=16).hexdigest()}"


def stream_folder(stream: str) -> str:
    """The folder of a stream; the others are below it."""
    return f"{STREAMS}/{file_name(stream)}"


def stream_metadata(folder: str) -> str:
    """The file of a stream's configuration."""
    return f"{folder}/stream.json"


def block(folder: str, number: int) -> str:
    """The file of some of a stream's messages."""
    return f"{folder}/msgs/{number}.blk"


def consumer_metadata(folder: str, consumer: str) -> str:
    """The file of a consumer's configuration."""
    return f"{folder}/consumers/{file_name(consumer)}.json"


def consumer_log(folder: str, consumer: str) -> str:
    """The file of a consumer's state."""
    return f"{folder}/consumers/{file_name(consumer)}.log"


def checksum(key: bytes, *parts: bytes) -> bytes:
    """8 bytes over ``parts``, which are of no use under another ``key``."""
    digest = hashlib.blake2b(digest_size=CHECKSUM_SIZE, key=key)
    for part in parts:
        digest.update(part)
    return digest.digest()


def seal(metadata: object) -> bytes:
    """Metadata as a file holds it."""
    text = msgspec.json.encode(metadata)
    return text + b"\n" + checksum(b"", text).hex().encode() + b"\n"


def unseal(data: bytes, kind: type[T]) -> T | None:
    """Metadata that a file held; None if it is not whole."""
    text, _, rest = data.partition(b"\n")
    if rest != checksum(b"", text).hex().encode() + b"\n":
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except UNDECODABLE:
        return None
