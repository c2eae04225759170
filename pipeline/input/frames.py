"""Captures as a DataFrame of packets, or of bundles of them, from wherever they are.

Files of this machine, or of a file system that every worker mounts, are read by the source ``plumbline``. An
address with a scheme (s3a, hdfs, file) is read by Spark's own file systems: whole files, each into the memory
of one task, so a file may have 1 GiB at most; ``plumbline record`` rolls them at 256 MiB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

from plumbline.captures.reader import CaptureError
from plumbline.pipeline.input.bundles import BUNDLES, bundles
from plumbline.pipeline.input.files import CaptureFile, CaptureProblem, Section, capture_files
from plumbline.pipeline.input.packets import batches
from plumbline.pipeline.input.source import NAME
from plumbline.pipeline.rows import rows_of
from plumbline.pipeline.spark.storage import is_remote
from plumbline.pipeline.tables import PACKETS, Table, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MAX_REMOTE_BYTES = 1 << 30
_GLOB = "*.{pcapng,pcap,cap,pcapng.gz,pcap.gz,cap.gz,pcapng.zst,pcap.zst,cap.zst}"


class CaptureInput(Struct, frozen=True):
    """What there is to read: files in their order, and what is wrong with the places themselves."""

    paths: tuple[str, ...]
    files: tuple[CaptureFile, ...]
    problems: tuple[CaptureProblem, ...]
    bytes: int  # of the files, as they are stored

    @property
    def is_remote(self) -> bool:
        return any(map(is_remote, self.paths))


def find(spark: SparkSession, places: Sequence[str]) -> CaptureInput:
    """Raises ``CaptureError`` for a place that does not exist, or if some are remote and some are not."""
    remote = [place for place in places if is_remote(place)]
    if not remote:
        files, problems = capture_files(places)
        size = sum(Path(file.path).stat().st_size for file in files)
        return CaptureInput(tuple(places), tuple(files), tuple(problems), size)
    if len(remote) < len(places):
        raise CaptureError("use either URLs for all captures or none; for a local file write file:///path")
    return _found_remote(spark, places)


def _found_remote(spark: SparkSession, places: Sequence[str]) -> CaptureInput:
    from pyspark.errors import AnalysisException

    try:
        listed = _binary(spark, places).select("path", "length").orderBy("path").collect()
    except AnalysisException as error:
        raise CaptureError(str(error).partition("\n")[0]) from None
    files: list[CaptureFile] = []
    problems: list[CaptureProblem] = []
    for path, length in listed:
        name = path.rpartition("/")[2]
        if length > MAX_REMOTE_BYTES:
            problems.append(
                CaptureProblem(
                    name, "unreadable", f"{path}: {length} bytes; at most 1 GiB can be read there", length
                )
            )
        else:
            files.append(CaptureFile(path, name, len(files)))
    if not listed:
        names = ", ".join(places)
        problems.append(CaptureProblem(names, "empty", f"{names}: no capture files in this folder"))
    return CaptureInput(tuple(places), tuple(files), tuple(problems), sum(length for _, length in listed))


def _binary(spark: SparkSession, places: Sequence[str]) -> DataFrame:
    return spark.read.format("binaryFile").option("pathGlobFilter", _GLOB).load(list(places))


def packets(
    spark: SparkSession, found: CaptureInput, *, section_bytes: int, with_payload: bool = True
) -> DataFrame:
    """The packets of all files; problems are passed over, since ``bundled`` has them."""
    table = PACKETS if with_payload else PACKETS.without("payload")

    def read(section: Section, content: bytes) -> Iterator[pa.RecordBatch]:
        return batches(section, table.names, passes_over_problems=True, content=content)

    return _read(spark, found, table, {"section_bytes": str(section_bytes), "problems": "skip"}, read)


def bundled(spark: SparkSession, found: CaptureInput, *, section_bytes: int) -> DataFrame:
    """The same as bundles, with the problems among them, for ``transforms.staged``."""
    return _read(spark, found, BUNDLES, {"section_bytes": str(section_bytes), "rows": BUNDLES.name}, bundles)


def _read(
    spark: SparkSession,
    found: CaptureInput,
    table: Table,
    options: dict[str, str],
    read: Callable[[Section, bytes], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """By the source, or ``read`` from what Spark's own file systems bring."""
    if not found.is_remote:
        reader = spark.read.format(NAME).schema(spark_schema(table))
        return reader.options(places=json.dumps(found.paths), **options).load()
    files = {file.path: file for file in found.files}

    def read_all(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path, content in rows_of(given, ("path", "content")):
            yield from read(Section(files[path]), content)

    contents = _binary(spark, found.paths).where(F.col("length") <= MAX_REMOTE_BYTES)
    return contents.select("path", "content").mapInArrow(read_all, spark_schema(table))
