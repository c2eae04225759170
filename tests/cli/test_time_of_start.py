"""When a command began: ``--max-time`` counts what it takes to import it, too."""

from __future__ import annotations

import signal
import sys
import time

import pytest
from typer.testing import CliRunner

from plumbline.cli import LOADED_AT
from plumbline.cli.commands import gate, verify
from plumbline.cli.main import app, main
from plumbline.conformance.runner.time_limit import TimeLimit
from plumbline.verdicts import ExitCode


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When each command began that was run, instead of its run."""
    times: list[float] = []

    def limit(seconds: float, started_at: float) -> TimeLimit:
        times.append(started_at)
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", lambda *given: signal.SIG_DFL)  # main ignores Ctrl-C at its end
    monkeypatch.setattr(gate, "TimeLimit", limit)
    monkeypatch.setattr(verify, "TimeLimit", limit)
    return times


COMMANDS = pytest.mark.parametrize(
    "arguments", [["verify", "--select=CORE-001"], ["gate", "--", sys.executable]], ids=["verify", "gate"]
)


@COMMANDS
def test_a_command_began_with_its_process(
    arguments: list[str], began: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["plumbline", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, began) == (ExitCode.INTERRUPTED, [LOADED_AT])


@COMMANDS
def test_one_of_several_in_a_process_began_when_it_was_run(arguments: list[str], began: list[float]) -> None:
    before = time.monotonic()
    assert CliRunner().invoke(app, arguments).exit_code == ExitCode.INTERRUPTED
    assert [before <= moment <= time.monotonic() for moment in began] == [True]
