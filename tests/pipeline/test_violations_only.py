"""Violations without tables: Spark finds what was planted, on connections and across them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from plumbline.pipeline import transforms
from plumbline.pipeline.input.frames import bundled, find
from tests.pipeline.support.planted import write


def test_all_that_is_planted_is_found(spark: SparkSession, tmp_path: Path) -> None:
    planted = write(tmp_path, size=1000)
    source = bundled(spark, find(spark, [str(tmp_path)]), section_bytes=1_000_000)
    found = (
        transforms.found_violations(transforms.staged_for_violations(source, 2), 2).select("rule").collect()
    )
    assert Counter(row.rule for row in found) == Counter(one.rule for one in planted)
