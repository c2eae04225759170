"""What is in files, archives and captures, piece by piece, as bytes that can be searched.

A piece begins with the end of the one before it, so that nothing is cut in two. What is compressed is read
in pieces, too, and at most ``MOST`` bytes of it: some tests make archives that are too large for a disk.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import mmap
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from plumbline.captures.reader import CaptureError, CaptureParser
from plumbline.captures.segments import Address, segment

PIECE = 8 * 1024 * 1024
OVERLAP = 4 * 1024  # bytes; no spelling of a secret is longer
MOST = 1024 * 1024 * 1024
NESTED = 4  # archives inside each other

CAPTURES = (
    b"\x0a\x0d\x0d\x0a",
    b"\xd4\xc3\xb2\xa1",
    b"\xa1\xb2\xc3\xd4",
    b"\x4d\x3c\xb2\xa1",
    b"\xa1\xb2\x3c\x4d",
)
BEGINNINGS = {"gz": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\0"}
COMPRESSED: dict[str, Callable[[IO[bytes]], Any]] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
Data = bytes | mmap.mmap | memoryview


class Piece(Struct, frozen=True):
    """``data`` begins at byte ``at`` of ``place``: a file, or what is in it, behind ``!``."""

    place: str
    at: int
    data: Data


def files_in(folder: Path) -> Iterator[Path]:
    """All files, without following links to other places."""
    if folder.is_file():
        yield folder
        return
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path


def pieces(path: Path) -> Iterator[Piece]:
    """Of the file, and of all that is packed in it. Raises ``OSError``."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield Piece(str(path), 0, data)
        file.seek(0)
        yield from _packed(str(path), file, NESTED)


def _packed(place: str, file: IO[bytes], levels: int) -> Iterator[Piece]:
    """What is in a file besides its own bytes."""
    head = file.read(8)
    file.seek(0)
    try:
        if levels and (kind := _compression(head)):
            with COMPRESSED[kind](file) as unpacked:
                yield from _stream(f"{place}!{kind}", unpacked, levels - 1)
        elif levels and head[:4] == b"PK\x03\x04":
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    with archive.open(member) as opened:
                        yield from _stream(f"{place}!{member.filename}", opened, levels - 1)
        elif levels and _is_tar(file):
            with tarfile.open(fileobj=file) as archive:
                for entry in archive:
                    if (member_file := archive.extractfile(entry)) is not None:
                        yield from _stream(f"{place}!{entry.name}", member_file, levels - 1)
        elif head[:4] == b"PAR1":
            yield from _parquet(place, file)
        elif head.startswith(CAPTURES):
            yield from _capture(place, file)
    except (
        OSError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        zipfile.BadZipFile,
        tarfile.TarError,
        RuntimeError,
    ):
        return  # damaged, or never an archive; its bytes were searched as they are
    except CaptureError:
        return


def _compression(head: bytes) -> str:
    """Of a file that begins like this; empty if it is not compressed."""
    return next((kind for kind, begin in BEGINNINGS.items() if head.startswith(begin)), "")


def _is_tar(file: IO[bytes]) -> bool:
    file.seek(257)
    found = file.read(5) == b"ustar"
    file.seek(0)
    return found


def _stream(place: str, opened: IO[bytes], levels: int) -> Iterator[Piece]:
    """What comes out of an archive, and what is packed in that."""
    read, kept = 0, b""
    first = opened.read(PIECE)
    data = first
    while data and read < MOST:
        yield Piece(place, read - len(kept), kept + data)
        read += len(data)
        kept = (kept + data)[-OVERLAP:]
        data = opened.read(PIECE)
    if read == len(first):  # small enough to be an archive in an archive
        yield from _packed(place, io.BytesIO(first), levels)


def _parquet(place: str, file: IO[bytes]) -> Iterator[Piece]:
    """The memory of each column, group by group: a value is somewhere in it, as it was written."""
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(file)
        for batch in table.iter_batches():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for buffer in column.buffers():
                    if buffer is not None:
                        yield Piece(f"{place}!{name}", 0, memoryview(buffer))
    except pyarrow.ArrowException:
        return  # damaged


def _capture(place: str, file: IO[bytes]) -> Iterator[Piece]:
    """What each side of a connection sent: a secret may be in two packets."""
    streams: dict[tuple[Address, Address], bytearray] = defaultdict(bytearray)
    for source, target, data in _sent(file):
        stream = streams[source, target]
        stream += data
        if len(stream) > PIECE:
            yield Piece(f"{place}!{source}>{target}", 0, bytes(stream))
            del stream[:-OVERLAP]
    for (source, target), stream in streams.items():
        yield Piece(f"{place}!{source}>{target}", 0, bytes(stream))


def _sent(file: IO[bytes]) -> Iterable[tuple[Address, Address, bytes]]:
    parser = CaptureParser()
    while data := file.read(PIECE):
        for packet in parser.feed(data):
            found = segment(packet)
            if found is not None and found.data:
                yield found.source, found.target, found.data
