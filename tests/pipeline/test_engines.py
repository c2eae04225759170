"""The local engine and Spark: the same tables, page, messages and exit code for the same captures."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from plumbline import bounds
from plumbline.captures.packets import ACK, FIN, SYN, PacketFlow
from plumbline.captures.pcapng import interface, packet, section_header
from plumbline.cli.main import app
from plumbline.errors import UsageProblem
from plumbline.pipeline.engine import Engine, choose_engine
from plumbline.pipeline.judging.cells import Cells
from plumbline.pipeline.judging.flows import FlowJudge
from plumbline.pipeline.local import judge as local_judge
from plumbline.pipeline.local.judge import LocalRun
from plumbline.pipeline.page.writer import PAGE
from plumbline.pipeline.results import JudgeOptions, LocalResults, Results
from plumbline.pipeline.tables import TABLES
from plumbline.wire.sender import Direction
from tests.pipeline.support.planted import write
from tests.pipeline.support.random_captures import write_random
from tests.pipeline.support.troubles import TROUBLES, sound, write_trouble

SIZE = 60_000
_RUN = re.compile(r"run-\d{8}T\d{6}Z-[0-9a-f]+")


class Ended(Struct, frozen=True):
    """What the command printed and left."""

    code: int
    output: str
    place: Path


class BothEngines(Struct, frozen=True):
    """The same captures, judged twice."""

    local: Ended
    spark: Ended


def captures_of_all_kinds(folder: Path) -> list[Path]:
    """Planted violations, captures with troubles, a folder without captures, random histories."""
    kinds = ["planted", "troubled", "empty", *(f"random {seed}" for seed in range(1, 5))]
    places = [folder / kind for kind in kinds]
    for place in places:
        place.mkdir()
    write(places[0], size=SIZE)
    for name in TROUBLES:
        write_trouble(name, places[1])
    for seed, place in enumerate(places[3:], 1):
        write_random(place, seed)
    return places


def judged(engine: Engine, output: Path, places: list[Path], *more: str) -> Ended:
    words = ["judge", *map(str, places), "-o", str(output), "--engine", str(engine), *more]
    ended = CliRunner().invoke(app, words)
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.output
    return Ended(ended.exit_code, _RUN.sub("run", ended.stdout.replace(str(output), "judged")), output)


@pytest.fixture(scope="module")
def own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """The command ends the session that it runs in: this one is everybody's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSession, "stop", lambda _: None)
        yield spark


@pytest.fixture(scope="module")
def both(own_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> BothEngines:
    folder = tmp_path_factory.mktemp("engines")
    places = captures_of_all_kinds(folder)
    words = ("--most", "50", "--payloads")
    return BothEngines(
        judged(Engine.LOCAL, folder / "judged here", places, *words),
        judged(Engine.SPARK, folder / "judged by Spark", places, *words),
    )


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(row) for row in rows)


def read_by_spark(spark: SparkSession, place: Path, name: str) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in Results(spark, str(place)).table(name).collect()]


@pytest.mark.parametrize("name", TABLES)
def test_both_engines_leave_the_same_tables(name: str, both: BothEngines, own_session: SparkSession) -> None:
    here, there = (read_by_spark(own_session, ended.place, name) for ended in (both.local, both.spark))
    assert len(here) > 0
    assert sorted_rows(here) == sorted_rows(there)


def test_both_engines_leave_the_same_page(both: BothEngines) -> None:
    assert (both.local.place / PAGE).read_text() == (both.spark.place / PAGE).read_text()


def test_both_engines_print_the_same_and_end_with_the_same_code(both: BothEngines) -> None:
    assert both.local.output == both.spark.output
    assert both.local.code == both.spark.code == 1


@pytest.mark.parametrize("name", TABLES)
def test_the_local_engine_reads_tables_of_spark(name: str, both: BothEngines) -> None:
    here, there = (LocalResults(str(ended.place)).table(name) for ended in (both.local, both.spark))
    assert here.columns == there.columns == list(TABLES[name].names)
    assert sorted_rows(here.collect()) == sorted_rows(there.collect())


def test_captures_without_violations_end_with_0(tmp_path: Path) -> None:
    (tmp_path / "sound.pcapng").write_bytes(sound())
    assert judged(Engine.LOCAL, tmp_path / "judged", [tmp_path]).code == 0


