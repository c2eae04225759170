"""Decoding, judging and reading captures without Spark: the functions that its workers run."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec.msgpack import Decoder

from plumbline.captures.files import CaptureSource, read
from plumbline.captures.judging import CaptureJudge
from plumbline.captures.reader import CaptureError, Packet
from plumbline.captures.segments import segment
from plumbline.errors import UNDECODABLE
from plumbline.monitors import Place, Violation
from plumbline.monitors.nats.facts import PullRequested
from plumbline.pipeline.input.bundles import bundles
from plumbline.pipeline.input.files import (
    BlockScanner,
    CaptureFile,
    CaptureProblem,
    Section,
    capture_files,
    packets,
    sections,
)
from plumbline.pipeline.input.packets import batches
from plumbline.pipeline.input.source import CaptureReader, PlumblineSource
from plumbline.pipeline.judging import cross_connection
from plumbline.pipeline.judging.cells import Cells, text_without_payload
from plumbline.pipeline.judging.cross_connection import OperationFacts, packed, unpacked
from plumbline.pipeline.judging.flows import STAGED, FlowJudge, decode
from plumbline.pipeline.judging.states import StateError, dumped, new_state_key, restored
from plumbline.pipeline.judging.streams import judge_streams
from plumbline.pipeline.rows import RowKind
from plumbline.pipeline.tables import TABLES, arrow_schema, describe, spark_schema
from plumbline.wire import nats
from plumbline.wire.amqp import Method
from tests.pipeline.support.amqp_episodes import AMQP
from tests.pipeline.support.nats_episodes import NATS
from tests.pipeline.support.planted import PLACES, Planted, write

SMALL = 100_000
KEY = new_state_key()


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    write(folder, size=SMALL)
    return folder


def staged(places: list[str], section_bytes: int = 1 << 26, *, keeps_payloads: bool = False) -> pa.Table:
    """As Spark's shuffle would bring the packets together."""
    files, _ = capture_files(places)
    read = [
        batch for file in files for section in sections(file, section_bytes) for batch in bundles(section)
    ]
    order = [(name, "ascending") for name in ("flow", "file", "frame")]
    decoded = decode(pa.Table.from_batches(read).sort_by(order).to_batches(), keeps_payloads=keeps_payloads)
    return pa.Table.from_batches(list(decoded), schema=arrow_schema(STAGED))


