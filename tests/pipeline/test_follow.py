"""``plumbline judge --follow``: what a run over the whole captures finds, while they are being written."""

from __future__ import annotations

import gzip
import io
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from plumbline.captures.reader import CaptureError
from plumbline.pipeline.follow import FollowRun
from plumbline.pipeline.input.files import BlockScanner
from plumbline.pipeline.input.source import CaptureStreamReader
from plumbline.pipeline.results import MANIFEST, JudgeOptions, Results
from plumbline.pipeline.tables import PACKETS, TABLES
from tests.pipeline.conftest import SLOW
from tests.pipeline.support.planted import write
from tests.pipeline.test_judge import found, found_live, in_order

PATIENCE_S = 3600.0  # only a hang lasts longer: machines may be very busy


class Heard(io.StringIO):
    """What is printed; others wait until something is."""

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Condition()

    def write(self, text: str) -> int:
        with self._written:
            self._written.notify_all()
            return super().write(text)

    def wait_for(self, text: str) -> None:
        with self._written:
            assert self._written.wait_for(lambda: text in self.getvalue(), PATIENCE_S)


@SLOW
def test_a_file_that_grows_is_judged_as_the_whole(spark: SparkSession, tmp_path: Path) -> None:
    captures, growing = tmp_path / "captures", tmp_path / "growing"
    captures.mkdir()
    growing.mkdir()
    write(captures, size=30_000)
    first, second = sorted(captures.iterdir())
    data = first.read_bytes()
    out = Heard()
    half = len(data) // 2 + 1  # in the middle of a block
    asked = JudgeOptions(
        paths=(str(growing),), output=str(tmp_path / "judged"), keeps_payloads=True, partitions=1
    )
    following = FollowRun(spark, asked, out)
    thread = threading.Thread(target=following.run)
    with (growing / first.name).open("wb", buffering=0) as file:
        file.write(data[:half])
        thread.start()
        try:
            out.wait_for("live-subscription")
            before = Results(spark, asked.output).table("violations").count()
            file.write(data[half:])
            (growing / second.name).write_bytes(second.read_bytes())
        finally:
            following.stop()
            thread.join(PATIENCE_S)
    assert not thread.is_alive()
    results = Results(spark, asked.output)
    expected = in_order(found_live(captures))
    assert found(results.table("violations")) == expected
    assert 0 < before < len(expected) == results.manifest.violations
    assert all(str(violation) in out.getvalue() for violation in expected)
    assert set(results.manifest.tables) == set(TABLES)
    assert results.manifest.captures == (first.name, second.name)
    assert "broken" in {row.verdict for row in results.table("compliance").collect()}
    left = {path.name for path in Path(asked.output).iterdir()}
    assert left == {MANIFEST, results.manifest.run}


def test_follow_judges_all_written_data_before_stop(tmp_path: Path) -> None:
    captures, until = tmp_path / "captures", tmp_path / "until"
    captures.mkdir()
    write(captures, size=1000)
    data = next(captures.iterdir()).read_bytes()
    for path in captures.iterdir():
        path.unlink()
    growing = captures / "a.pcapng"
    growing.write_bytes(data[: len(data) // 2])
    reader = CaptureStreamReader({"path": str(captures), "until": str(until)}, PACKETS.names)
    half = reader.latestOffset()
    growing.write_bytes(data)
    whole = reader.latestOffset()
    assert 0 < half[str(growing)] < whole[str(growing)] == len(data)
    until.touch()
    assert reader.latestOffset() == whole
    (captures / "b.pcapng").write_bytes(data)
    assert reader.latestOffset() == whole


@pytest.mark.parametrize("kind", ["damaged", "compressed"])
def test_a_file_without_blocks_to_walk_is_whole_as_it_is_found(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("a.pcapng" if kind == "damaged" else "a.pcapng.gz")
    path.write_bytes(gzip.compress(b"GIF89a, certainly") if kind == "compressed" else b"GIF89a, certainly")
    walk = BlockScanner(str(path))
    size = walk.forward()
    assert size == path.stat().st_size
    with path.open("ab") as file:
        file.write(b"more")
    assert walk.forward() == size


def test_deleted_file_keeps_its_last_size(tmp_path: Path) -> None:
    write(tmp_path, size=1000)
    path = min(tmp_path.iterdir())
    walk = BlockScanner(str(path))
    size = walk.forward()
    path.unlink()
    assert walk.forward() == size > 0


def test_remote_folder_cannot_be_followed(spark: SparkSession, tmp_path: Path) -> None:
    asked = JudgeOptions(paths=(tmp_path.as_uri(),), output=str(tmp_path / "judged"))
    with pytest.raises(CaptureError, match="--follow"):
        FollowRun(spark, asked, io.StringIO())
