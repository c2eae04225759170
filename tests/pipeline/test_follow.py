"""``plumbline judge --follow``: what a run over the whole captures finds, while they are being written."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.follow import Following
from pipeline.judge import Asked
from pipeline.results import MANIFEST, Results
from pipeline.tables import TABLES
from proxy.capture_reader import CaptureError
from tests.pipeline.conftest import SLOW
from tests.pipeline.planted import write
from tests.pipeline.test_judge import found, found_live, in_order

PATIENCE_S = 300.0


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


@pytest.mark.timeout(600)
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
    asked = Asked(places=(str(growing),), output=str(tmp_path / "judged"), keeps_payloads=True, parts=1)
    following = Following(spark, asked, out)
    with (growing / first.name).open("wb", buffering=0) as file:
        file.write(data[:half])
        thread = threading.Thread(target=following.run)
        thread.start()
        out.wait_for("live-subscription")
        before = Results(spark, asked.output).table("violations").count()
        file.write(data[half:])
    (growing / second.name).write_bytes(second.read_bytes())
    following.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    results = Results(spark, asked.output)
    expected = in_order(found_live(captures))
    assert found(results.table("violations")) == expected
    assert 0 < before < len(expected) == results.manifest.violations
    assert all(str(violation) in out.getvalue() for violation in expected)
    assert set(results.manifest.tables) == set(TABLES)
    assert "broken" in {row.verdict for row in results.table("compliance").collect()}
    left = {path.name for path in Path(asked.output).iterdir()}
    assert left == {MANIFEST, results.manifest.run}


def test_what_python_cannot_open_is_not_followed(spark: SparkSession, tmp_path: Path) -> None:
    asked = Asked(places=(tmp_path.as_uri(),), output=str(tmp_path / "judged"))
    with pytest.raises(CaptureError, match="--follow"):
        Following(spark, asked, io.StringIO())
