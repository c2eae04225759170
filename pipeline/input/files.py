"""Capture files that Python can open: which there are, how they are cut for parallel reading, their packets.

A file is read in sections. A large plain file is walked once, from block header to block header, so that
every section begins at a block and knows the interfaces and the byte order that were declared before it.
Compressed files are one section each.
"""

from __future__ import annotations

import gzip
import io
import mmap
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from plumbline.bounds import CAPTURE_DAYS
from plumbline.captures import pcapng
from plumbline.captures.files import READ_BYTES, SUFFIXES
from plumbline.captures.reader import BlockPosition, CaptureError, CaptureParser, Packet

SECTION_BYTES = 64 * 1024 * 1024  # of a plain file, at least
PIECE_BYTES = 512 * 1024  # of a file, read at once: progress is reported after each
COMPRESSED = frozenset({".gz", ".zst"})
_PACKET_BLOCKS = frozenset({pcapng.ENHANCED_PACKET, pcapng.SIMPLE_PACKET, pcapng.OBSOLETE_PACKET})
_PCAP_HEADER, _PCAP_RECORD = 24, 16
NS_OF_DAY = 86_400_000_000_000


class CaptureFile(Struct, frozen=True):
    """One file: its path, its name as tables have it, its place among the files that are read, from 0."""

    path: str
    name: str
    number: int


class Section(Struct, frozen=True):
    """A part of a file: from ``start`` (None: the beginning) to byte ``end`` (None: the end).

    ``frame`` packets come before it in the file.
    """

    file: CaptureFile
    start: BlockPosition | None = None
    end: int | None = None
    frame: int = 0


class CaptureProblem(Struct, frozen=True):
    """What could not be read: a row of ``tables.PROBLEMS`` that concerns a file."""

    capture: str
    kind: str
    text: str
    bytes: int | None = None


def capture_files(places: Sequence[str]) -> tuple[list[CaptureFile], list[CaptureProblem]]:
    """The captures that these files and folders are, in the order of ``plumbline show``; what is not there.

    Raises ``CaptureError`` for a place that does not exist.
    """
    found: list[CaptureFile] = []
    problems: list[CaptureProblem] = []
    for place in map(Path, places):
        inside = f"{place.resolve().name}/" if len(places) > 1 else ""
        if place.is_dir():
            paths = sorted(path for path in place.iterdir() if is_capture(path))
            if not paths:
                problems.append(
                    CaptureProblem(str(place), "empty", f"{place}: no capture files in this folder")
                )
            found += [
                CaptureFile(str(path), inside + path.name, len(found) + number)
                for number, path in enumerate(paths)
            ]
        elif place.is_file():
            found.append(CaptureFile(str(place), place.name, len(found)))
        else:
            raise CaptureError(f"{place}: no such file or folder")
    return found, problems


def is_capture(path: Path) -> bool:
    """Whether its name is that of a capture, compressed or not."""
    return path.suffix in SUFFIXES or (path.suffix in COMPRESSED and Path(path.stem).suffix in SUFFIXES)


def sections(file: CaptureFile, section_bytes: int = SECTION_BYTES) -> list[Section]:
    """How ``file`` is cut. A file that is damaged is cut before the damage, and its last section meets it."""
    path = Path(file.path)
    if path.suffix in COMPRESSED or path.stat().st_size <= section_bytes:
        return [Section(file)]
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        starts = list(_starts(data, section_bytes))
    ends = [start.offset for start, _ in starts[1:]] + [None]
    return [Section(file, start, end, frame) for (start, frame), end in zip(starts, ends, strict=True)]


def _starts(data: mmap.mmap, section_bytes: int) -> Iterator[tuple[BlockPosition, int]]:
    parser = CaptureParser()
    yield BlockPosition(0, "", "<", ()), 0
    try:
        list(parser.feed(data[:_PCAP_HEADER]))
        kind = parser.position.kind
        step = _walk_pcapng if kind == "pcapng" else _walk_pcap
        if kind:
            yield from step(data, section_bytes)
    except CaptureError:
        return  # whoever reads that section says what is wrong there


def _walk_pcapng(data: mmap.mmap, section_bytes: int) -> Iterator[tuple[BlockPosition, int]]:
    """Only blocks that describe what follows are parsed; the others are stepped over."""
    parser = CaptureParser()
    frames, at, next_start, size = 0, 0, section_bytes, len(data)
    header = struct.Struct("<II")
    while size - at >= 12:
        kind, total = header.unpack_from(data, at)
        if kind == pcapng.SECTION_HEADER:
            little = struct.unpack_from("<I", data, at + 8)[0] == pcapng.BYTE_ORDER_MAGIC
            header = struct.Struct("<II" if little else ">II")
            (_, total) = header.unpack_from(data, at)
        if total % 4 or total < 12 or at + total > size:
            return
        if kind in _PACKET_BLOCKS:
            if at >= next_start:
                known = parser.position
                yield BlockPosition(at, known.kind, known.order, known.interfaces), frames
                next_start = at + section_bytes
            frames += 1
        elif kind in (pcapng.SECTION_HEADER, pcapng.INTERFACE):
            list(parser.feed(data[at : at + total]))
        at += total


