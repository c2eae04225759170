"""The local engine and Spark: the same tables, page, messages and exit code for the same captures."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from plumbline import bounds
from plumbline.cli.main import app
from plumbline.errors import UsageProblem
from plumbline.pipeline.engine import Engine, choose_engine
from plumbline.pipeline.page.writer import PAGE
from plumbline.pipeline.results import LocalResults, Results
from plumbline.pipeline.tables import TABLES
from tests.pipeline.support.planted import write
from tests.pipeline.support.random_captures import write_random
from tests.pipeline.support.troubles import TROUBLES, sound, write_trouble

SIZE = 60_000
_RUN = re.compile(r"run-\d{8}T\d{6}Z-[0-9a-f]+")


def planted(folder: Path) -> None:
    write(folder, size=SIZE)


def troubled(folder: Path) -> None:
    (folder / "sound.pcapng").write_bytes(sound())
    for name in TROUBLES:
        write_trouble(name, folder)


def empty(_: Path) -> None:
    """A folder without captures."""


def of_seed(seed: int) -> Callable[[Path], None]:
    return lambda folder: write_random(folder, seed)


CAPTURES: dict[str, Callable[[Path], None]] = {
    "planted": planted, "troubled": troubled, "empty": empty,
    **{f"random {seed}": of_seed(seed) for seed in range(1, 5)},
}  # fmt: skip


@pytest.fixture
def own_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """The command ends the session that it runs in: this one is everybody's."""
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    return spark


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(row) for row in rows)


@pytest.mark.parametrize("keeps_payloads", [False, True], ids=["sizes", "payloads"])
@pytest.mark.parametrize("name", CAPTURES)
def test_both_engines_leave_and_print_the_same(
    name: str, keeps_payloads: bool, own_session: SparkSession, tmp_path: Path
) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    CAPTURES[name](captures)
    ended, places = {}, {engine: tmp_path / engine for engine in (Engine.LOCAL, Engine.SPARK)}
    for engine, place in places.items():
        words = ["judge", str(captures), "-o", str(place), "--engine", str(engine), "--most", "20"]
        ended[engine] = CliRunner().invoke(app, words + ["--payloads"] * keeps_payloads)
    local, spark = ended[Engine.LOCAL], ended[Engine.SPARK]
    assert (local.exit_code, spark.exit_code) in ((0, 0), (1, 1)), local.output + spark.output
    results = {engine: Results(own_session, str(place)) for engine, place in places.items()}
    for table in TABLES:
        rows = {
            engine: [row.asDict(recursive=True) for row in one.table(table).collect()]
            for engine, one in results.items()
        }
        assert sorted_rows(rows[Engine.LOCAL]) == sorted_rows(rows[Engine.SPARK]), table
    pages = [(place / PAGE).read_text() for place in places.values()]
    assert pages[0] == pages[1]
    printed = [
        _RUN.sub("run", ended[engine].stdout.replace(str(place), "judged"))
        for engine, place in places.items()
    ]
    assert printed[0] == printed[1]


def test_each_engine_reads_what_the_other_wrote(own_session: SparkSession, tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    write_random(captures, seed=1)
    for engine in (Engine.LOCAL, Engine.SPARK):
        place = str(tmp_path / engine)
        CliRunner().invoke(app, ["judge", str(captures), "-o", place, "--engine", str(engine)])
        by_spark, by_arrow = Results(own_session, place), LocalResults(place)
        for name, table in TABLES.items():
            columns = [one for one in table.names if one != "time"]  # naive there, with a zone here
            rows = [row.asDict(recursive=True) for row in by_spark.table(name).select(*columns).collect()]
            assert sorted_rows(rows) == sorted_rows(by_arrow.table(name).select(*columns).collect()), name


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
    assert chosen([str(tmp_path)]) == "engine: spark, 0.0 MB of captures are more than 0.0 MB"
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
