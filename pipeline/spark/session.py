"""The Spark session of the pipeline, with settings that avoid common problems."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import plumbline
from plumbline.errors import PlumblineError
from plumbline.interpreter import SAFE_PATH, safe_path_for_children

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
INSTALL = "pip install 'plumbline-mq[spark]'"
_LOOPBACK = "127.0.0.1"
# Python does the work: Java's second compiler takes more of the processors than its code gives back.
_LIGHT = ("-XX:TieredStopAtLevel=1",)
_QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n%ex{short}
# Spark takes its level of this one for a shell's, and tells so if it is not the root's.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


class SparkNotFoundError(PlumblineError):
    """PySpark is not installed. The message says how to get it."""


def session(
    master: str = LOCAL, settings: Mapping[str, str] | None = None, *, computes: bool = False
) -> SparkSession:
    """The running session if there is one, else a new one on ``master``, with the source ``plumbline``.
    ``computes``: Java does the work, and not Python.

    Times are UTC; a local master listens on the loopback interface only; nothing is left in the working
    directory. Raises ``SparkNotFoundError``, and ``java.JavaNotFoundError`` unless a cluster's own Java is
    all that is needed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkNotFoundError(f"the pipeline needs PySpark ({error.name} is missing): {INSTALL}") from None
    from plumbline.pipeline.input.source import PlumblineSource

    spark = SparkSession.getActiveSession()
    if spark is None:
        spark = _started(master, settings or {}, computes=computes)
    spark.dataSource.register(PlumblineSource)
    return spark


def _started(master: str, settings: Mapping[str, str], *, computes: bool) -> SparkSession:
    from pyspark.sql import SparkSession

    from plumbline.pipeline.spark.java import java_home

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    _add_import_path()
    scratch = Path(tempfile.mkdtemp(prefix="plumbline-spark-"))
    quiet = scratch / "log4j2.properties"
    quiet.write_text(_QUIET)
    builder = SparkSession.builder.appName("plumbline").master(master)
    is_local = master.startswith("local")
    java = [f"-Dlog4j2.configurationFile={quiet.as_uri()}", *(_LIGHT if is_local and not computes else ())]
    configured = _configuration(scratch, java) | (_local() if is_local else {}) | dict(settings)
    for name, value in configured.items():
        builder = builder.config(name, value)
    with safe_path_for_children():  # Java starts the workers of a local master with what it has
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _add_import_path() -> None:
    """Workers of a local master import what this process imports."""
    root = str(Path(plumbline.__file__).parent.parent)
    known = os.environ.get("PYTHONPATH", "")
    if root not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, known)))


def _configuration(scratch: Path, java: Sequence[str]) -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        f"spark.executorEnv.{SAFE_PATH}": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.artifact.isolation.enabled": "false",
        # A row may carry a whole packet, so that batches are limited in bytes too.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "true",
    }


def _local() -> dict[str, str]:
    return {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
