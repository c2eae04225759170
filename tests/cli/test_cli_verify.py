"""The command line of ``plumbline verify``: help, arguments, output in pipes and without colour."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from plumbline.reference_broker.nats.server import NatsBroker
from tests.cli.command import PLUMBLINE, environment, run, verify

ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with NatsBroker.in_thread(jetstream=True) as url:
        yield url


def test_the_help_shows_urls_examples_and_exit_codes_as_they_are_written(tmp_path: Path) -> None:
    ended = verify(tmp_path, "-h")
    assert ended.code == 0
    assert "Usage: plumbline verify [OPTIONS] [URL] [-- PYTEST-ARGUMENT...]\n" in ended.out
    assert "nats://[user:password@|token@]host[:port]" in ended.out
    assert "\n    plumbline verify nats://127.0.0.1:4222             any NATS server\n" in ended.out
    assert "3 target unreachable or lost" in ended.out


def test_an_option_that_is_none_is_a_mistake(tmp_path: Path) -> None:
    ended = verify(tmp_path, "--selct", "CORE-*")
    assert (ended.code, ended.out) == (2, "")
    assert "--select" in ended.err


@pytest.mark.parametrize(
    "first", [pytest.param((), marks=pytest.mark.slow), ("--select", "CORE-00*", "--select", "CORE-035")]
)
def test_arguments_after_double_dash_go_to_pytest(
    tmp_path: Path, broker: str, first: tuple[str, ...]
) -> None:
    report = tmp_path / "r.json"
    ended = verify(tmp_path, broker, *first, "--json", report, "--", "-k", "CORE-004 or CORE-035")
    assert ended.code == 0, ended.out
    tested = {name for check in json.loads(report.read_text())["checks"] for name in check["requirements"]}
    assert {"CORE-004", "CORE-035"} <= tested
    assert len(tested) < 10


def test_without_a_url_they_go_to_pytest_too(tmp_path: Path) -> None:
    ended = verify(tmp_path, "-n", "0", "--", "-k", "CORE-004")
    assert ended.code == 0
    assert "(plumbline-" in ended.out


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1", "3"])
def test_the_number_of_processes_changes_no_verdict(tmp_path: Path, broker: str, workers: str) -> None:
    ended = verify(tmp_path, broker, "--select", "CORE-00*", "-n", workers, "--json", "r.json")
    assert ended.code == 0
    result = json.loads((tmp_path / "r.json").read_text())
    outcomes = {check["id"]: check["outcome"] for check in result["checks"]}
    assert len(outcomes) == 11
    assert set(outcomes.values()) == {"passed", "unsupported"}


def test_a_pipe_and_no_color_get_plain_lines(tmp_path: Path, broker: str) -> None:
    select = ("verify", broker, "--select", "CORE-004")
    piped = run((*PLUMBLINE, *select), tmp_path)
    coloured = run((*PLUMBLINE, *select), tmp_path, environment(FORCE_COLOR="1"))
    plain = run((*PLUMBLINE, *select), tmp_path, environment(FORCE_COLOR="1", NO_COLOR="1"))
    assert ESCAPE not in piped.out
    assert f"{ESCAPE}[1;32m" in coloured.out
    assert f"{ESCAPE}[1;32m" not in plain.out


@pytest.mark.slow
def test_a_reader_that_leaves_early_changes_neither_verdict_nor_reports(tmp_path: Path, broker: str) -> None:
    with subprocess.Popen(
        (*PLUMBLINE, "verify", broker, "--select", "CORE-00*", "--json", "r.json"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("Verifying")
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, "")
    assert json.loads((tmp_path / "r.json").read_text())["summary"]["exit_code"] == 0


def test_unwritable_report_is_reported_and_others_are_written(tmp_path: Path, broker: str) -> None:
    options = ("--select", "CORE-004", "--json", "/dev/full", "--junit", "r.xml")
    ended = verify(tmp_path, broker, *options)
    assert ended.code == 2
    assert "/dev/full" in ended.err
    assert "no space left" in ended.err
    assert (tmp_path / "r.xml").exists()
    assert "Conformant." in ended.out
