"""An error of an adapter is reported with its evidence, and never keeps Plumbline waiting."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plumbline.conformance.clients import client_under_test
from plumbline.conformance.clients.client_under_test import AdapterError, ClientUnderTest

pytestmark = pytest.mark.slow  # make test-all runs it

HELLO = (
    "import json, os, subprocess, sys, time\n"
    "def say(**line): print(json.dumps(line), flush=True)\n"
    "say(hello='plumbline.adapter/1', protocol='nats', library='lib', version='1', features=['fetch'])\n"
)
OTHER_VERSION = (
    '{"hello": "plumbline.adapter/9", "protocol": "nats", "library": "", "version": "", "features": []}'
)


@contextmanager
def adapter(program: str, *, hello: bool = True) -> Iterator[ClientUnderTest]:
    with ClientUnderTest((sys.executable, "-c", (HELLO if hello else "") + program)) as running:
        if hello:
            assert running.hello().library == "lib"
        yield running


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_under_test, "ANSWER_WITHIN_S", 0.3)
    monkeypatch.setattr(client_under_test, "HELLO_WITHIN_S", 0.5)


def test_a_command_is_answered() -> None:
    with adapter("for line in sys.stdin: say(id=json.loads(line)['id'], ok={'seq': 7})") as running:
        answer = running.send_command("js.publish", subject="a", data="b")
        assert answer.ok is not None
        assert answer.ok.seq == 7
        assert running.end() == 0


def test_a_reset_forgets_what_was_reported_before() -> None:
    program = (
        "for line in sys.stdin:\n"
        "    say(event='error', text='old')\n"
        "    say(id=json.loads(line)['id'], ok={})\n"
    )
    with adapter(program) as running:
        running.send_command("flush")
        before = running.events
        running.reset()
        assert running.events == []
        assert [event.text for event in before] == ["old", "old"]


def test_an_adapter_that_cannot_begin_again_is_reported() -> None:
    program = "for line in sys.stdin: say(id=1, error={'text': 'no'})"
    with adapter(program) as running, pytest.raises(AdapterError, match="cannot begin again"):
        running.reset()


def test_answer_and_error_may_come_together() -> None:
    program = (
        "for line in sys.stdin: say(id=1, ok={'messages': [{'ref': 1}]}, error={'text': 'late', 'code': 408})"
    )
    with adapter(program) as running:
        answer = running.send_command("fetch")
        assert answer.error is not None
        assert str(answer.error) == "late (code 408)"
        assert answer.ok is not None
        assert answer.ok.messages[0].ref == 1


def test_crash_reports_signal_and_stderr() -> None:
    program = "sys.stdin.readline(); print('out of cheese', file=sys.stderr, flush=True); os.abort()"
    with adapter(program) as running, pytest.raises(AdapterError) as raised:
        running.send_command("fetch")
    assert raised.value.message == "the adapter ended"
    assert raised.value.expected == "an answer to fetch"
    assert "killed by SIGABRT" in raised.value.actual
    assert "out of cheese" in raised.value.actual


def test_exit_reports_exit_code() -> None:
    with adapter("sys.stdin.readline(); sys.exit(3)") as running, pytest.raises(AdapterError) as raised:
        running.send_command("fetch")
    assert raised.value.actual == "exit code 3; nothing on stderr"


@pytest.mark.usefixtures("impatient")
def test_hang_is_reported_and_killed() -> None:
    """It sleeps longer than a test may take: only the limit for an answer ends this one."""
    with adapter("time.sleep(3600)") as running, pytest.raises(AdapterError) as raised:
        running.send_command("fetch")
    assert raised.value.message == "the adapter does not answer: no answer to fetch"


@pytest.mark.usefixtures("impatient")
def test_missing_hello_is_reported() -> None:
    program = "import sys, time; print('waking up', file=sys.stderr, flush=True); time.sleep(60)"
    with adapter(program, hello=False) as running, pytest.raises(AdapterError) as raised:
        running.hello()
    assert raised.value.expected.startswith("hello within")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Welcome to my adapter!", "malformed"),
        ("[1, 2]", "a line must be a JSON object"),
        ("{}", "a line must have 'hello', 'id' or 'event'"),
        ('{"event": "party"}', "event is 'party'"),
        ('{"id": 1}', "neither 'ok' nor 'error'"),
        ('{"id": 9, "ok": {}}', "was never sent"),
        (OTHER_VERSION, "this Plumbline supports 'plumbline.adapter/1'"),
        ('{"event": "message", "subscription": "a"}', "needs 'subscription' and 'message'"),
        ('{"event": "confirmed", "publish": 1}', "needs 'publish' and 'ack'"),
    ],
)
def test_malformed_line_is_reported_with_text(line: str, why: str) -> None:
    program = f"sys.stdin.readline(); print({line!r}, flush=True); sys.stdin.readline()"
    with adapter(program) as running, pytest.raises(AdapterError) as raised:
        running.send_command("fetch")
    assert why in raised.value.message
    assert line in raised.value.actual


@pytest.mark.parametrize("line", ["'[' * 100_000", "'9' * 10_000", "chr(0xfff) * 3"])
def test_a_line_that_no_parser_takes_is_reported_at_once(line: str) -> None:
    program = f"sys.stdin.readline(); print({line}, flush=True); sys.stdin.read()"
    with adapter(program) as running, pytest.raises(AdapterError, match="wrote a line that is not valid"):
        running.send_command("fetch")


@pytest.mark.parametrize(
    "program", ["sys.stdout.write('x' * 3_000_000)", "while True: say(event='error', text='x' * 100_000)"]
)
def test_too_much_output_is_reported(program: str) -> None:
    with adapter(f"sys.stdin.readline()\n{program}") as running, pytest.raises(AdapterError) as raised:
        running.send_command("fetch", within=60)
    assert raised.value.message == "the adapter floods its stdout"


def test_duplicate_answer_is_reported() -> None:
    program = (
        "sys.stdin.readline(); say(id=1, ok={}); sys.stdin.readline(); say(id=1, ok={}); sys.stdin.readline()"
    )
    with adapter(program) as running:
        running.send_command("flush")
        with pytest.raises(AdapterError, match="which it has already answered"):
            running.send_command("flush")


def test_of_a_long_stderr_the_beginning_and_the_end_are_kept() -> None:
    program = "sys.stderr.write('first ' + 'x' * 200_000 + ' last'); sys.stderr.flush(); sys.stdin.read()"
    with adapter(program) as running:
        running.end()
        assert running.stderr.startswith("first")
        assert running.stderr.endswith("last")
        assert "bytes left out" in running.stderr
        assert len(running.stderr) < 40_000


def test_child_processes_end_with_adapter(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = (
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "say(id=1, ok={}) if sys.stdin.readline() else None\n"
        "time.sleep(60)"
    )
    with adapter(program) as running:
        running.send_command("flush")
        child = os.pidfd_open(int(pid_file.read_text()))
        running.kill()
    try:
        ended, _, _ = select.select([child], [], [], 20)
    finally:
        os.close(child)
    assert ended


def test_closed_stdout_of_running_adapter_is_reported() -> None:
    with adapter("os.close(1); time.sleep(60)") as running, pytest.raises(AdapterError) as raised:
        running.send_command("fetch")
    assert "its stdout ended and it runs on" in raised.value.actual


def test_kill_from_other_thread_wakes_waiter() -> None:
    with adapter("time.sleep(60)") as running:
        threading.Timer(0.2, running.kill).start()
        with pytest.raises(AdapterError, match="the adapter ended"):
            running.send_command("fetch", within=60)


def test_missing_command_is_reported() -> None:
    with pytest.raises(AdapterError, match="cannot be started: No such file"):
        ClientUnderTest(("/nonexistent/adapter",)).start()


def test_the_environment_is_added_to() -> None:
    program = (
        "say(id=1, error={'text': os.environ['PLUMBLINE_PROTOCOL'] + os.environ['HOME']}); sys.stdin.read()"
    )
    command = (sys.executable, "-c", HELLO + "sys.stdin.readline()\n" + program)
    with ClientUnderTest(command, {"PLUMBLINE_PROTOCOL": "amqp"}) as running:
        running.hello()
        error = running.send_command("flush").error
    assert error is not None
    assert error.text == f"amqp{os.environ['HOME']}"
