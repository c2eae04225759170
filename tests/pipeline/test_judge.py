"""``plumbline judge``: what the proxy's own judge finds, whole results, named problems, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

from plumbline.captures.files import read
from plumbline.captures.judging import CaptureJudge
from plumbline.captures.reader import CaptureError
from plumbline.monitors import MONITORS, Violation
from plumbline.pipeline.compliance import observed_by_rule
from plumbline.pipeline.judge import JudgeRun
from plumbline.pipeline.page.writer import PAGE
from plumbline.pipeline.printing import summary, violation_of
from plumbline.pipeline.results import MANIFEST, JudgeOptions, ResultNotFoundError, Results
from plumbline.pipeline.spark.storage import HadoopFolder
from tests.pipeline.conftest import SETTINGS, SLOW
from tests.pipeline.support.amqp_episodes import AMQP
from tests.pipeline.support.nats_episodes import NATS
from tests.pipeline.support.planted import PLACES, write

SIZE = 60_000
PATIENCE_S = 3600.0  # only a hang lasts longer: machines may be very busy
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    write(folder, size=SIZE)
    return folder


@pytest.fixture(scope="module")
def results(spark: SparkSession, captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    output = str(tmp_path_factory.mktemp("judged"))
    JudgeRun(
        spark, JudgeOptions(paths=(str(captures),), output=output, keeps_payloads=True, partitions=2)
    ).run()
    return Results(spark, output)


@pytest.fixture(scope="module")
def tiny(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some violations in one file."""
    folder = tmp_path_factory.mktemp("tiny")
    first = min(captures.iterdir())
    (folder / first.name).write_bytes(first.read_bytes())
    return folder


def found_live(folder: Path) -> list[Violation]:
    """What the proxy's own judge finds in these captures."""
    judge = CaptureJudge()
    return [violation for row in read([folder]) for violation in judge.observe(row)]


def in_order(violations: list[Violation]) -> list[Violation]:
    rules = [kind.rule for kind in MONITORS]
    return sorted(violations, key=lambda one: (one.place.at, one.place.index, rules.index(one.rule)))


def found(table: DataFrame) -> list[Violation]:
    return in_order([violation_of(row) for row in table.collect()])


def test_the_same_violations_as_the_proxy(results: Results, captures: Path) -> None:
    expected = in_order(found_live(captures))
    assert len(expected) == len(PLACES) * (len(NATS) + len(AMQP))
    assert found(results.table("violations")) == expected


def test_operations_are_those_that_show_lists(results: Results, captures: Path) -> None:
    listed = [(row.connection.number, row.number, row.fields["op"]) for row in read([captures])]
    table = results.table("operations").select("connection", "number", "op").collect()
    assert sorted(map(tuple, table)) == sorted(listed)
    assert results.manifest.operations == sum(1 for _, number, _ in listed if number)


def test_tables_are_written_by_day_and_capture(results: Results, captures: Path) -> None:
    packets = results.table("packets").groupBy("day", "capture").count().collect()
    assert {(str(row.day), row.capture) for row in packets} == {
        ("2026-09-21", path.name) for path in captures.iterdir()
    }


def test_acknowledgements_belong_to_deliveries(results: Results) -> None:
    acked = results.table("deliveries").where("ack_number IS NOT NULL").count()
    operations = results.table("operations").where("fact = 'ack' AND answers IS NOT NULL AND kind != '+WPI'")
    assert acked == operations.select(F.sum(F.size("answers"))).first()[0] > 0  # type: ignore[index]


def test_every_rule_has_a_condition_for_judged_operations(results: Results) -> None:
    assert set(observed_by_rule(F)) == {kind.rule for kind in MONITORS}
    rows = results.table("compliance").select("requirement", "verdict").collect()
    assert {row.verdict for row in rows} <= {"broken", "kept"}
    broken = {row.requirement for row in rows if row.verdict == "broken"}
    # Each on some server of these captures, but for the one whose monitor is never certain.
    assert {row.requirement for row in rows} - broken == {"AMQP-REQUEUE-004"}


def test_again_is_the_same_and_replaces(spark: SparkSession, tiny: Path, tmp_path: Path) -> None:
    asked = JudgeOptions(paths=(str(tiny),), output=str(tmp_path), partitions=1)
    first = JudgeRun(spark, asked).run()
    before = {name: Results(spark, str(tmp_path)).table(name).collect() for name in first.tables}
    second = JudgeRun(spark, asked).run()
    results = Results(spark, str(tmp_path))
    assert first.run != second.run == results.manifest.run
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((MANIFEST, second.run))
    for name, rows in before.items():
        assert sorted(map(str, results.table(name).collect())) == sorted(map(str, rows))
    kept = results.table("operations").where("payload IS NOT NULL").count()
    assert (kept, results.table("packets").where("payload IS NOT NULL").count()) == (0, 0)
    texts = [row.text for row in results.table("violations").where("text LIKE '%| (1 bytes)'").collect()]
    assert texts


def test_a_failed_run_leaves_the_old_result(spark: SparkSession, tiny: Path, tmp_path: Path) -> None:
    asked = JudgeOptions(paths=(str(tiny),), output=str(tmp_path), partitions=1)
    first = JudgeRun(spark, asked).run()

    def fail(step: str) -> None:
        if step == "writing tables":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        JudgeRun(spark, asked, fail).run()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((MANIFEST, first.run))


