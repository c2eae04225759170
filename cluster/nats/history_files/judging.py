"""Judges a history in files: in this process if it is small, with Spark if it is not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from plumbline.bounds import LOCAL_HISTORY_ROWS
from plumbline.cluster.judging import ClusterJudgement
from plumbline.cluster.nats.history import ClusterHistory
from plumbline.cluster.nats.history_files.files import read_history
from plumbline.cluster.nats.history_files.layout import TABLES, HistoryHead, count_rows
from plumbline.cluster.nats.judging import judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnStep = Callable[[str], None]
ROWS_OF_PARTITION = 2_000_000
SPARK_MEMORY = "4g"


class JudgedHistory(Struct, frozen=True):
    """``history``: what the findings are about. ``left_out``: messages that may break a rule, and are too
    many to be judged."""

    history: ClusterHistory
    judgement: ClusterJudgement
    left_out: int = 0


def is_large(folder: Path) -> bool:
    """Whether Spark should judge it."""
    return _rows(folder) > LOCAL_HISTORY_ROWS


def spark_properties(folder: Path) -> dict[str, str]:
    """What a session should have that judges this history."""
    return {
        "spark.driver.memory": SPARK_MEMORY,
        "spark.sql.shuffle.partitions": str(_rows(folder) // ROWS_OF_PARTITION + 2),
    }


def judge_here(folder: Path, head: HistoryHead, on_step: OnStep) -> JudgedHistory:
    """Raises ``HistoryError``."""
    on_step("reading the history")
    history = read_history(folder, head)
    on_step("judging")
    return JudgedHistory(history, judge(history))


def judge_with_spark(spark: SparkSession, folder: Path, head: HistoryHead, on_step: OnStep) -> JudgedHistory:
    """Raises ``HistoryError``."""
    from plumbline.cluster.nats.history_files.suspects import find_suspects

    is_local = str(spark.sparkContext.master).startswith("local")
    shared = None if is_local else folder  # which every worker reads
    with tempfile.TemporaryDirectory(prefix=".plumbline-history-", dir=shared) as scratch:
        suspects = find_suspects(spark, folder, head, Path(scratch), on_step)
    on_step("judging")
    return JudgedHistory(suspects.history, judge(suspects.history, suspects.others), suspects.left_out)


def _rows(folder: Path) -> int:
    return sum(count_rows(folder, table) for table in TABLES)
