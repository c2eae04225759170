"""Packets on their way to decoding: nothing is lost, and their order is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from plumbline.captures.segments import Address
from plumbline.pipeline.input import bundles
from plumbline.pipeline.input.bundles import BUNDLES, flow_number, packet_rows, unpack, unpack_problem
from plumbline.pipeline.input.files import Section, capture_files, sections
from plumbline.pipeline.input.packets import batches
from plumbline.pipeline.rows import RowKind
from plumbline.pipeline.tables import PACKETS
from tests.pipeline.support.planted import write

ONE, OTHER = Address("127.0.0.1", 4222), Address("::1", 50000)


@pytest.fixture(scope="module")
def section(tmp_path_factory: pytest.TempPathFactory) -> Section:
    folder = tmp_path_factory.mktemp("captures")
    write(folder, size=100_000)
    (file, *_), _ = capture_files([str(folder)])
    return sections(file)[0]


def by_frame(rows: list[pa.RecordBatch]) -> list[dict[str, object]]:
    return list(pa.Table.from_batches(rows).sort_by("frame").to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, "BUNDLE_PACKETS", "BUNDLE_BYTES", "HELD_BYTES"])
def test_bundles_hold_the_packets_of_the_table(
    section: Section, limit: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = list(bundles.bundles(section))
    if limit:
        monkeypatch.setattr(bundles, limit, 3)
        assert sum(batch.num_rows for batch in bundles.bundles(section)) > sum(one.num_rows for one in few)
    rows = list(packet_rows(bundles.bundles(section), PACKETS.names))
    assert by_frame(rows) == by_frame(list(batches(section)))


def test_bundles_of_flow_are_ordered_by_first_frame(
    section: Section, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "BUNDLE_PACKETS", 3)
    table = pa.Table.from_batches(list(bundles.bundles(section))).sort_by(
        [("flow", "ascending"), ("file", "ascending"), ("frame", "ascending")]
    )
    frames: dict[int, list[int]] = {}
    for row in table.to_pylist():
        assert row["row_kind"] == RowKind.PACKETS
        held = list(unpack(row["content"]))
        assert row["frame"] == held[0][0]
        assert all(flow_number(carried.source, carried.target) == row["flow"] for _, carried in held)
        frames.setdefault(row["flow"], []).extend(frame for frame, _ in held)
    assert len(frames) > 1
    assert all(seen == sorted(seen) for seen in frames.values())


def test_a_flow_has_one_number_in_both_directions_and_in_every_process() -> None:
    assert flow_number(ONE, OTHER) == flow_number(OTHER, ONE) == -3123773835418670431
    assert flow_number(ONE, ONE) != flow_number(ONE, OTHER)


def test_file_problem_is_a_bundle_row(tmp_path: Path, section: Section) -> None:
    cut = tmp_path / os.fsdecode(b"cut-\xff.pcapng")
    cut.write_bytes(Path(section.file.path).read_bytes()[:-10])
    (found,), _ = capture_files([str(tmp_path)])
    rows = pa.Table.from_batches(list(bundles.bundles(Section(found)))).to_pylist()
    assert set(rows[0]) == set(BUNDLES.names)
    (problem,) = [unpack_problem(row["content"]) for row in rows if row["row_kind"] == RowKind.PROBLEM]
    assert (problem.kind, problem.capture) == ("truncated", "cut-\N{REPLACEMENT CHARACTER}.pcapng")
