"""Bundles: hundreds of packets of one flow in one row, for the way from reading to decoding.

A row for each packet costs Java, Arrow and Python together a quarter of what decoding it costs. A bundle is
opened by ``flows.decode`` alone; the table ``packets`` has a row for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import Struct, msgpack
from msgspec.structs import astuple

from plumbline.captures.segments import Address, Segment, segment
from plumbline.pipeline.input.files import CaptureFile, CaptureProblem, Section, packets
from plumbline.pipeline.input.packets import PacketRows
from plumbline.pipeline.rows import ROW_KIND, STATE, Collector, RowKind, rows_of, without_surrogates
from plumbline.pipeline.tables import BYTES, INT, LONG, TEXT, Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

BUNDLE_PACKETS, BUNDLE_BYTES = 512, 256 * 1024  # of one row
HELD_BYTES = 8 * 1024 * 1024  # of all that a section has begun

BUNDLES = Table(
    "bundles",
    "Packets between two ends, in their order; problems of files; states of flows.",
    (
        Column("flow", LONG, "the same for all that passes between two ends; null of a problem"),
        Column("file", INT, "place of its file among those that are read, from 0"),
        Column("frame", LONG, "of the first packet, from 1"),
        Column("capture", TEXT, "the capture file"),
        ROW_KIND,
        Column("content", BYTES, "MessagePack: Carried of packets, Problem of a problem"),
        STATE,
    ),
)


class _Packet(Struct, frozen=True, array_like=True, gc=False):
    """A segment, between ends that its bundle knows."""

    frame: int
    is_back: bool
    seq: int
    ack: int
    flags: int
    data: bytes
    missing: int
    time: int
    comments: tuple[str, ...]


class BundledPackets(Struct, frozen=True, array_like=True):
    """The content of a bundle. The first packet that was seen between the ends went from ``one``."""

    one: Address
    other: Address
    packets: list[_Packet]


_carried, _problem = msgpack.Decoder(BundledPackets), msgpack.Decoder(CaptureProblem)
_encode = msgpack.Encoder().encode


class _BundleFlow:
    """What is collected between two ends."""

    __slots__ = ("bytes", "ends", "number", "packets")

    def __init__(self, ends: tuple[Address, Address]) -> None:
        self.ends = ends
        self.number = flow_number(*ends)
        self.packets: list[_Packet] = []
        self.bytes = 0

    def take(self, file: CaptureFile) -> dict[str, Any]:
        """A row; nothing is left."""
        packed = _encode(BundledPackets(*self.ends, self.packets))
        first = self.packets[0].frame
        self.packets, self.bytes = [], 0
        return _row(file, RowKind.PACKETS, packed) | {"flow": self.number, "frame": first}


def bundles(section: Section, content: bytes | None = None) -> Iterator[pa.RecordBatch]:
    """The TCP segments of a section, and what is wrong with the file, as rows of ``BUNDLES``.

    ``content`` is the file's, where it is not Python that reads files.
    """
    collected = Collector(BUNDLES)
    flows: dict[tuple[Address, Address], tuple[_BundleFlow, bool]] = {}
    held = 0
    for found in packets(section, content):
        if isinstance(found, CaptureProblem):
            problem = CaptureProblem(
                *map(without_surrogates, astuple(found))
            )  # a file's name may be no UTF-8
            if collected.add(_row(section.file, RowKind.PROBLEM, _encode(problem))):
                yield from collected.take()
            continue
        frame, packet = found
        carried = segment(packet)
        if carried is None:
            continue
        ends = carried.source, carried.target
        if (known := flows.get(ends)) is None:
            flow = _BundleFlow(ends)
            known = flows[ends] = flow, False
            flows.setdefault(ends[::-1], (flow, True))
        flow, is_back = known
        flow.packets.append(
            _Packet(
                frame, is_back, carried.seq, carried.ack, carried.flags, carried.data, carried.missing,
                carried.time, carried.comments,
            )
        )  # fmt: skip
        size = len(carried.data)
        flow.bytes += size
        held += size
        if len(flow.packets) >= BUNDLE_PACKETS or flow.bytes >= BUNDLE_BYTES:
            held -= flow.bytes
            if collected.add(flow.take(section.file)):
                yield from collected.take()
        elif held >= HELD_BYTES:
            yield from _all(flows, section.file, collected)
            held = 0
    yield from _all(flows, section.file, collected)
    yield from collected.take()


def _all(
    flows: dict[tuple[Address, Address], tuple[_BundleFlow, bool]], file: CaptureFile, collected: Collector
) -> Iterator[pa.RecordBatch]:
    """What is collected of every flow; they are forgotten."""
    for flow, _ in flows.values():
        if flow.packets and collected.add(flow.take(file)):
            yield from collected.take()
    flows.clear()


def _row(file: CaptureFile, kind: RowKind, content: bytes) -> dict[str, Any]:
    return {"file": file.number, "capture": file.name, "row_kind": kind, "content": content}


def flow_number(one: Address, other: Address) -> int:
    """The same for both directions, in every process: 64 bits, signed."""
    lower, higher = sorted((str(one), str(other)))
    digest = blake2b(f"{lower} {higher}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def unpack(content: bytes) -> Iterator[tuple[int, Segment]]:
    """Frame number and segment, of the content of packets."""
    bundle = _carried.decode(content)
    one, other = bundle.one, bundle.other
    for packet in bundle.packets:
        source, target = (other, one) if packet.is_back else (one, other)
        yield (
            packet.frame,
            Segment(
                source, target, packet.seq, packet.ack, packet.flags, packet.data, packet.missing,
                packet.time, packet.comments,
            ),
        )  # fmt: skip


def unpack_problem(content: bytes) -> CaptureProblem:
    """The problem in the content of such a row."""
    return _problem.decode(content)


def packet_rows(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Bundles as rows of ``tables.PACKETS``, in those columns."""
    for file, capture, kind, content in rows_of(batches, ("file", "capture", "row_kind", "content")):
        if kind == RowKind.PACKETS:
            rows = PacketRows(CaptureFile("", capture, file), columns)
            for frame, carried in unpack(content):
                if rows.add(frame, carried):
                    yield from rows.take()
            yield from rows.take()
