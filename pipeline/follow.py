"""``plumbline judge --follow``: a folder that is still being written to, judged batch by batch.

Structured Streaming tells which bytes are new; every batch goes through the transforms of a run over whole
captures. What flows and streams remember goes from batch to batch as rows in the run's folder: nothing
relies on one process living on. Each batch adds its own part to packets, operations, violations and problems,
and what is printed of it is in the result by then; the tables that join over time (deliveries, pulls,
publishes, compliance) come when the run is stopped.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from plumbline.captures.reader import CaptureError
from plumbline.captures.reassembly import ConnectionNumbers
from plumbline.pipeline import answered, problems, transforms
from plumbline.pipeline.compliance import compliance
from plumbline.pipeline.input.bundles import BUNDLES
from plumbline.pipeline.input.files import CaptureProblem, capture_files
from plumbline.pipeline.input.source import NAME
from plumbline.pipeline.judge import count_tables, shuffle_partitions
from plumbline.pipeline.judging.flows import STAGED, Ending
from plumbline.pipeline.judging.states import new_state_key
from plumbline.pipeline.judging.streams import FOUND_OR_STATE
from plumbline.pipeline.printing import print_problems, print_violations, summary
from plumbline.pipeline.results import JudgeOptions, Manifest, new_run, publish, read_table, write_table
from plumbline.pipeline.spark.storage import folder, is_remote
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
from plumbline.visible import write_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.2
_MAX_PRINTED = 100  # of one batch
_GROWING = (PACKETS, OPERATIONS, VIOLATIONS, PROBLEMS)
_STAGING = "staging"


class FollowRun:
    """One run, until ``stop``. Violations are printed as they are found."""

    def __init__(self, spark: SparkSession, options: JudgeOptions, out: TextIO) -> None:
        if any(map(is_remote, options.paths)):
            raise CaptureError("--follow works only with local folders, not with s3a:// or hdfs://")
        self._spark, self._options, self._out = spark, options, out
        self._folder = folder(options.output, spark)
        self._stopped = threading.Event()
        self._numbers, self._connection_numbers = ConnectionNumbers(), dict[int, int]()
        self._batch = -1
        self._state_key = new_state_key()
        self._partitions = options.partitions or spark.sparkContext.defaultParallelism
        self._manifest = Manifest(run=new_run(), payloads=options.keeps_payloads)

    def stop(self) -> None:
        """Judge what is written by now, and end."""
        self._stopped.set()

    def run(self) -> Manifest:
        """Raises ``CaptureError`` for places that do not exist, and what a batch raises."""
        capture_files(self._options.paths)
        scratch = Path(tempfile.mkdtemp(prefix="plumbline-follow-"))
        until = scratch / "until"
        options = {"places": json.dumps(self._options.paths), "until": str(until), "rows": BUNDLES.name}
        source = self._spark.readStream.format(NAME).options(**options).load()
        try:
            with shuffle_partitions(self._spark, self._partitions):
                query = (
                    source.writeStream.foreachBatch(self._judge)
                    .option("checkpointLocation", str(scratch / "checkpoint"))
                    .trigger(processingTime="500 milliseconds")
                    .start()
                )
                self._wait(query, until)
                self._finish()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return self._manifest

    def _wait(self, query: StreamingQuery, until: Path) -> None:
        try:
            while not self._stopped.wait(_POLL_S) and query.isActive:
                pass
            until.touch()
            query.processAllAvailable()
        finally:
            query.stop()

    # -- batches -----------------------------------------------------------------------------

    def _judge(self, bundles: DataFrame, _: int) -> None:
        before, self._batch = self._batch, self._batch + 1
        if before >= 0:
            bundles = bundles.unionByName(
                transforms.as_bundles(self._staging("operations", before, STAGED)), allowMissingColumns=True
            )
        bundles = bundles.persist()
        self._judge_batch(bundles, Ending.TO_BE_CONTINUED)
        bundles.unpersist()
        if before >= 0:
            for name in ("operations", "violations"):
                self._folder.delete(f"{self._manifest.run}/{_STAGING}/{name}-{before}")

    def _judge_batch(self, bundles: DataFrame, ending: Ending, more: Sequence[CaptureProblem] = ()) -> None:
        keeps, number = self._options.keeps_payloads, self._batch
        decoded = transforms.staged(
            bundles, self._partitions, keeps_payloads=keeps, ending=ending, state_key=self._state_key
        )
        staged = self._staged("operations", decoded, STAGED)
        known = self._staging("violations", number - 1, FOUND_OR_STATE) if number else None
        broken = self._staged(
            "violations",
            transforms.found_violations(staged, self._partitions, known, ending, self._state_key),
            FOUND_OR_STATE,
        )
        self._connection_numbers |= dict(transforms.new_connection_numbers(staged, self._numbers))
        numbers = transforms.connection_numbers_table(self._spark, list(self._connection_numbers.items()))
        operations = self._added(transforms.operations(staged, numbers), OPERATIONS)
        violations = self._added(transforms.violations(broken, numbers), VIOLATIONS)
        self._added(transforms.packets_table(transforms.unbundled(bundles, with_payload=keeps)), PACKETS)
        problem_rows = problems.problems_of_places(self._spark, more).unionByName(
            problems.problems_of_files(staged)
        )
        wrong = self._added(problem_rows.unionByName(problems.problems_of_connections(operations)), PROBLEMS)
        self._report(operations, violations, wrong)

    def _report(self, operations: DataFrame, violations: DataFrame, wrong: DataFrame) -> None:
        so_far = self._manifest
        counts = count_tables(operations, violations, wrong)
        captures, _ = capture_files(self._options.paths)
        self._manifest = msgspec.structs.replace(
            so_far,
            tables=tuple(table.name for table in _GROWING),
            captures=tuple(file.name for file in captures),
            **{name: getattr(so_far, name) + count for name, count in counts.items()},
        )
        publish(self._folder, self._manifest)
        print_violations(violations, self._out, _MAX_PRINTED, counts["violations"])
        print_problems(wrong, self._out, _MAX_PRINTED, counts["problems"])
        self._out.flush()

    def _finish(self) -> None:
        """The captures are over: what flows still hold is written, and the tables over time are made."""
        bundles = self._spark.createDataFrame([], spark_schema(BUNDLES))
        if self._batch >= 0:
            remembered = transforms.as_bundles(self._staging("operations", self._batch, STAGED))
            bundles = bundles.unionByName(remembered, allowMissingColumns=True)
        self._batch += 1
        _, without_captures = capture_files(self._options.paths)
        self._judge_batch(bundles, Ending.FINAL, without_captures)
        operations, violations = self._growing_table(OPERATIONS), self._growing_table(VIOLATIONS)
        for table, rows in (
            (DELIVERIES, answered.deliveries(operations)),
            (PULLS, answered.pulls(operations)),
            (PUBLISHES, answered.publishes(operations)),
            (COMPLIANCE, compliance(operations, violations).coalesce(1)),
        ):
            write_table(rows, self._folder.at(self._manifest.run, table.name), table)
        self._folder.delete(f"{self._manifest.run}/{_STAGING}")
        self._manifest = msgspec.structs.replace(self._manifest, tables=tuple(TABLES))
        publish(self._folder, self._manifest)
        tables = f"{self._options.output}/{self._manifest.run}"
        write_line(self._out, f"{summary(self._manifest)}; tables in {tables}")

    # -- tables ------------------------------------------------------------------------------

    def _staging(self, name: str, batch: int, table: Table) -> DataFrame:
        place = self._folder.at(self._manifest.run, _STAGING, f"{name}-{batch}")
        return self._spark.read.schema(spark_schema(table)).parquet(place)

    def _staged(self, name: str, rows: DataFrame, table: Table) -> DataFrame:
        place = self._folder.at(self._manifest.run, _STAGING, f"{name}-{self._batch}")
        rows.write.mode("overwrite").parquet(place)
        return self._staging(name, self._batch, table)

    def _added(self, rows: DataFrame, table: Table) -> DataFrame:
        """This batch's part of a table that grows: a folder of its own, replaced if it is tried again."""
        place = self._folder.at(self._manifest.run, table.name, f"batch={self._batch}")
        write_table(rows.coalesce(1), place, table)
        return read_table(self._spark, place, table)

    def _growing_table(self, table: Table) -> DataFrame:
        return read_table(self._spark, self._folder.at(self._manifest.run, table.name), table)
