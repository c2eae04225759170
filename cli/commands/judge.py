"""``plumbline judge``: parses flags, and nothing else."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from plumbline.cli.exits import ended, ending
from plumbline.errors import ExitCode, PlumblineError, TargetUnreachable, UsageProblem
from plumbline.pipeline.input.files import capture_files
from plumbline.pipeline.spark.storage import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from plumbline.pipeline.judge import Asked
    from plumbline.pipeline.results import Manifest

Places = Annotated[
    list[str], typer.Argument(help="pcapng or pcap files, plain, .gz or .zst; or folders; or s3a://...")
]
Output = Annotated[str, typer.Option("--output", "-o", help="the folder of the result, which is replaced")]
Master = Annotated[str, typer.Option("--master", help="where Spark runs: local[4], spark://host:7077, yarn")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="go on with what is being recorded, until Ctrl-C")
]
Payloads = Annotated[
    bool, typer.Option("--payloads", help="keep payloads in the tables, not only size and hash")
]
Most = Annotated[int, typer.Option("--most", help="violations that are printed; all are in the table")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="a setting of Spark: name=value")]


def judge(
    captures: Places,
    output: Output = "judged",
    master: Master = "local[*]",
    follow: Follow = False,
    payloads: Payloads = False,
    most: Most = 100,
    conf: Conf = None,
) -> None:
    """Judge recorded traffic, of any size, by the rules that monitors know; write it all as tables.

    Prints violations and leaves an HTML page and Parquet tables in the output folder: packets, operations,
    deliveries, pulls, publishes, violations, compliance, problems. The result is replaced as a whole: a run
    that is killed leaves the old one. Captures are one history: connections and streams go on from file to
    file. Addresses with a scheme (s3a, hdfs) are read and written by Spark's file systems, files of 1 GiB at
    most, not with --follow; the rest must be where every worker finds it.

    What cannot be judged is a problem: a file that is truncated, damaged, unreadable or no capture, a folder
    without captures, a hole in a connection, bytes that are not the protocol, a protocol that is not known.
    Each is printed and stands in the table problems; all the rest is judged.

    With --follow, files that grow and files that come are judged as they are written. What is printed stands
    in the result by then; Ctrl-C judges what is written until then and ends as a run without --follow does.
    """

    def run() -> ExitCode:
        settings = dict(map(_setting, conf or []))
        _require(captures)
        with _session(master, settings) as spark:
            from plumbline.pipeline.judge import Asked

            asked = Asked(places=tuple(captures), output=output, keeps_payloads=payloads)
            return _run(spark, asked, most, is_followed=follow)

    raise typer.Exit(ending(run))


def _require(places: list[str]) -> None:
    """Raises ``CaptureError`` for a file or folder that does not exist: Spark need not start for that."""
    if not any(map(is_remote, places)):
        capture_files(places)


def _run(spark: SparkSession, asked: Asked, most: int, *, is_followed: bool) -> ExitCode:
    try:
        manifest = _followed(spark, asked) if is_followed else _judged(spark, asked, most)
    except PlumblineError:
        raise
    except Exception as error:  # whatever Spark raises when a job fails
        return ended(ExitCode.HARNESS_ERROR, f"the job failed: {error}")
    return ExitCode.NOT_CONFORMANT if manifest.violations or manifest.problems else ExitCode.CONFORMANT


def _judged(spark: SparkSession, asked: Asked, most: int) -> Manifest:
    from plumbline.pipeline.judge import Judging
    from plumbline.pipeline.page.written import write_page
    from plumbline.pipeline.printing import print_result
    from plumbline.pipeline.progress import Progress
    from plumbline.pipeline.results import Results

    with Progress(spark, sys.stderr) as progress:
        manifest = Judging(spark, asked, progress.step).run()
        progress.step("writing the page")
        page = write_page(spark, asked.output)
    print_result(Results(spark, asked.output), asked.output, sys.stdout, most)
    sys.stdout.write(f"page: {page}\n")
    return manifest


def _followed(spark: SparkSession, asked: Asked) -> Manifest:
    from plumbline.pipeline.follow import Following
    from plumbline.pipeline.page.written import write_page

    following = Following(spark, asked, sys.stdout)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: following.stop())
    typer.echo(f"plumbline: following {', '.join(asked.places)}; Ctrl-C ends it", err=True)
    manifest = following.run()
    sys.stdout.write(f"page: {write_page(spark, asked.output)}\n")
    return manifest


@contextmanager
def _session(master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    from plumbline.pipeline.spark.session import session

    try:
        spark = session(master, settings)
    except PlumblineError:
        raise
    except Exception as error:  # whatever Spark raises where there is no master
        raise TargetUnreachable(f"no Spark at {master}: {error}") from None
    try:
        yield spark
    finally:
        spark.stop()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageProblem(f"--conf {text}: write name=value")
    return name, value


EPILOG = """
\b
Examples:

\b
  plumbline judge captures/
  plumbline judge captures/ -o judged/ --master 'local[4]'
  plumbline judge captures/ --follow                            while plumbline record writes there
  plumbline judge s3a://bucket/captures/ -o s3a://bucket/judged --master spark://host:7077 \\
      --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.4.1

\b
Exit codes: 0 all was judged and nothing is broken, 1 violations or problems, 2 usage or configuration,
3 no Spark at that master, 4 the job failed, 130 interrupted.
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=EPILOG)(judge)
