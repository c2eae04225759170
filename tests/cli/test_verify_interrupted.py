"""Ctrl-C and SIGTERM in the middle of a run: nothing is left, on the target or on this machine."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from tests.cli.command import PLUMBLINE, await_line, environment, one_sentence, run, session_of, started
from tests.conformance.streams import stream_names

pytestmark = pytest.mark.slow  # make test-all runs it

PASSWORD = "S3cretOfKilledRun"
ENDS_WITHIN_S = 60
"""How long an interrupted run may take to end: a bound on hanging, not on speed."""


@pytest.fixture
def broker() -> Iterator[str]:
    with NatsBroker.in_thread(jetstream=True) as url:
        yield url


def _interrupt(url: str, number: signal.Signals, folder: Path, *, group: bool) -> None:
    """Interrupt a run that is under way, and see that nothing is left of it."""
    with started((*PLUMBLINE, "verify", url, "-n", "3"), folder) as process:
        await_line(process, " 25 %")
        (os.killpg if group else os.kill)(process.pid, number)
        out, err = process.communicate(timeout=ENDS_WITHIN_S)
        assert session_of(process.pid) == []
    assert process.returncode == 130
    assert one_sentence(err) == "the run was interrupted"
    assert "Unknown: the run was interrupted." in out
    assert re.search(r"checks  \d+ passed", out)
    assert stream_names(url) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_on_a_real_server(
    tmp_path: Path, nats_server: NatsServer, number: signal.Signals
) -> None:
    _interrupt(nats_server.url, number, tmp_path, group=False)


def test_ctrl_c_to_process_group_cleans_up(tmp_path: Path, nats_server: NatsServer) -> None:
    _interrupt(nats_server.url, signal.SIGINT, tmp_path, group=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_on_the_reference_broker(
    tmp_path: Path, broker: str, number: signal.Signals
) -> None:
    _interrupt(broker, number, tmp_path, group=True)


def test_servers_that_were_started_for_the_run_end_with_it(
    tmp_path: Path, server_binary: ServerBinary
) -> None:
    binary = str(server_binary.path)
    with started((*PLUMBLINE, "verify", "--server", binary, "-n", "3"), tmp_path) as process:
        await_line(process, " 25 %")
        servers = [pid for pid in session_of(process.pid) if _runs(pid, binary)]
        assert len(servers) > 1
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=ENDS_WITHIN_S)
        assert session_of(process.pid) == []
    assert process.returncode == 130
    assert one_sentence(err) == "the run was interrupted"


def _runs(pid: int, binary: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] == binary.encode()
    except (FileNotFoundError, ProcessLookupError):
        return False  # ended meanwhile


def test_a_second_ctrl_c_does_not_stop_the_cleaning(tmp_path: Path, nats_server: NatsServer) -> None:
    with started((*PLUMBLINE, "verify", nats_server.url, "-n", "3"), tmp_path) as process:
        await_line(process, " 25 %")
        os.kill(process.pid, signal.SIGINT)
        while process.poll() is None:
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.01)
        _, err = process.communicate()
    assert process.returncode in (130, -signal.SIGINT)  # the last one may find Python itself on its way out
    assert "Traceback" not in err
    assert stream_names(nats_server.url) == []


def test_a_killed_run_leaves_no_password_on_the_disk(tmp_path: Path, broker: str) -> None:
    """Killed with all its workers, so that nothing is left which could clean up."""
    rest = tmp_path / "rest"
    rest.mkdir()
    env = environment(PLUMBLINE_PASSWORD=PASSWORD, TMPDIR=str(rest))
    url = broker.replace("://", "://alice@")
    with started((*PLUMBLINE, "verify", url, "-n", "3"), tmp_path, env) as process:
        await_line(process, " 25 %")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=ENDS_WITHIN_S)
    files = [path for path in rest.rglob("*") if path.is_file()]
    assert files  # the folder that the processes of the run share
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []


INTERRUPTED_AT_ONCE = """
import os, signal, sys
from plumbline.cli.main import main
from plumbline.reference_broker.nats.server import NatsBroker
start = NatsBroker.in_thread
def interrupted(*arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)
    return start(*arguments, **options)
NatsBroker.in_thread = interrupted
sys.argv = ["plumbline", "verify"]
main()
"""


def test_a_run_that_has_not_begun_ends_with_one_word(tmp_path: Path) -> None:
    ended = run((sys.executable, "-c", INTERRUPTED_AT_ONCE), tmp_path)
    assert (ended.code, ended.out) == (130, "")
    assert one_sentence(ended.err) == "interrupted"


def test_the_terminal_is_as_it_was(tmp_path: Path, broker: str) -> None:
    """On a terminal of its own, by the key itself: the cursor is back, and so are the terminal's settings."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(
        (*PLUMBLINE, "verify", broker, "-n", "3"),
        cwd=tmp_path,
        env=environment(TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 -- Python 3.11 has no other way
    ) as process:
        shown = _read_until(ours, rb"[1-9]\d* passed")
        os.write(ours, b"\x03")
        shown += _read_until(ours, rb"plumbline: the run was interrupted")
        assert process.wait(ENDS_WITHIN_S) == 130
    assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h") == 1
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def _read_until(terminal: int, pattern: bytes) -> bytes:
    shown = b""
    deadline = time.monotonic() + 60
    while not re.search(pattern, shown):
        ready, _, _ = select.select([terminal], [], [], max(deadline - time.monotonic(), 0))
        assert ready, shown
        shown += os.read(terminal, 65536)
    return shown
