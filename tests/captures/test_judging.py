"""Monitors over captures: the same violations from what is recorded, live and afterwards."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from plumbline.captures.files import CaptureSource, read
from plumbline.captures.judging import CaptureJudge, RecordingJudge
from plumbline.monitors import Violation
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.record import recorded
from tests.patience import HANGS_AFTER_S
from tests.proxy.peers import connect, receive, server

CONNECT = b'CONNECT {"verbose":false}\r\n'
ASKED = CONNECT + b"SUB x.* 1\r\nUNSUB 1 1\r\nPING\r\n"
# The second message is one too many, the third has a subject without a subscription.
ANSWER = b"PONG\r\nMSG x.a 1 1\r\nm\r\nMSG x.b 1 1\r\nm\r\nMSG y 1 1\r\nm\r\n"
RULES = ["live-subscription", "live-subscription", "subject-matches"]


def faulty(peer: socket.socket) -> None:
    """A server that sends what it must not."""
    receive(peer, len(ASKED))
    peer.sendall(ANSWER)


def sound(peer: socket.socket) -> None:
    """A server that sends what it may."""
    receive(peer, len(ASKED))
    peer.sendall(ANSWER[:22])


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A faulty server's answers, recorded."""
    with (
        server(faulty) as url,
        recorded(url.replace("tcp", "nats"), tmp_path) as proxy,
        connect(proxy.relay.address) as client,
    ):
        client.sendall(ASKED)
        receive(client, len(ANSWER))
    return tmp_path


def test_a_capture_shows_what_the_traffic_broke(capture: Path) -> None:
    judge = CaptureJudge()
    found = [violation for row in read([capture]) for violation in judge.observe(row)]
    assert [violation.rule for violation in found] == RULES
    assert found[0].place.text == "< MSG x.b 1 1 | m"
    assert [place.text for place in found[0].earlier] == ["> SUB x.* 1", "> UNSUB 1 1"]


def test_show_prints_violations_and_ends_with_one(capture: Path) -> None:
    command = [sys.executable, "-m", "plumbline", "show", str(capture), "--violations"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S)
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("live-subscription: server broke CORE-088") == 2
    assert "message 2 after a PONG that came later than UNSUB" in done.stdout
    lines = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S
    )
    assert [json.loads(line)["rule"] for line in lines.stdout.splitlines()] == RULES


def test_show_of_sound_traffic_ends_with_zero(tmp_path: Path) -> None:
    with (
        server(sound) as url,
        recorded(url.replace("tcp", "nats"), tmp_path) as proxy,
        connect(proxy.relay.address) as client,
    ):
        client.sendall(ASKED)
        receive(client, len(ANSWER[:22]))
    command = [sys.executable, "-m", "plumbline", "show", str(tmp_path), "--violations"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S)
    assert (done.returncode, done.stdout) == (0, "")


def test_live_judge_matches_offline_and_ignores_older_files(capture: Path) -> None:
    (first,) = capture.iterdir()
    reported: list[Violation] = []
    live = RecordingJudge(first, "nats", reported.append)
    live.start()
    live.end()
    judge = CaptureJudge()
    afterwards = [violation for row in read([capture]) for violation in judge.observe(row)]
    assert reported == afterwards
    assert live.violation_count == len(RULES)
    later = first.with_name(first.name.replace("plumbline-", "plumbline-9"))
    later.write_bytes(first.read_bytes())
    only: list[Violation] = []
    live = RecordingJudge(later, "nats", only.append)
    live.start()
    live.end()
    assert len(only) == len(RULES)


def test_what_is_written_last_is_read(capture: Path) -> None:
    """All of a file is written just before the recording is over, as on a busy machine."""
    (file,) = capture.glob("*.pcapng")
    written = file.read_bytes()
    file.write_bytes(b"")
    source = CaptureSource([capture])

    def is_over() -> bool:
        file.write_bytes(written)
        return True

    assert len([*source.follow(is_over)]) == len([*CaptureSource([capture]).packets()]) > 0


def test_a_failure_of_live_judging_is_reported_and_raised_at_the_end(capture: Path) -> None:
    """Here it is the caller's, who cannot take a violation."""
    (first,) = capture.iterdir()
    error = RuntimeError("no room")
    reported: list[Exception] = []

    def refuse(_: Violation) -> None:
        raise error

    live = RecordingJudge(first, "nats", refuse, reported.append)
    live.start()
    with pytest.raises(RuntimeError, match="no room"):
        live.end()
    assert reported == [error]


def test_record_prints_violations_while_recording(tmp_path: Path) -> None:
    with server(faulty) as url:
        command = [sys.executable, "-m", "plumbline", "record", url.replace("tcp", "nats")]
        options = ["--listen", "127.0.0.1:0", "-o", str(tmp_path), "--live"]
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as recorder:
            assert recorder.stdout is not None
            address = recorder.stdout.readline().split()[0]
            with connect(Endpoint.parse(address)) as client:
                client.sendall(ASKED)
                receive(client, len(ANSWER))
                lines = iter(recorder.stdout.readline, "")
                seen = next(line for line in lines if line.startswith("subject-matches"))
            recorder.send_signal(signal.SIGINT)
            rest = recorder.stdout.read()
            assert recorder.wait(HANGS_AFTER_S) == 1
    assert "server broke CORE-083" in seen
    assert "3 violations" in rest
