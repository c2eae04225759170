"""``plumbline judge``: captures to tables in a folder, and what they break.

    bundles --staged--> operations --found--> violations, and by SQL everything else

What is decoded once is put aside in the run's own folder, so that no later step decodes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

from plumbline.pipeline import answered, problems, transforms
from plumbline.pipeline.compliance import compliance
from plumbline.pipeline.input.frames import CaptureInput, bundled, find, packets
from plumbline.pipeline.judging.flows import STAGED
from plumbline.pipeline.judging.streams import FOUND_OR_STATE
from plumbline.pipeline.results import JudgeOptions, Manifest, new_run, publish, read_table, write_table
from plumbline.pipeline.spark.storage import folder
from plumbline.pipeline.tables import (
    COMPLIANCE,
    DELIVERIES,
    OPERATIONS,
    PACKETS,
    PROBLEMS,
    PUBLISHES,
    PULLS,
    TABLES,
    VIOLATIONS,
    Table,
    spark_schema,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS_PER_CORE, PART_BYTES = 6, 8 * 1024 * 1024  # at most so many; so large at least
ROWS_PER_FILE = 2_000_000  # of a capture's packets, in one file of a table
_STAGING = "staging"


class JudgeRun:
    """One run over captures as they are. ``tell`` gets each step as it begins."""

    def __init__(
        self, spark: SparkSession, options: JudgeOptions, on_step: Callable[[str], None] = lambda step: None
    ) -> None:
        self._spark = spark
        self._options = options
        self._on_step = on_step
        self._folder = folder(options.output, spark)
        self._run = new_run()
        self._partitions = options.partitions

    def run(self) -> Manifest:
        """Judges everything and makes it the result. Raises ``CaptureError`` for places that do not exist."""
        found = find(self._spark, self._options.paths)
        partitions = PARTS_PER_CORE * self._spark.sparkContext.defaultParallelism
        self._partitions = self._options.partitions or min(partitions, found.bytes // PART_BYTES + 1)
        try:
            with shuffle_partitions(self._spark, self._partitions):
                manifest = self._tables(found)
        except BaseException:
            self._folder.delete(self._run)
            raise
        publish(self._folder, manifest)
        return manifest

    def _tables(self, found: CaptureInput) -> Manifest:
        keeps = self._options.keeps_payloads
        self._on_step(f"decoding {len(found.files)} {'capture' if len(found.files) == 1 else 'captures'}")
        source = bundled(self._spark, found, section_bytes=self._options.section_bytes)
        decoded = transforms.staged(source, self._partitions, keeps_payloads=keeps)
        staged = self._staged("operations", decoded, STAGED)
        self._on_step("judging streams and queues across connections")
        broken = self._staged(
            "violations", transforms.found_violations(staged, self._partitions), FOUND_OR_STATE
        )
        self._on_step("writing tables")
        numbers = transforms.connection_numbers(staged)
        operations = self._written(spread_by_capture(transforms.operations(staged, numbers)), OPERATIONS)
        violations = self._written(transforms.violations(broken, numbers), VIOLATIONS)
        self._written(answered.deliveries(operations), DELIVERIES)
        self._written(answered.pulls(operations), PULLS)
        self._written(answered.publishes(operations), PUBLISHES)
        read = packets(self._spark, found, section_bytes=self._options.section_bytes, with_payload=keeps)
        self._written(transforms.packets_table(read), PACKETS)
        problem_rows = problems.problems_of_places(self._spark, found.problems).unionByName(
            problems.problems_of_files(staged)
        )
        problem_rows = problem_rows.unionByName(problems.problems_of_connections(operations)).coalesce(1)
        wrong = self._written(problem_rows.sort("capture", "frame"), PROBLEMS)
        self._written(compliance(operations, violations).coalesce(1), COMPLIANCE)
        self._folder.delete(f"{self._run}/{_STAGING}")
        names = tuple(file.name for file in found.files)
        manifest = Manifest(run=self._run, tables=tuple(TABLES), captures=names, payloads=keeps)
        return msgspec.structs.replace(manifest, **count_tables(operations, violations, wrong))

    def _staged(self, name: str, rows: DataFrame, table: Table) -> DataFrame:
        place = self._folder.at(self._run, _STAGING, name)
        rows.write.parquet(place)
        return self._spark.read.schema(spark_schema(table)).parquet(place)

    def _written(self, rows: DataFrame, table: Table) -> DataFrame:
        place = self._folder.at(self._run, table.name)
        write_table(rows, place, table)
        return read_table(self._spark, place, table)


def count_tables(operations: DataFrame, violations: DataFrame, wrong: DataFrame) -> dict[str, int]:
    """How many there are, as ``Manifest`` has it: one job."""
    counts = (
        operations.agg(F.count_if(F.col("number") > 0).alias("operations"))
        .crossJoin(
            violations.agg(F.count("*").alias("violations"), F.count_if(~F.col("certain")).alias("possible"))
        )
        .crossJoin(wrong.agg(F.count("*").alias("problems")))
        .collect()
    )
    return counts[0].asDict()


def spread_by_capture(operations: DataFrame) -> DataFrame:
    """Operations of a capture together, in its order: few files, and none too large."""
    part = F.floor(F.col("frame") / ROWS_PER_FILE)
    return operations.repartition("capture", part).sortWithinPartitions("capture", "frame", "number")


@contextmanager
def shuffle_partitions(spark: SparkSession, parts: int) -> Iterator[None]:
    """Shuffles into so many parts for a while: Spark's 200 are far too many for one machine."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name) or ""
    spark.conf.set(name, str(parts))
    try:
        yield
    finally:
        spark.conf.set(name, before)
