"""``plumbline broker nats``, as a process: flags, the line it prints, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from plumbline.reference_broker.nats.defects import all_defects
from tests.patience import HANGS_AFTER_S

COMMAND = [sys.executable, "-m", "plumbline", "broker", "nats"]


@contextmanager
def broker(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running broker and the line it printed."""
    with subprocess.Popen([*COMMAND, *flags], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def info(line: str) -> dict[str, Any]:
    address = urlsplit(line.split(maxsplit=1)[0])
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        fields = json.loads(connection.recv(65536).removeprefix(b"INFO "))
        assert isinstance(fields, dict)
        return fields


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *flags], capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(number: signal.Signals) -> None:
    with broker("-p", "-1") as (process, line):
        address = urlsplit(line.split()[0])
        with socket.create_connection((address.hostname, address.port), timeout=5):
            process.send_signal(number)
            assert process.wait(HANGS_AFTER_S) == 0
    assert process.returncode == 0


@pytest.mark.parametrize(
    "flags",
    [
        ["-p", "-1", "-a", "127.0.0.1", "-n", "mine"],
        ["--port", "-1", "--addr", "127.0.0.1", "--name", "mine"],
        ["-port", "-1", "-addr=127.0.0.1", "-server_name", "mine"],
        ["-p=-1", "--net", "127.0.0.1", "--name=mine", "-DV"],
    ],
)
def test_flags_are_read_as_nats_server_reads_them(flags: list[str]) -> None:
    with broker(*flags) as (_, line):
        assert info(line)["server_name"] == "mine"


def test_level_and_credentials() -> None:
    with broker("-p", "-1", "--level", "2.9", "--user", "a", "--pass", "b") as (_, line):
        fields = info(line)
    assert (fields["version"], fields["auth_required"]) == ("2.9.10", True)


def test_a_configuration_file_is_read_and_flags_overrule_it(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    file.write_text(json.dumps({"server_name": "filed", "PORT": -1, "max_payload": 77, "debug": True}))
    with broker("-c", str(file), "-n", "flagged") as (_, line):
        fields = info(line)
    assert (fields["server_name"], fields["max_payload"]) == ("flagged", 77)


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = run("-p", str(port))
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr == (
        f"plumbline: 127.0.0.1:{port} is in use: choose another port with -p, or -p -1 for a free one\n"
    )


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--level", "1"], "level '1' is not known: write a level from 2.9 to 2.15, or newest"),
        (["-c", "/does/not/exist"], "/does/not/exist: cannot be read (No such file or directory)"),
        (
            ["--defect", "nonsense-of-no-kind"],
            "unknown defect 'nonsense-of-no-kind': ",
        ),
        (["--no-such-flag"], "No such option"),
        (["-port", "x"], "Invalid value for '--port'"),
    ],
)
def test_invalid_options_exit_2_with_message(flags: list[str], text: str) -> None:
    answer = run(*flags)
    assert answer.returncode == 2
    assert text in answer.stderr


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "write the configuration as JSON"),
        ("[]", "write one JSON object"),
        ('{"cluster": {}}', "'cluster' is not a key of this broker; it knows host, port, "),
        ('{"max_payload": "much"}', "$.max_payload"),
        ('{"ping_interval": "often"}', "ping_interval 'often' is not a duration"),
        ('{"authorization": {"users": [{"nkey": "U"}]}}', "is not a public user key"),
    ],
)
def test_bad_configuration_error_names_file(tmp_path: Path, content: str, text: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(content)
    answer = run("-c", str(file))
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"plumbline: {file}: ")
    assert text in answer.stderr


def test_a_defect_that_is_nearly_named_is_offered() -> None:
    name = all_defects()[0].name
    assert name in run("--defect", name[:-1] + "x").stderr


def test_defects_are_listed_with_what_they_break() -> None:
    lines = run("--list-defects").stdout.splitlines()
    assert lines[0].split() == ["DEFECT", "BREAKS", "SUMMARY"]
    assert [line.split()[0] for line in lines[1:]] == [one.name for one in all_defects()]


def test_help_shows_the_flags_and_examples() -> None:
    text = run("-h").stdout
    for part in ("-js", "-sd", "--level", "--list-defects", "plumbline broker nats -js"):
        assert part in text
