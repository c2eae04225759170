"""A server that a check has to itself: started, killed, started again, and gone afterwards."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Inconclusive
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.conformance.suite import all_checks
from plumbline.conformance.targets import own_server
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import NatsUrl, open_target, probe
from plumbline.errors import TargetUnreachable
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import ServerBinary
from plumbline.verdicts import Outcome

pytestmark = pytest.mark.slow  # make test-all runs it

REFERENCE_BROKER = (sys.executable, "-m", "plumbline", "broker", "nats")


def lives(server: OwnServer) -> None:
    """Start, kill, start, stop, start: the process is another one each time, and answers."""
    ids = set()
    try:
        for end in (server.kill, server.stop, server.kill):
            info, _ = probe(NatsUrl.parse(server.start()))
            ids.add(info["server_id"])
            end()
            with pytest.raises(TargetUnreachable):
                probe(NatsUrl.parse(server.url))
    finally:
        server.close()
    assert len(ids) == 3


def test_the_reference_broker_is_started_again_and_again() -> None:
    lives(OwnServer(REFERENCE_BROKER, {}))


def test_a_real_server_is_started_again_and_again(server_binary: ServerBinary) -> None:
    lives(OwnServer([str(server_binary.path)], {}))


def test_close_removes_process_and_folder() -> None:
    server = OwnServer(REFERENCE_BROKER, {})
    url = server.start()
    folder = Path(server._folder.name)
    assert (folder / "store/jetstream/layout.json").exists()
    server.close()
    assert not folder.exists()
    with pytest.raises(TargetUnreachable):
        probe(NatsUrl.parse(url))


def test_early_exit_reports_last_output() -> None:
    server = OwnServer([sys.executable, "-c", "print('no such option')"], {})
    with pytest.raises(Inconclusive, match="ended with code 0") as caught:
        server.start()
    assert "no such option" in caught.value.actual
    server.close()


STARTS_A_CHILD = (sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))")
DOES_NOT_STOP = (  # a program in front of the server that ignores SIGTERM
    sys.executable,
    "-c",
    "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "sys.exit(subprocess.call(sys.argv[1:]))",
)


@pytest.mark.parametrize("command", [REFERENCE_BROKER, (*STARTS_A_CHILD, *REFERENCE_BROKER)])
def test_watchdog_cleans_up_after_sigkill(command: tuple[str, ...]) -> None:
    program = (
        "import time; from plumbline.conformance.targets.own_server import OwnServer as S;"
        f"s = S({command!r}, {{}});"
        "print(s.start(), s._folder.name, flush=True); time.sleep(60)"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdout=pipe, text=True) as ours:
        assert ours.stdout is not None
        url, folder = ours.stdout.readline().split()
        probe(NatsUrl.parse(url))
        ours.kill()
    until = time.monotonic() + 30
    while Path(folder).exists() and time.monotonic() < until:
        time.sleep(0.01)  # another process is at work, whose end sends no event here
    assert not Path(folder).exists()
    with pytest.raises(TargetUnreachable):
        probe(NatsUrl.parse(url))


def test_a_server_that_does_not_stop_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_server, "ENDED_WITHIN_S", 0.0)
    server = OwnServer((*DOES_NOT_STOP, *REFERENCE_BROKER), {})
    try:
        url = server.start()
        with pytest.raises(Inconclusive, match="did not end"):
            server.stop()
        with pytest.raises(TargetUnreachable):
            probe(NatsUrl.parse(url))
    finally:
        server.close()


# A server that ends in order takes longer than the shell that started it, which SIGTERM ends at once.
ENDS_LATE = """
import signal, subprocess, sys
def end(*_):
    subprocess.run([sys.executable, "-c", ""])
    open(sys.argv[1], "w").write("ended in order")
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("nats://127.0.0.1:1 ready", flush=True)
while True:
    signal.pause()
"""
NEVER_ENDS = ENDS_LATE.replace("SIGTERM, end", "SIGTERM, signal.SIG_IGN")
SHELL = ("/bin/sh", "-c", '"$@" & echo $! > "$0"; wait')


def test_a_server_that_outlives_its_start_script_ends_in_order(tmp_path: Path) -> None:
    ending = tmp_path / "ending"
    server = OwnServer((*SHELL, str(tmp_path / "pid"), sys.executable, "-c", ENDS_LATE, str(ending)), {})
    try:
        server.start()
        server.stop()
        assert ending.read_text() == "ended in order"
    finally:
        server.close()


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_a_server_that_outlives_its_start_script_and_does_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(own_server, "ENDED_WITHIN_S", seconds)
    pid_file = tmp_path / "pid"
    server = OwnServer((*SHELL, str(pid_file), sys.executable, "-c", NEVER_ENDS), {})
    try:
        server.start()
        with os.fdopen(os.pidfd_open(int(pid_file.read_text()))) as child:
            with pytest.raises(Inconclusive, match=r"did not end within .* of SIGTERM"):
                server.stop()
            assert select.select([child], [], [], 30.0)[0]
    finally:
        server.close()


def test_a_session_ends_its_servers() -> None:
    with NatsBroker.in_thread(jetstream=True) as url:
        access = open_target(RunningTarget(NatsUrl.parse(url), program=REFERENCE_BROKER))
        with NatsSession(access) as session:
            server = session.own_server()
            server.start()
            assert session.stage_on(server).api("INFO")["streams"] == 0
        with pytest.raises(TargetUnreachable):
            probe(NatsUrl.parse(server.url))


def test_a_target_that_plumbline_did_not_start_is_not_restarted() -> None:
    check = next(one for one in all_checks() if one.id.startswith("store_restart::"))
    with NatsBroker.in_thread(jetstream=True) as url:
        result = run_check(check, open_target(NatsUrl.parse(url)), Catalogue.load())
    assert result.outcome is Outcome.UNSUPPORTED
    assert "restarts its server, and Plumbline did not start this one" in result.message
