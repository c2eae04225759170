"""``plumbline judge-history``: what publishers saw of a replicated stream, judged at any size."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.exits import exit_codes
from plumbline.cli.options import JsonFile, SparkMaster, SparkSettings
from plumbline.cli.output import print_line, warn
from plumbline.cli.spark_session import ChosenEngine, opened_session, spark_settings
from plumbline.errors import ExitCode, UsageProblem
from plumbline.pipeline.engine import Engine

EPILOG = """
A history is a folder of Parquet files with all publishes to a stream, their acknowledgements, and what each
node has at the end. 'plumbline cluster --history DIR' writes one, and so can your own load generator: the
page "Test a cluster under faults" has its columns. It is judged by the rules of 'plumbline cluster' about the
log: lost, duplicated, unexpected or misplaced messages, different replicas, order, stale reads.

A history of up to 2 million rows is judged in this process (--engine local), a larger one with Spark, which
finds the messages that may break a rule; the same judge then decides. Both engines find the same.

\b
Examples:

\b
  plumbline cluster --server nats-server@2.15 --for 60s --history history/
  plumbline judge-history history/
  plumbline judge-history history/ --engine spark --master 'local[4]' --json result.json

""" + exit_codes({ExitCode.CONFORMANT: "conformant", ExitCode.NOT_CONFORMANT: "not conformant"})

app = command_app()


@app.command("judge-history", epilog=EPILOG)
def judge_history(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder with history.json.")],
    engine: ChosenEngine = Engine.AUTO,
    master: SparkMaster = None,
    conf: SparkSettings = None,
    json: JsonFile = None,
) -> None:
    """Judge the history of a replicated stream."""
    from plumbline.cluster.nats.history_files.judging import (
        is_large,
        judge_here,
        judge_with_spark,
        spark_properties,
    )
    from plumbline.cluster.nats.history_files.layout import read_head
    from plumbline.cluster.nats.history_files.result import as_json, as_text, conclude_history

    settings = spark_settings(conf)
    if engine is Engine.LOCAL and (master or settings):
        raise UsageProblem("--engine local judges in one process: --master and --conf need Spark")
    if json is not None:
        json.touch()  # whether it can be written is known before the run
    started, began = datetime.datetime.now(datetime.UTC), time.monotonic()
    head = read_head(folder)
    uses_spark = (
        engine is Engine.SPARK or bool(master or settings) or (engine is Engine.AUTO and is_large(folder))
    )

    def show(step: str) -> None:
        warn(f"{time.monotonic() - began:6.1f} s  {step}")

    if uses_spark:
        show("starting Spark")
        with opened_session(master, spark_properties(folder) | settings, computes=True) as spark:
            judged = judge_with_spark(spark, folder, head, show)
    else:
        judged = judge_here(folder, head, show)
    found = conclude_history(str(folder), head, judged, started, time.monotonic() - began)
    for line in as_text(found):
        print_line(line)
    if json is not None:
        json.write_bytes(as_json(found))
    raise typer.Exit(ExitCode(found.result.summary.exit_code))
