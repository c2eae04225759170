"""Targets that are run for the matrix, one after another."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plumbline.cli.main import app
from plumbline.reports.matrix.batch import FailedTarget, TargetRun, run_all
from plumbline.reports.matrix.runs import TargetRunResult, load
from plumbline.reports.result_json import encode
from tests.reports.runs import run_of

VERIFY = """
import sys, shutil
arguments = sys.argv[1:]
if "lost" in arguments:
    sys.exit("plumbline: no server is there")
shutil.copy(arguments[0], arguments[arguments.index("--json") + 1])
sys.exit(1)
"""


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """What a run left."""
    path = tmp_path / "ended.json"
    path.write_bytes(encode(run_of({"A-1": "passed", "A-2": "failed"})))
    return path


def test_red_run_is_a_result_and_lost_run_is_reported(ended: Path) -> None:
    lines: list[str] = []
    wanted = [TargetRun("here", (str(ended),)), TargetRun("gone", ("lost",))]
    run, missed = run_all(wanted, lines.append, (sys.executable, "-c", VERIFY))
    assert isinstance(run, TargetRunResult)
    assert run.target == "nats-server@2.10.0"
    assert missed == FailedTarget("gone", 1, "no server is there")
    assert lines[1] == "here: not conformant, 1 of 2 passed, 12 s"
    assert lines[3] == "gone: not run: no server is there (exit 1)"


def ctrl_c() -> None:
    raise KeyboardInterrupt


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("interrupt", [ctrl_c, terminate])
@pytest.mark.parametrize("count", [0, 1])
def test_an_interrupted_batch_leaves_what_had_ended(
    count: int, interrupt: Callable[[], None], ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batch(*_: object) -> Iterator[TargetRunResult]:
        yield from load([str(ended)] * count)
        interrupt()

    monkeypatch.setattr("plumbline.reports.matrix.batch.run_all", batch)
    asked = ["matrix", "--run", "reference-nats", "--run", "reference-amqp", "-o", str(tmp_path / "site")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 130
    assert f"interrupted; {count} targets were verified" in done.stderr
    assert (tmp_path / "site" / "index.html").exists() is (count > 0)
