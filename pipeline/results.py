"""What ``plumbline judge`` leaves in its folder, and how it is opened again.

    judged/plumbline-result.json       which run is the result: {"schema", "run", "tables", "captures", ...}
    judged/run-20261121T152227Z-1f3a/  its tables: violations/day=2026-11-21/capture=x.pcapng/part-*.parquet

A run writes into a folder of its own and becomes the result when that small file is replaced, by one rename.
A job that is killed leaves the result that was there; what it had written is removed by the next one.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from plumbline.errors import PlumblineError
from plumbline.pipeline.input.files import SECTION_BYTES
from plumbline.pipeline.spark.storage import Folder, LocalFolder, folder
from plumbline.pipeline.tables import TABLES, Table, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from plumbline.pipeline.local.frame import ArrowFrame

MANIFEST = "plumbline-result.json"
SCHEMA = "plumbline.judged/1"
_RUN = "run-"


class ResultNotFoundError(PlumblineError):
    """The folder holds no result of ``plumbline judge``. The message says so."""


class JudgeOptions(Struct, frozen=True, kw_only=True):
    """What to judge, and how. ``partitions`` 0: some for each core that Spark has."""

    paths: tuple[str, ...]
    output: str
    keeps_payloads: bool = False
    section_bytes: int = SECTION_BYTES
    partitions: int = 0


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
    """The result in a folder, for Spark. Raises ``ResultNotFoundError``."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self.folder = spark, folder(path, spark)
        self.manifest = _manifest_in(self.folder, path)

    def table(self, name: str) -> DataFrame:
        """One table, with the schema of ``tables``; empty if nothing was written."""
        return read_table(self._spark, self.folder.at(self.manifest.run, name), TABLES[name])


class LocalResults:
    """The result in a folder of this machine, for the local engine. Raises ``ResultNotFoundError``."""

    def __init__(self, path: str) -> None:
        self.folder = LocalFolder(Path(path))
        self.manifest = _manifest_in(self.folder, path)

    def table(self, name: str) -> ArrowFrame:
        """See ``Results``."""
        from plumbline.pipeline.local.tables import read_frame

        return read_frame(self.folder.at(self.manifest.run, name), TABLES[name])


def _manifest_in(results: Folder, path: str) -> Manifest:
    manifest = manifest_of(results)
    if manifest is None:
        raise ResultNotFoundError(f"{path}: this folder has no result of plumbline judge")
    return manifest


def read_table(spark: SparkSession, place: str, table: Table) -> DataFrame:
    """A table as ``write_table`` wrote it."""
    return spark.read.schema(spark_schema(table)).parquet(place).select(*table.names)


def write_table(rows: DataFrame, place: str, table: Table) -> None:
    """Replaces a table, partitioned as it says."""
    rows.select(*table.names).write.mode("overwrite").partitionBy(*table.partitions).parquet(place)
