"""Workers that are forked: each script is a run of its own, since the process of a test has threads."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from plumbline.conformance.runner.verify import _parallel
from tests.patience import HANGS_AFTER_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")

BEGIN = """
import atexit, os, signal, sys, threading
import execnet
from plumbline.conformance.runner import fork_server

def gateway(spec):
    return execnet.Group(execmodel="main_thread_only").makegateway(f"execmodel=main_thread_only//{spec}")

def answer(spec, question):
    found = gateway(spec)
    channel = found.remote_exec(f"import os, signal, sys; channel.send({question})")
    received = channel.receive(TIMEOUT)
    found.exit()
    return received
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    text = BEGIN.replace("TIMEOUT", str(HANGS_AFTER_S)) + script
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANGS_AFTER_S)


def printed(script: str, *arguments: str) -> list[str]:
    ended = run(script, *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.split()


def has_ended(pid: int) -> bool:
    """Waits for the end of a process that is not a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], HANGS_AFTER_S)[0])
    finally:
        os.close(descriptor)


def test_a_worker_has_what_the_process_had_imported() -> None:
    script = """
fork_server.what_was_read = "kept"
with fork_server.forked_workers() as spec:
    for _ in range(2):
        print(*answer(spec, f"(os.getpid(), sys.modules[{fork_server.__name__!r}].what_was_read)"))
print(os.getpid())
"""
    first, kept, second, again, own = printed(script)
    assert kept == again == "kept"
    assert len({first, second, own}) == 3


def test_files_and_signal_handlers_of_the_process_are_not_those_of_a_worker(tmp_path: Path) -> None:
    script = """
file = open(sys.argv[1], "w")
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
questions = (
    f"os.path.realpath('/proc/self/fd/{file.fileno()}')",
    "signal.getsignal(signal.SIGTERM) is signal.SIG_DFL",
    "signal.getsignal(signal.SIGHUP) is signal.SIG_IGN",
    "signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())",
)
with fork_server.forked_workers() as spec:
    print(*answer(spec, f"({','.join(questions)})"))
"""
    mine = tmp_path / "mine"
    opened, *handled = printed(script, str(mine))
    assert opened != str(mine)
    assert handled == ["True", "True", "True"]


def test_exit_handlers_run_in_the_process_alone() -> None:
    script = """
atexit.register(lambda: print("ended", os.getpid(), flush=True))
with fork_server.forked_workers() as spec:
    answer(spec, "1")
print(os.getpid())
"""
    own, word, ended = printed(script)
    assert (word, ended) == ("ended", own)


def test_a_worker_ends_with_its_client() -> None:
    """The client is the process that xdist knows, and kills."""
    script = """
with fork_server.forked_workers() as spec:
    found = gateway(spec)
    worker = found.remote_exec("import os; channel.send(os.getpid())").receive()
    print(worker, flush=True)
    found.remote_exec("import threading; threading.Event().wait()")  # it does not end when it is asked to
    found._io.popen.kill()
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        worker = int(process.stdout.readline())
        assert has_ended(worker)
        process.stdin.close()


def test_server_and_workers_end_with_a_process_that_is_killed() -> None:
    script = """
with fork_server.forked_workers() as spec:
    found = gateway(spec)
    print(*found.remote_exec("import os; channel.send((os.getpid(), os.getppid()))").receive(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = run(script)
    worker, server = map(int, ended.stdout.split())
    assert has_ended(server)
    assert has_ended(worker)


def test_nothing_is_forked_where_there_are_threads() -> None:
    script = """
over = threading.Event()
thread = threading.Thread(target=over.wait)
thread.start()
with fork_server.forked_workers() as spec:
    print(repr(spec))
over.set()
thread.join()
while len(list(fork_server.THREADS.iterdir())) > 1:  # the system ends it a moment later
    os.sched_yield()
with fork_server.forked_workers() as spec:
    print(spec.partition("=")[0])
"""
    assert printed(script) == ["''", "popen//python"]


def test_xdist_starts_workers_itself_where_none_can_be_forked() -> None:
    assert _parallel(0, "popen//python=x") == []
    assert "--numprocesses=2" in _parallel(2, "")
    assert _parallel(2, "popen//python=x")[:2] == ["--tx=popen//python=x"] * 2