def _walk_pcap(data: mmap.mmap, section_bytes: int) -> Iterator[tuple[BlockPosition, int]]:
    parser = CaptureParser()
    list(parser.feed(data[:_PCAP_HEADER]))
    known = parser.position
    record = struct.Struct(known.order + "8xI")
    frames, at, next_start, size = 0, _PCAP_HEADER, section_bytes, len(data)
    while size - at >= _PCAP_RECORD:
        if at >= next_start:
            yield BlockPosition(at, known.kind, known.order, known.interfaces), frames
            next_start = at + section_bytes
        at += _PCAP_RECORD + record.unpack_from(data, at)[0]
        frames += 1


class BlockScanner:
    """How far a file that is being written consists of whole blocks, reported again and again.

    A compressed file, and one that is damaged or no capture, is taken to be whole as it is found: what is
    written to it later is not looked at.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._parser = CaptureParser()
        self._frames = 0
        self._known: dict[int, tuple[BlockPosition | None, int]] = {0: (None, 0)}
        self._whole = 0  # bytes, of a file whose blocks are not walked

    def forward(self) -> int:
        """Bytes up to the end of the last whole block. What is damaged is left to whoever reads it."""
        if self._whole:
            return self._whole
        read = self._parser.offset + self._parser.held
        try:
            if self._path.suffix in COMPRESSED:
                self._whole = self._path.stat().st_size
                return self._whole
            with self._path.open("rb") as file:
                file.seek(read)
                while data := file.read(READ_BYTES):
                    self._frames += sum(1 for _ in self._parser.feed(data))
        except CaptureError:
            self._whole = self._path.stat().st_size
            return self._whole
        except OSError:  # it is gone: what was seen of it is all there is
            return self._parser.offset
        self._known[self._parser.offset] = (self._parser.position, self._frames)
        return self._parser.offset

    def at(self, offset: int) -> tuple[BlockPosition | None, int]:
        """What was known there, and the packets before; ``forward`` has reported that offset."""
        for older in [known for known in self._known if known < offset]:
            if older:
                del self._known[older]
        return self._known[offset]


def packets(
    section: Section, content: bytes | None = None, on_bytes: Callable[[int], None] = lambda read: None
) -> Iterator[tuple[int, Packet] | CaptureProblem]:
    """Frame number and packet, in order; at last what is wrong with the file, if this section shows it.

    ``content`` is the file's, where it is not Python that reads files. ``on_bytes`` gets how many more bytes
    of the file, as it is stored, were read and their packets taken.
    """
    file, parser, frame = section.file, CaptureParser(section.start), section.frame
    day, days = -1, set[int]()
    try:
        for data in _pieces(section, content, on_bytes):
            for packet in parser.feed(data):
                frame += 1
                if packet.time // NS_OF_DAY != day:
                    day = packet.time // NS_OF_DAY
                    days.add(day)
                    if len(days) > CAPTURE_DAYS:
                        raise CaptureError(f"its packets are of more than {CAPTURE_DAYS} days")
                yield frame, packet
    except CaptureError as error:
        kind = "damaged" if frame or parser.offset else "not-a-capture"
        yield CaptureProblem(file.name, kind, f"{file.name}: {error}")
    except EOFError:
        yield CaptureProblem(file.name, "truncated", f"{file.name}: the compressed stream ends early")
    except (zlib.error, ValueError) as error:  # gzip raises the one, PyArrow the other
        yield CaptureProblem(file.name, "damaged", f"{file.name}: the compressed stream is damaged: {error}")
    except OSError as error:
        yield CaptureProblem(file.name, "unreadable", f"{file.name}: {error.strerror or error}")
    else:
        yield from _ending(section, parser)


def _ending(section: Section, parser: CaptureParser) -> Iterator[CaptureProblem]:
    name = section.file.name
    if parser.held and parser.position.kind:
        text = f"{name}: the last {parser.held} bytes are not a whole block"
        yield CaptureProblem(name, "truncated", text, parser.held)
    elif not parser.position.kind:
        yield CaptureProblem(name, "not-a-capture", f"{name}: no capture: {parser.held} bytes", parser.held)


def _pieces(section: Section, content: bytes | None, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    start = section.start.offset if section.start else 0
    left = None if section.end is None else section.end - start
    with _open_bytes(Path(section.file.path), content) as (file, plain):
        known = start
        if start:
            file.seek(start)
        while data := file.read(PIECE_BYTES if left is None else min(PIECE_BYTES, left)):
            if left is not None:
                left -= len(data)
            yield data
            known, before = plain.tell(), known
            on_bytes(known - before)


@contextmanager
def _open_bytes(path: Path, content: bytes | None) -> Iterator[tuple[Any, Any]]:
    """Something to read the uncompressed bytes from, and the file as it is stored."""
    with path.open("rb") if content is None else io.BytesIO(content) as plain:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=plain) as uncompressed:
                yield uncompressed, plain
        elif path.suffix == ".zst":
            import pyarrow as pa

            with pa.CompressedInputStream(plain, "zstd") as uncompressed:
                yield uncompressed, plain
        else:
            yield plain, plain
