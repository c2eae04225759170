"""``plumbline judge``: parses flags, and nothing else."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.capture_reader import CaptureError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.results import Manifest

EXIT_FOUND, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_HARNESS = 1, 2, 3, 4

Places = Annotated[
    list[str], typer.Argument(help="pcapng or pcap files, plain, .gz or .zst; or folders; or s3a://...")
]
Output = Annotated[str, typer.Option("--output", "-o", help="the folder of the result, which is replaced")]
Master = Annotated[str, typer.Option("--master", help="where Spark runs: local[4], spark://host:7077, yarn")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="experimental: go on with what is being recorded, until Ctrl-C")
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
    most, not with --follow; the rest must be where every worker finds it. Exit 1 if there are violations or
    problems.
    """
    settings = dict(_setting(text) for text in conf or [])
    spark = _session(master, settings)
    try:
        manifest = _judged(spark, captures, output, follow=follow, payloads=payloads, most=most)
    except CaptureError as error:
        raise _failed(str(error), EXIT_USAGE) from None
    except Exception as error:  # whatever Spark raises when a job fails
        raise _failed(f"the job failed: {error}", EXIT_HARNESS) from None
    finally:
        spark.stop()
    if manifest.violations or manifest.problems:
        raise typer.Exit(EXIT_FOUND)


def _judged(
    spark: SparkSession, captures: list[str], output: str, *, follow: bool, payloads: bool, most: int
) -> Manifest:
    from pipeline.judge import Asked, Judging
    from pipeline.page.written import write_page
    from pipeline.printing import print_result
    from pipeline.progress import Progress
    from pipeline.results import Results

    asked = Asked(places=tuple(captures), output=output, keeps_payloads=payloads)
    if follow:
        from pipeline.follow import Following

        following = Following(spark, asked, sys.stdout)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: following.stop())
        return following.run()
    with Progress(spark, sys.stderr) as progress:
        manifest = Judging(spark, asked, progress.step).run()
        progress.step("writing the page")
        page = write_page(spark, output)
    print_result(Results(spark, output), output, sys.stdout, most)
    sys.stdout.write(f"page: {page}\n")
    return manifest


def _session(master: str, settings: dict[str, str]) -> SparkSession:
    from pipeline.java import NoJava
    from pipeline.session import NoSpark, session

    try:
        return session(master, settings)
    except (NoJava, NoSpark) as error:
        raise _failed(str(error), EXIT_USAGE) from None
    except Exception as error:  # whatever Spark raises where there is no master
        raise _failed(f"no Spark at {master}: {error}", EXIT_UNREACHABLE) from None


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise _failed(f"--conf {text}: write name=value", EXIT_USAGE)
    return name, value


def _failed(message: str, code: int) -> typer.Exit:
    typer.echo(f"plumbline: {message}", err=True)
    return typer.Exit(code)


EXAMPLES = """
Examples:

\b
  plumbline judge captures/
  plumbline judge captures/ -o judged/ --master 'local[4]'
  plumbline judge s3a://bucket/captures/ -o s3a://bucket/judged --master spark://host:7077 \\
      --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.4.1
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=EXAMPLES)(judge)
