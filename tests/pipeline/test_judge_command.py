"""The command ``plumbline judge``: what it finds, live and at the gate too; what it cannot judge; exit codes.

One run for all: two sessions as they were recorded, captures with one trouble each, a folder without any.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from plumbline.cli.main import app
from plumbline.monitors import Place, Side, Violation
from plumbline.pipeline.page.writer import PAGE
from plumbline.pipeline.results import Results
from tests.pipeline.conftest import SLOW
from tests.pipeline.support.three_judges import Session, played, untimed
from tests.pipeline.support.troubles import TROUBLES, sound, write_trouble
from tests.pipeline.test_judge import found

PROTOCOLS = ("nats", "amqp")  # in whose order connections get their numbers


@pytest.fixture(scope="module")
def own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """The command ends the session that it runs in: this one is everybody's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSession, "stop", lambda _: None)
        yield spark


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Session]:
    return {protocol: played(protocol, tmp_path_factory.mktemp(protocol)) for protocol in PROTOCOLS}


class Run(msgspec.Struct, frozen=True):
    """The command's output and results."""

    ended: Result
    output: Path
    results: Results


def judge(spark: SparkSession, output: Path, *places: Path) -> Run:
    """Runs the command."""
    words = ["judge", *map(str, places), "-o", str(output), "--payloads"]
    ended = CliRunner().invoke(app, words)
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.output
    return Run(ended, output, Results(spark, str(output)))


@pytest.fixture(scope="module")
def run(
    own_session: SparkSession, sessions: dict[str, Session], tmp_path_factory: pytest.TempPathFactory
) -> Run:
    troubled, empty = tmp_path_factory.mktemp("troubled"), tmp_path_factory.mktemp("empty")
    for name in TROUBLES:
        write_trouble(name, troubled)
    recorded = [sessions[protocol].captures for protocol in PROTOCOLS]
    return judge(own_session, tmp_path_factory.mktemp("judged"), *recorded, troubled, empty)


def test_judge_record_live_and_gate_find_the_same(run: Run, sessions: dict[str, Session]) -> None:
    judged = found(run.results.table("violations"))
    for number, protocol in enumerate(PROTOCOLS, 1):
        session = sessions[protocol]
        own = [numbered(one, "1") for one in judged if one.place.connection == str(number)]
        live = session.live.partition("\n1 connection, ")[0]
        assert live == "\n".join(map(str, own))
        assert list(map(untimed, session.wire)) == list(map(untimed, own))
        assert {one.side for one in own} == {Side.CLIENT, Side.SERVER}
        # The gate holds up clients.
        of_the_client = [untimed(one) for one in own if one.side is Side.CLIENT]
        assert list(map(untimed, session.gate)) == of_the_client != []
        assert all(str(numbered(one, str(number))) in run.ended.stdout for one in own)
    assert len(judged) == sum(len(session.wire) for session in sessions.values())


def numbered(violation: Violation, connection: str) -> Violation:
    """The same on another connection: a recorder counts from one, a folder goes on counting."""

    def moved(place: Place) -> Place:
        return msgspec.structs.replace(place, connection=connection)

    earlier = tuple(map(moved, violation.earlier))
    return msgspec.structs.replace(violation, place=moved(violation.place), earlier=earlier)


def test_each_problem_is_named_and_the_rest_is_judged(run: Run) -> None:
    problems = run.results.table("problems").collect()
    reported = sorted((Path(row.capture).name.rstrip("0123456789"), row.kind) for row in problems)
    expected = [(f"{name}.pcapng", kind) for name, kind in TROUBLES.items()]
    assert reported == sorted([*expected, ("empty", "empty")])
    assert all(f"problem: {row.kind}: {row.text}\n" in run.ended.stdout for row in problems)
    assert all(Path(row.capture).name in row.text or row.connection for row in problems)
    assert run.results.manifest.problems == len(problems)
    judged = {Path(row.capture).name for row in run.results.table("operations").collect() if row.number}
    assert judged >= {"truncated.pcapng", "damaged.pcapng", "hole.pcapng", "undecodable.pcapng"}
    assert run.results.manifest.violations > 0


def test_the_command_ends_with_one_and_leaves_a_page(run: Run) -> None:
    assert run.ended.exit_code == 1
    assert "plumbline: writing tables" in run.ended.stderr
    assert f"page: {run.output / PAGE}\n" in run.ended.stdout
    page = (run.output / PAGE).read_text()
    assert "one-acknowledgement" in page
    assert all(kind in page for kind in TROUBLES.values())


@SLOW
@pytest.mark.parametrize("name", [None, "empty", *TROUBLES])
def test_a_problem_alone_is_in_the_exit_code(
    name: str | None, own_session: SparkSession, tmp_path: Path
) -> None:
    captures, empty = tmp_path / "captures", tmp_path / "empty"
    captures.mkdir()
    (captures / "sound.pcapng").write_bytes(sound())
    places = [captures]
    if name == "empty":
        empty.mkdir()
        places.append(empty)
    elif name is not None:
        write_trouble(name, captures)
    run = judge(own_session, tmp_path / "judged", *places)
    kinds = [row.kind for row in run.results.table("problems").collect()]
    assert run.results.manifest.violations == 0
    assert run.results.manifest.operations > 0
    assert kinds == ([TROUBLES.get(name, name)] if name else [])
    assert run.ended.exit_code == (1 if name else 0), run.ended.output


def test_help_lists_problems_and_exit_codes() -> None:
    printed = CliRunner().invoke(app, ["judge", "--help"]).output
    assert "Exit codes: 0 no violations and no problems, 1 violations or problems" in printed
    words: Any = (
        "truncated", "damaged", "unreadable", "no capture", "without captures", "missing bytes",
        "cannot be decoded", "unknown protocol",
    )  # fmt: skip
    assert [word for word in words if word not in " ".join(printed.split())] == []
