"""How every command ends if something is wrong: one sentence, and the exit code that belongs to it."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from plumbline.cli.main import app
from plumbline.cli.programs import exit_code_of
from plumbline.errors import TargetUnreachable, UsageProblem
from tests.cli.command import PLUMBLINE, ROOT, environment, one_sentence
from tests.cli.test_commands import EVERY

LEAVES = [name for name, command in EVERY.items() if not getattr(command, "commands", None)]
SENTENCE = re.compile(r"internal error in Plumbline: (?P<what>.*) \(traceback: (?P<file>/.*\.txt)\)")
HOSTILE = "one\nTraceback (most recent call last): \x1b]0;title\x07 " + "x" * 10_000


def leaf(name: str) -> tuple[Any, Any]:
    """New objects of all commands and of the command of that name."""
    command: Any = typer.main.get_command(app)
    group = command
    for word in name.split():
        command = command.get_command(None, word)
    return group, command


def run(name: str, callback: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command that does ``callback``, whatever its parameters are."""
    group, command = leaf(name)
    monkeypatch.setattr(command, "params", [])
    monkeypatch.setattr(command, "callback", callback)
    with pytest.raises(SystemExit) as ended:
        group.main([*name.split()], prog_name="plumbline")
    return int(ended.value.code or 0)


def raising(error: BaseException) -> Callable[[], None]:
    def callback() -> None:
        raise error

    return callback


@pytest.mark.parametrize("name", LEAVES)
def test_an_unexpected_error_is_a_sentence_and_a_file(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run(name, raising(LookupError("the cause")), monkeypatch) == 4
    found = SENTENCE.fullmatch(one_sentence(capsys.readouterr().err))
    assert found is not None
    assert found["what"] == "LookupError: the cause"
    file = Path(found["file"])
    assert file.parent == tmp_path
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert text.startswith("Traceback (most recent call last):")
    assert text.endswith("LookupError: the cause\n")


def test_a_program_that_stands_in_for_a_server_ends_so_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert exit_code_of(lambda arguments: len(arguments) * 0) == 0

    def fails(arguments: Sequence[str]) -> int:
        raise LookupError("the cause")

    assert exit_code_of(fails) == 4
    found = SENTENCE.fullmatch(one_sentence(capsys.readouterr().err))
    assert found is not None
    assert Path(found["file"]).parent == tmp_path


@pytest.mark.parametrize("name", LEAVES)
def test_other_endings(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = FileNotFoundError(2, "No such file or directory", str(tmp_path / "none"))
    for error, code, sentence in (
        (KeyboardInterrupt(), 130, "interrupted"),
        (UsageProblem("write it so"), 2, "write it so"),
        (TargetUnreachable("it is not there"), 3, "it is not there"),
        (missing, 2, f"{tmp_path / 'none'}: No such file or directory"),
    ):
        with monkeypatch.context() as patched:
            assert run(name, raising(error), patched) == code
        assert one_sentence(capsys.readouterr().err) == sentence


def test_sigterm_ends_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("audit", lambda: signal.raise_signal(signal.SIGTERM), monkeypatch) == 130
    assert one_sentence(capsys.readouterr().err) == "interrupted"


def test_the_text_of_an_error_is_one_line_and_harmless(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run("show", raising(ValueError(HOSTILE)), monkeypatch) == 4
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert err.rstrip("\n").isprintable()
    assert len(err) < 600


def test_a_traceback_that_cannot_be_written_is_a_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert run("show", raising(ValueError("the cause")), monkeypatch) == 4
    sentence = one_sentence(capsys.readouterr().err)
    assert re.fullmatch(
        r"internal error in Plumbline: ValueError: the cause \(at .*test_endings\.py:\d+; the traceback "
        r"cannot be written: No such file or directory\)",
        sentence,
    )


def test_a_reader_that_leaves_is_no_finding_and_no_sentence() -> None:
    """``plumbline list | head -n 0``: more output than a pipe holds."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PLUMBLINE, "list"], stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, env=environment(), check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (130, b"")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("verify", "unknown://localhost"), 2), (("list", "--group", "none"), 2), (("list",), 0)],
    ids=["a sentence", "an error of the command line", "nothing"],
)
def test_stderr_that_is_not_read_does_not_change_the_exit_code(arguments: tuple[str, ...], code: int) -> None:
    """``plumbline list ... 2>&1 >file | head -n 0``."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PLUMBLINE, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=writing,
        cwd=ROOT,
        env=environment(),
        check=False,
    )
    os.close(writing)
    assert done.returncode == code
