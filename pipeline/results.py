"""What ``plumbline judge`` leaves in its folder, and how it is opened again.

    judged/plumbline-result.json       which run is the result: {"schema", "run", "tables", "captures", ...}
    judged/run-20261121T152227Z-1f3a/  its tables: violations/day=2026-11-21/capture=x.pcapng/part-*.parquet

A run writes into a folder of its own and becomes the result when that small file is replaced, by one rename.
A job that is killed leaves the result that was there; what it had written is removed by the next one.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from plumbline.errors import PlumblineError
from plumbline.pipeline.spark.storage import Folder, folder
from plumbline.pipeline.tables import TABLES, Table, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFEST = "plumbline-result.json"
SCHEMA = "plumbline.judged/1"
_RUN = "run-"


class ResultNotFoundError(PlumblineError):
    """The folder holds no result of ``plumbline judge``. The message says so."""


class Manifest(Struct, frozen=True, kw_only=True):
    """What the result is. ``run`` is the folder of its tables."""

    schema: str = SCHEMA
    run: str
    tables: tuple[str, ...] = ()
    captures: tuple[str, ...] = ()
    operations: int = 0
    violations: int = 0
    possible: int = 0  # of them: traffic that was not recorded could explain these
    problems: int = 0
    payloads: bool = False


def new_run() -> str:
    """A name that no run had before."""
    return f"{_RUN}{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def publish(results: Folder, manifest: Manifest) -> None:
    """Makes this run the result, then removes all others."""
    results.replace(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode() + "\n")
    for name in results.names():
        if name.startswith(_RUN) and name != manifest.run:
            results.delete(name)


def manifest_of(results: Folder) -> Manifest | None:
    """What the result in that folder is; None if there is none."""
    text = results.read(MANIFEST)
    return None if text is None else msgspec.json.decode(text, type=Manifest)


class Results:
    """The result in a folder. Raises ``ResultNotFoundError``."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self._folder = spark, folder(path, spark)
        manifest = manifest_of(self._folder)
        if manifest is None:
            raise ResultNotFoundError(f"{path}: this folder has no result of plumbline judge")
        self.manifest = manifest

    def table(self, name: str) -> DataFrame:
        """One table, with the schema of ``tables``; empty if nothing was written."""
        return read_table(self._spark, self._folder.at(self.manifest.run, name), TABLES[name])


def read_table(spark: SparkSession, place: str, table: Table) -> DataFrame:
    """A table as ``write_table`` wrote it."""
    return spark.read.schema(spark_schema(table)).parquet(place).select(*table.names)


def write_table(rows: DataFrame, place: str, table: Table) -> None:
    """Writes a table anew, partitioned as it says."""
    rows.select(*table.names).write.mode("overwrite").partitionBy(*table.partitions).parquet(place)