# -- the choice --


def chosen(places: list[str], asked: Engine = Engine.AUTO, output: str = "judged", **asks: Any) -> str:
    about: dict[str, Any] = {"master": None, "follow": False, "settings": False} | asks
    return str(choose_engine(asked, places, output, **about))


def test_the_size_chooses_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.pcapng").write_bytes(bytes(1000))
    (tmp_path / "b.pcapng.gz").write_bytes(bytes(1000))
    monkeypatch.setattr(bounds, "LOCAL_JUDGE_BYTES", 6000)
    assert chosen([str(tmp_path)]) == "engine: local, 0.0 MB in one process"
    monkeypatch.setattr(bounds, "LOCAL_JUDGE_BYTES", 5999)
    assert (
        chosen([str(tmp_path)])
        == "engine: spark, 0.0 MB of captures are more than 0.0 MB (see --engine local)"
    )
    assert chosen([str(tmp_path)], Engine.LOCAL) == "engine: local, 0.0 MB in one process"


@pytest.mark.parametrize(
    ("asks", "what"),
    [
        ({"master": "local[2]"}, "--master"),
        ({"settings": True}, "--conf"),
        ({"follow": True}, "--follow"),
        ({"output": "s3a://bucket/judged"}, "s3a://bucket/judged"),
    ],
)
def test_what_only_spark_does_chooses_spark(asks: dict[str, Any], what: str, tmp_path: Path) -> None:
    assert chosen([str(tmp_path)], **asks) == f"engine: spark, {what} was given"
    with pytest.raises(UsageProblem, match=re.escape(f"{what} needs Spark")):
        chosen([str(tmp_path)], Engine.LOCAL, **asks)


def test_the_local_engine_imports_neither_spark_nor_pandas(tmp_path: Path) -> None:
    """A process of its own: this one has both."""
    (tmp_path / "sound.pcapng").write_bytes(sound())
    words = ["judge", str(tmp_path / "sound.pcapng"), "-o", str(tmp_path / "judged")]
    program = (
        "import sys\n"
        "from plumbline.cli.main import app\n"
        f"try: app({words!r})\n"
        "except SystemExit as end: code = end.code\n"
        "print(code, sorted({'pyspark', 'py4j', 'pandas'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    assert done.stderr.startswith("plumbline: engine: local, 0.0 MB in one process\n")
    assert (tmp_path / "judged" / PAGE).exists()


def test_error_without_pyarrow_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sound.pcapng").write_bytes(sound())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ended = CliRunner().invoke(app, ["judge", str(tmp_path), "-o", str(tmp_path / "judged")])
    assert ended.exit_code == 2
    assert "judge needs PyArrow, which is not installed: pip install 'plumbline-mq[judge]'" in ended.stderr


def test_of_very_many_short_connections_few_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered: list[int] = []

    class Counted(FlowJudge):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            remembered.append((remembered or [0])[-1] + 1)

        def finish(self) -> Iterator[Cells]:
            remembered.append(remembered[-1] - 1)
            return super().finish()

    parts = [section_header("tests") + interface("i", "d")]
    for number in range(1, 31):
        flow = PacketFlow(number, ("10.9.1.1", 20_000 + number), ("10.9.0.1", 4222))
        for direction, flags in ((Direction.TO_SERVER, SYN), (Direction.TO_CLIENT, SYN | ACK)):
            packet(parts, number, flow.head(direction, 0, flags), b"", ())
        for direction in Direction:
            packet(parts, number, flow.head(direction, 0, FIN | ACK), b"", ())
    (tmp_path / "short.pcapng").write_bytes(b"".join(parts))
    monkeypatch.setattr(bounds, "LOCAL_CLOSED_FLOWS", 5)
    monkeypatch.setattr(local_judge, "FlowJudge", Counted)
    LocalRun(JudgeOptions(paths=(str(tmp_path),), output=str(tmp_path / "judged"))).run()
    assert (max(remembered), remembered[-1]) == (6, 0)
    opened = LocalResults(str(tmp_path / "judged")).table("operations").collect()
    assert [row["connection"] for row in opened if row["op"] == "opened"] == list(range(1, 31))