def violations(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows of ``FOUND``, in order."""
    order = [(name, "ascending") for name in ("key", "file", "frame", "number")]
    wanted = pc.or_(pc.equal(rows["row_kind"], RowKind.FACTS), pc.is_valid(rows["broken"]))
    found = judge_streams(rows.filter(wanted).sort_by(order).to_batches())
    broken = [row for batch in found for row in batch.to_pylist()]
    return sorted(broken, key=lambda row: (row["file"], row["frame"], row["number"], row["rank"]))


def as_live(folder: Path) -> list[Violation]:
    """What the proxy's own judge finds."""
    judge = CaptureJudge()
    return [violation for row in read([folder]) for violation in judge.observe(row)]


def test_all_that_is_planted_is_found_and_nothing_else(tmp_path: Path) -> None:
    planted = write(tmp_path, size=SMALL)
    assert len(planted) == len(PLACES) * (len(NATS) + len(AMQP))
    rows = staged([str(tmp_path)])
    openings = rows.filter(pc.equal(rows["op"], "opened"))
    recorded = dict(zip(openings["connection"].to_pylist(), openings["recorded"].to_pylist(), strict=True))
    found = [Planted(row["rule"], recorded[row["connection"]], row["number"]) for row in violations(rows)]
    assert sorted(found) == planted


@pytest.mark.parametrize("operations", [cross_connection.ROW_OPERATIONS, 1, 3])
def test_flows_apart_find_what_one_reader_finds(
    captures: Path, operations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_connection, "ROW_OPERATIONS", operations)
    expected = as_live(captures)
    found = violations(staged([str(captures)], keeps_payloads=True))
    assert [(row["rule"], row["expected"], row["actual"], row["text"], row["time_ns"]) for row in found] == [
        (one.rule, one.expected, one.actual, one.place.text, one.place.at) for one in expected
    ]
    assert [[place["text"] for place in row["earlier"]] for row in found] == [
        [place.text for place in one.earlier] for one in expected
    ]


def packets_of(section: Section) -> list[tuple[int, Packet]]:
    """There is nothing wrong with these."""
    found = list(packets(section))
    assert not [one for one in found if isinstance(one, CaptureProblem)]
    return [one for one in found if not isinstance(one, CaptureProblem)]


def test_sections_of_a_file_are_the_file(captures: Path) -> None:
    (file, *_), _ = capture_files([str(captures)])
    cut = sections(file, 1000)
    assert len(cut) > 2
    whole = packets_of(sections(file)[0])
    assert [found for section in cut for found in packets_of(section)] == whole


def test_sections_of_a_classic_pcap_are_the_file(tmp_path: Path, captures: Path) -> None:
    (file, *_), _ = capture_files([str(captures)])
    path = tmp_path / "classic.pcap"
    header = bytes.fromhex("4d3cb2a1020004000000000000000000ffff000065000000")
    records = b""
    for _, packet in packets_of(sections(file)[0]):
        seconds, rest = divmod(packet.time, 1_000_000_000)
        size = len(packet.data)
        records += b"".join(n.to_bytes(4, "little") for n in (seconds, rest, size, size)) + packet.data
    path.write_bytes(header + records)
    (classic,), _ = capture_files([str(path)])
    cut = sections(classic, 1000)
    assert len(cut) > 2
    found = [(frame, packet.time, packet.data) for section in cut for frame, packet in packets_of(section)]
    assert found == [(frame, packet.time, packet.data) for frame, packet in packets_of(sections(file)[0])]


def test_a_file_that_grows_is_walked_block_by_block(tmp_path: Path, captures: Path) -> None:
    (file, *_), _ = capture_files([str(captures)])
    data, path = Path(file.path).read_bytes(), tmp_path / "grows.pcapng"
    (growing,), _ = capture_files([str(Path(file.path))])
    walk, known, found = BlockScanner(str(path)), 0, []
    with path.open("wb", buffering=0) as out:
        for start in range(0, len(data), 7001):
            out.write(data[start : start + 7001])
            offset = walk.forward()
            assert offset <= path.stat().st_size
            position, frame = walk.at(known)
            grown = CaptureFile(str(path), growing.name, 0)
            found += packets_of(Section(grown, position, offset, frame))
            known = offset
    assert found == packets_of(sections(file)[0])


@pytest.mark.slow
def test_flow_state_continues_in_other_process(captures: Path) -> None:
    """As a run that follows does after each batch: the same rows, however often it is put aside."""
    segments = [carried for packet in CaptureSource([captures]).packets() if (carried := segment(packet))]
    judge = FlowJudge(keeps_payloads=False)
    whole = [row for at, carried in enumerate(segments) for row in judge.feed(carried, 0, at, "c")]
    judge = FlowJudge(keeps_payloads=False)
    parts: list[Cells] = []
    for at, carried in enumerate(segments):
        parts += judge.feed(carried, 0, at, "c")
        if at % 100 == 0:
            judge = restored(dumped(judge, KEY), KEY)
    assert parts == whole


def test_compressed_files_are_read(tmp_path: Path, captures: Path) -> None:
    (file, *_), _ = capture_files([str(captures)])
    plain = Path(file.path).read_bytes()
    (tmp_path / "a.pcapng.gz").write_bytes(gzip.compress(plain))
    with pa.CompressedOutputStream(str(tmp_path / "b.pcapng.zst"), "zstd") as out:
        out.write(plain)
    files, _ = capture_files([str(tmp_path)])
    assert [one.name for one in files] == ["a.pcapng.gz", "b.pcapng.zst"]
    for one in files:
        assert packets_of(sections(one)[0]) == packets_of(sections(file)[0])


def test_only_the_columns_that_are_asked_for(captures: Path) -> None:
    (file, *_), _ = capture_files([str(captures)])
    (batch, *_) = batches(sections(file)[0], ("size", "frame"))
    assert batch.schema.names == ["size", "frame"]


def test_unreadable_files_become_problem_rows(tmp_path: Path, captures: Path) -> None:
    (file, *_), _ = capture_files([str(captures)])
    plain = Path(file.path).read_bytes()
    damaged = bytearray(plain)
    damaged[len(plain) // 2 :] = b"\xff" * (len(plain) - len(plain) // 2)
    for name, data in {
        "a-cut.pcapng": plain[:-10],
        "b-damaged.pcapng": bytes(damaged),
        "c-other.pcapng": b"GIF89a, certainly",
        "d-nothing.pcap": b"",
        "e-cut.pcapng.gz": gzip.compress(plain)[:-20],
    }.items():
        (tmp_path / name).write_bytes(data)
    rows = staged([str(tmp_path)])
    problems = rows.filter(pc.equal(rows["row_kind"], RowKind.PROBLEM))
    named = dict(zip(problems["capture"].to_pylist(), problems["description"].to_pylist(), strict=True))
    assert named == {
        "a-cut.pcapng": "truncated",
        "b-damaged.pcapng": "damaged",
        "c-other.pcapng": "not-a-capture",
        "d-nothing.pcap": "not-a-capture",
        "e-cut.pcapng.gz": "truncated",
    }
    assert rows.num_rows > problems.num_rows  # the rest is there


def test_source_fails_without_problem_rows(tmp_path: Path) -> None:
    (tmp_path / "other.pcapng").write_bytes(b"certainly no capture")
    (file,), _ = capture_files([str(tmp_path)])
    with pytest.raises(CaptureError, match=r"other\.pcapng: not a capture file"):
        list(batches(sections(file)[0]))


def test_source_names_unknown_columns() -> None:
    with pytest.raises(ValueError, match="rows are packets or bundles, not frames"):
        PlumblineSource({"path": "captures", "rows": "frames"}).schema()
    with pytest.raises(ValueError, match="packets have no column colour; they have frame, file"):
        CaptureReader({"path": "captures"}, ["frame", "colour"])


def test_a_folder_without_captures_is_a_problem(tmp_path: Path) -> None:
    files, problems = capture_files([str(tmp_path)])
    assert (files, [one.kind for one in problems]) == ([], ["empty"])


def test_texts_leave_payloads_out() -> None:
    assert text_without_payload(nats.Msg.make("a", "1", b"secret")) == "MSG a 1 6 | (6 bytes)"
    headers = nats.HMsg.make("a", "1", b"NATS/1.0 404 No Messages\r\n\r\n", b"secret")
    assert "404 No Messages" in text_without_payload(headers)
    assert "secret" not in text_without_payload(headers)
    published = Method.make("basic.publish", 1, routing_key="q", body=b'secret body=""')
    assert text_without_payload(published).endswith("| body=(14 bytes)")


def test_packing_keeps_non_utf8_text() -> None:
    for text in ("plain", "\udcff", "\x1b00ff \udcff\x1b"):
        assert unpacked(packed([text]), Decoder(list[str])) == [text]
    requested = PullRequested(
        place=Place("1", 1, 1, "\udc80"), stream="\udc80", domain="", consumer="C", inbox="_INBOX.\udcfe",
        sid="1", batch=1,
    )  # fmt: skip
    fact = OperationFacts(1, 2, 3, [requested])
    assert unpacked(packed([fact]), Decoder(list[OperationFacts])) == [fact]


class Harmful:
    """A pickle of it runs code."""

    def __reduce__(self) -> Any:
        return os.mkdir, (HARM,)


HARM = "ran-code"


def test_only_what_the_run_has_written_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    forged = pickle.dumps(Harmful())
    signed = dumped([1], KEY)
    for data in (forged, signed[:32] + forged, dumped(Harmful(), new_state_key()), b"", signed[:-1]):
        for key in (KEY, b""):
            with pytest.raises(StateError):
                restored(data, key)
        with pytest.raises(UNDECODABLE):
            unpacked(data, Decoder(list[str]))
    assert not (tmp_path / HARM).exists()
    assert restored(signed, KEY) == [1]


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_spark_and_arrow_have_one_schema(table: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    assert to_arrow_schema(spark_schema(table), timezone="UTC").types == arrow_schema(table).types
    assert all(column.meaning for column in table.columns)
    assert len(describe(table).splitlines()) == len(table.columns) + 1
