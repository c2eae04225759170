"""``plumbline judge``: captures of any size, judged by the rules of the protocols, here or with Spark."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.exits import exit_codes, unexpected
from plumbline.cli.options import Follow, SparkMaster, SparkSettings, output_option
from plumbline.cli.output import print_line, warn
from plumbline.cli.spark_session import ChosenEngine, opened_session, spark_settings
from plumbline.errors import ExitCode, PlumblineError
from plumbline.pipeline.engine import Engine, EngineChoice, choose_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from plumbline.pipeline.progress import Progress
    from plumbline.pipeline.results import JudgeOptions, LocalResults, Manifest, Results

EPILOG = """
The output folder gets an HTML page and Parquet tables: packets, operations, deliveries, pulls, publishes,
violations, compliance, problems. It is replaced as a whole: a run that is killed leaves the old result.

Captures up to 200 MB are judged in this process (--engine local), which needs no Java; larger ones with
Spark (--engine spark). --master, --conf, --follow and addresses with a scheme always need Spark. Both engines
give the same tables, page and exit code. A compressed capture counts as five times its size.

All captures together are one history: connections and streams continue from file to file. Addresses with a
scheme (s3a, hdfs) are read and written by Spark's file systems, files of at most 1 GiB, not with --follow;
local files must be at the same path on every worker.

A problem is what cannot be judged: a file that is truncated, damaged, unreadable or no capture, a folder
without captures, missing bytes in a connection, bytes that cannot be decoded, an unknown protocol. Each is
printed and is in the table problems; the rest is judged.

With --follow, growing files and new files are judged as they are written. Ctrl-C judges the rest of what is
written and ends the run.

\b
Examples:

\b
  plumbline judge captures/
  plumbline judge captures/ -o judged/ --engine local           in this process, whatever the size
  plumbline judge captures/ -o judged/ --master 'local[4]'      with Spark
  plumbline judge captures/ --follow                            while plumbline record writes there
  plumbline judge s3a://bucket/captures/ -o s3a://bucket/judged --master spark://host:7077 \\
      --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.4.1

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "no violations and no problems",
        ExitCode.NOT_CONFORMANT: "violations or problems",
        ExitCode.TARGET_LOST: "Spark master unreachable",
        ExitCode.HARNESS_ERROR: "the job failed",
    }
)

app = command_app()


@app.command("judge", epilog=EPILOG)
def judge(
    captures: Annotated[
        list[str],
        typer.Argument(
            metavar="CAPTURE",
            help="pcapng or pcap files, plain, .gz or .zst, or folders with such files, or s3a://...",
        ),
    ],
    output: Annotated[
        str, output_option("DIR", "Write the result to this folder; an old result is replaced.")
    ] = "judged",
    engine: ChosenEngine = Engine.AUTO,
    master: SparkMaster = None,
    follow: Follow = False,
    payloads: Annotated[
        bool, typer.Option("--payloads", help="Keep payloads in the tables, not only their size and hash.")
    ] = False,
    most: Annotated[
        int,
        typer.Option("--most", metavar="N", help="Print at most N violations; the table has all of them."),
    ] = 100,
    conf: SparkSettings = None,
) -> None:
    """Judge captures of any size; write tables and an HTML page."""

    settings = spark_settings(conf)
    chosen = choose_engine(engine, captures, output, master=master, follow=follow, settings=bool(settings))
    warn(str(chosen))
    from plumbline.pipeline.results import JudgeOptions

    options = JudgeOptions(paths=tuple(captures), output=output, keeps_payloads=payloads)
    if chosen.engine is Engine.LOCAL:
        raise typer.Exit(_exit_code(lambda: _judge_here(options, chosen, most)))
    with opened_session(master, settings) as spark:
        code = _exit_code(lambda: _follow(spark, options) if follow else _judge(spark, options, most))
    raise typer.Exit(code)


def _exit_code(run: Callable[[], Manifest]) -> ExitCode:
    try:
        manifest = run()
    except PlumblineError:
        raise
    except Exception as error:  # whatever an engine raises when a job fails
        return unexpected(error, "the job failed")
    return ExitCode.NOT_CONFORMANT if manifest.violations or manifest.problems else ExitCode.CONFORMANT


def _judge_here(options: JudgeOptions, chosen: EngineChoice, most: int) -> Manifest:
    """In this process."""
    from plumbline.pipeline.local.start import keep_pandas_out

    keep_pandas_out()
    from plumbline.pipeline.local.judge import LocalRun
    from plumbline.pipeline.progress import BytesRead, Progress
    from plumbline.pipeline.results import LocalResults

    read = BytesRead(chosen.bytes)
    with Progress(read, sys.stderr) as progress:
        manifest = LocalRun(options, progress.step, read.add).run()
        page = _write_page(LocalResults(options.output), progress)
    _print(LocalResults(options.output), options.output, most, page)
    return manifest


def _write_page(results: Results | LocalResults, progress: Progress) -> str:
    from plumbline.pipeline.page.writer import write_page

    progress.step("writing the page")
    return write_page(results)


def _print(results: Results | LocalResults, place: str, most: int, page: str) -> None:
    from plumbline.pipeline.printing import print_result

    print_result(results, place, sys.stdout, most)
    print_line(f"page: {page}")


def _judge(spark: SparkSession, options: JudgeOptions, most: int) -> Manifest:
    """With Spark."""
    from plumbline.pipeline.judge import JudgeRun
    from plumbline.pipeline.progress import Progress, SparkTasks
    from plumbline.pipeline.results import Results

    with Progress(SparkTasks(spark), sys.stderr) as progress:
        manifest = JudgeRun(spark, options, progress.step).run()
        page = _write_page(Results(spark, options.output), progress)
    _print(Results(spark, options.output), options.output, most, page)
    return manifest


def _follow(spark: SparkSession, options: JudgeOptions) -> Manifest:
    from plumbline.pipeline.follow import FollowRun
    from plumbline.pipeline.page.writer import write_page
    from plumbline.pipeline.results import Results

    following = FollowRun(spark, options, sys.stdout)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: following.stop())
    warn(f"following {', '.join(options.paths)}; press Ctrl-C to end")
    manifest = following.run()
    print_line(f"page: {write_page(Results(spark, options.output))}")
    return manifest
