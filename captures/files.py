"""Capture files by name: one, several, or a recorder's folder; as they are, or as they grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from plumbline.captures.operations import OperationReader, OperationRow
from plumbline.captures.reader import CaptureError, CaptureParser, Packet
from plumbline.captures.segments import segment

SUFFIXES = frozenset({".pcapng", ".pcap", ".cap"})
READ_BYTES = 4 * 1024 * 1024
POLL_S = 0.05  # how often a growing file is looked at


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files that these names stand for, a folder's by name. Raises ``CaptureError`` if one is none."""
    found: list[Path] = []
    for place in paths:
        if place.is_dir():
            found += sorted((path for path in place.iterdir() if path.suffix in SUFFIXES), key=_order)
        elif place.is_file():
            found.append(place)
        else:
            raise CaptureError(f"{place}: no such file or folder")
    return found


def _hint(places: Sequence[Path]) -> str:
    """The folders inside these that have captures: ``plumbline observe`` keeps one for each broker."""
    inside = (file for place in places for file in place.glob("*/*"))
    folders = sorted({str(file.parent) for file in inside if file.suffix in SUFFIXES})
    return f"; give a folder inside it: {', '.join(folders)}" if folders else ""


def _order(path: Path) -> tuple[Path, str, str]:
    """By name without the suffix: a recorder writes ``a.pcapng``, then ``a-0002.pcapng``."""
    return path.parent, path.stem, path.suffix


class CaptureSource:
    """The packets of some captures, in order. ``remarks`` says what is wrong with the files themselves.

    ``since`` leaves out the files of a folder that were begun before that one: names tell the time.
    """

    def __init__(self, places: Sequence[Path], since: Path | None = None) -> None:
        self.remarks: list[str] = []
        self._paths = list(places)
        self._since = since
        self.files: list[Path] = []
        self._find_new_files()
        if not self.files:
            raise CaptureError(f"{', '.join(map(str, places))}: no capture files found{_hint(places)}")

    def packets(self) -> Iterator[Packet]:
        """All there are. Raises ``CaptureError`` for a file that is no capture."""
        for path in self.files:
            parser = CaptureParser()
            with path.open("rb") as file:
                while data := file.read(READ_BYTES):
                    yield from _named(path, parser, data)
                self._ended(path, parser, file.tell())

    def follow(self, until: Callable[[], bool]) -> Iterator[Packet | None]:
        """All there are and all that come, also in files that come; None when there is none at the moment.

        What was written when ``until`` becomes true is read before the end.
        """
        at = 0
        while True:
            path = self.files[at]
            parser = CaptureParser()
            with path.open("rb") as file:
                while True:
                    is_last_look = until()
                    if data := file.read(READ_BYTES):
                        yield from _named(path, parser, data)
                        continue
                    self._find_new_files()
                    if at + 1 < len(self.files):  # nothing is written to this one any more
                        for data in iter(lambda: file.read(READ_BYTES), b""):
                            yield from _named(path, parser, data)
                        self._ended(path, parser, file.tell())
                        break
                    if is_last_look:
                        return
                    yield None
                    time.sleep(POLL_S)
            at += 1

    def _find_new_files(self) -> None:
        for path in files_of(self._paths):
            if path not in self.files and (self._since is None or _order(path) >= _order(self._since)):
                self.files.append(path)

    def _ended(self, path: Path, parser: CaptureParser, size: int) -> None:
        if not size:
            self.remarks.append(f"{path}: the file is empty")
        if parser.held:
            self.remarks.append(f"{path}: the last {parser.held} bytes are not a whole block")


def _named(path: Path, parser: CaptureParser, data: bytes) -> Iterator[Packet]:
    try:
        yield from parser.feed(data)
    except CaptureError as error:
        raise CaptureError(f"{path}: {error}") from None


def rows(packets: Iterator[Packet | None], reader: OperationReader) -> Iterator[OperationRow | None]:
    """What the packets carry; None is passed on."""
    for packet in packets:
        if packet is None:
            yield None
        elif (carried := segment(packet)) is not None:
            yield from reader.feed(carried)
    yield from reader.finish()


def read(places: Sequence[Path], protocol: str | None = None) -> Iterator[OperationRow]:
    """Every row of these captures. Raises ``CaptureError``."""
    return (
        row for row in rows(CaptureSource(places).packets(), OperationReader(protocol)) if row is not None
    )