def test_addresses_go_through_the_file_systems_of_spark(
    spark: SparkSession, tiny: Path, tmp_path: Path
) -> None:
    output = tmp_path.as_uri()
    JudgeRun(
        spark, JudgeOptions(paths=(tiny.as_uri(),), output=output, keeps_payloads=True, partitions=1)
    ).run()
    results = Results(spark, output)
    assert found(results.table("violations")) == in_order(found_live(tiny)) != []
    folder = HadoopFolder(output, spark)
    assert sorted(folder.names()) == sorted((MANIFEST, results.manifest.run))
    folder.delete(results.manifest.run)
    assert folder.names() == [MANIFEST]


def test_a_place_that_does_not_exist_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    for place in (str(tmp_path / "none"), (tmp_path / "none").as_uri()):
        with pytest.raises(CaptureError, match="none"):
            JudgeRun(spark, JudgeOptions(paths=(place,), output=str(tmp_path / "judged"))).run()
    with pytest.raises(ResultNotFoundError):
        Results(spark, str(tmp_path))


def test_the_source_in_a_notebook(spark: SparkSession, tiny: Path) -> None:
    packets = spark.read.format("plumbline").load(str(tiny))
    first = packets.where("frame < 10 AND capture LIKE 'planted%'").orderBy("frame").first()
    assert first is not None
    assert (first.frame, first.flags, first.comments) == (1, 2, ["plumbline: connection 1: nats"])
    few = spark.read.format("plumbline").schema("frame bigint, size bigint").option("section_bytes", "1000")
    assert few.load(str(tiny)).agg(F.sum("size")).collect() == packets.agg(F.sum("size")).collect()


def test_filters_on_simple_columns_are_the_sources(spark: SparkSession, captures: Path) -> None:
    name = min(captures.iterdir()).name

    source = spark.read.format("plumbline")
    every = source.load(str(captures)).select("capture", "size", "frame").collect()
    wanted = [row for row in every if row.capture == name and row.size > 10 and row.frame <= 40]
    spark.conf.set(PUSHDOWN, "true")
    try:
        some = source.option("filters", "push").load(str(captures))
        some = some.where(f"capture = '{name}' AND size > 10 AND frame <= 40")
        assert some.rdd.getNumPartitions() == 1
        assert some.count() == len(wanted) > 0
    finally:
        spark.conf.unset(PUSHDOWN)


def test_a_second_query_of_a_table_has_no_filter_of_the_first(spark: SparkSession, tiny: Path) -> None:
    packets = spark.read.format("plumbline").load(str(tiny))
    few = packets.where("frame < 3").count()
    assert packets.count() > few > 0


# -- the command -----------------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    settings = [f"--conf={name}={value}" for name, value in SETTINGS.items()]
    return [sys.executable, "-m", "plumbline", "judge", *settings, *arguments]


@SLOW
def test_a_cluster_of_processes_finds_the_same(spark: SparkSession, tiny: Path, tmp_path: Path) -> None:
    """Executors are processes of their own. Also what the command prints, and its exit code."""
    output = tmp_path / "judged"
    asked = command(str(tiny), "-o", str(output), "--payloads", "--master", "local-cluster[2,1,1024]")
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 1, done.stderr
    expected = in_order(found_live(tiny))
    results = Results(spark, str(output))
    assert found(results.table("violations")) == expected
    assert all(str(violation) in done.stdout for violation in expected)
    assert results.manifest.violations == len(expected)
    assert summary(results.manifest) in done.stdout
    assert f"page: {output / PAGE}" in done.stdout
    page = (output / PAGE).read_text()
    assert all(violation.rule in page for violation in expected)
    assert "plumbline: writing tables" in done.stderr
    assert not [line for line in done.stderr.splitlines() if not line.startswith("plumbline: ")]


@SLOW
def test_a_killed_job_leaves_the_old_result(spark: SparkSession, tiny: Path, tmp_path: Path) -> None:
    asked = JudgeOptions(paths=(str(tiny),), output=str(tmp_path), partitions=1)
    first = JudgeRun(spark, asked).run()
    before = (tmp_path / MANIFEST).read_bytes()
    running = subprocess.Popen(
        command(str(tiny), "-o", str(tmp_path)), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with running:
        assert running.stderr is not None
        assert any(line == "plumbline: writing tables\n" for line in running.stderr)
        os.killpg(running.pid, signal.SIGKILL)
    assert (tmp_path / MANIFEST).read_bytes() == before
    left = {path.name for path in tmp_path.iterdir()}
    assert first.run in left
    assert len(left) == 3  # the manifest, the old run, the new one's remains
    assert Results(spark, str(tmp_path)).table("violations").count() == first.violations
    JudgeRun(spark, asked).run()
    assert len(list(tmp_path.iterdir())) == 2  # the remains are gone


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(["nowhere"], "no such file or folder"), (["nowhere", "--conf", "a"], "write name=value")],
)
def test_usage(arguments: list[str], error: str, tmp_path: Path) -> None:
    done: Any = subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert error in done.stderr
    assert list(tmp_path.iterdir()) == []
