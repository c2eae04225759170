"""``plumbline broker nats -sd DIR``, as a process: refusals, and the warning about a damaged end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_broker import broker, run
from tests.patience import HANGS_AFTER_S
from tests.reference_broker.test_durable import CREATE, GREETING

pytestmark = pytest.mark.slow  # make test-all runs it

LAYOUT = '{"layout":"plumbline.jetstream","version":2}\n'


def test_a_second_broker_on_one_folder_is_refused(tmp_path: Path) -> None:
    with broker("-p", "-1", "-sd", str(tmp_path)):
        ended = run("-p", "-1", "-sd", str(tmp_path))
    assert ended.returncode == 2
    assert "is in use by another broker (process" in ended.stderr


def test_a_newer_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jetstream").mkdir()
    (tmp_path / "jetstream/layout.json").write_text(LAYOUT)
    ended = run("-p", "-1", "-sd", str(tmp_path))
    assert ended.returncode == 2
    assert "version 2; this broker reads and writes 'plumbline.jetstream', version 1" in ended.stderr


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    ended = run("-sd", str(tmp_path), "--fsync", "sometimes")
    assert ended.returncode == 2
    assert "write always, interval or never" in ended.stderr


def test_a_policy_without_a_folder_is_refused() -> None:
    ended = run("-js", "-p", "-1", "--fsync", "always")
    assert ended.returncode == 2
    assert "--fsync needs --store_dir DIR" in ended.stderr


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
def test_a_damaged_end_is_a_warning_and_the_rest_is_there(tmp_path: Path, policy: str) -> None:
    messages = b"PUB f i 1\r\nx\r\n" * 3
    speak = (
        "import socket,sys,urllib.parse as u;a=u.urlsplit(sys.argv[1]);"
        "s=socket.create_connection((a.hostname,a.port));s.sendall(sys.stdin.buffer.read());"
        "d=b'';w=sys.argv[2].encode()\nwhile w not in d: d+=s.recv(65536)\nprint(d.decode())"
    )

    def say(line: str, data: bytes, until: str) -> str:
        command = [sys.executable, "-c", speak, line.split(maxsplit=1)[0], until]
        return subprocess.run(
            command, input=data, capture_output=True, timeout=HANGS_AFTER_S, check=True
        ).stdout.decode()

    with broker("-p", "-1", "-sd", str(tmp_path), "--fsync", policy) as (_, line):
        say(line, GREETING % (len(CREATE), CREATE) + messages, '"seq":3')
    (block,) = tmp_path.glob("jetstream/streams/F/msgs/*.blk")
    block.write_bytes(block.read_bytes()[:-5])
    command = [sys.executable, "-m", "plumbline", "broker", "nats", "-p", "-1"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "-sd", str(tmp_path)], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        warning = process.stderr.readline()
        info = b'CONNECT {"verbose":false}\r\nSUB i 1\r\nPUB $JS.API.STREAM.INFO.F i 0\r\n\r\n'
        shown = say(process.stdout.readline(), info, '"last_seq"')
        process.kill()
    assert warning.startswith("warning: streams/F/msgs/1.blk is damaged at byte")
    assert "stream 'F' has lost what was written there, from sequence 3 on" in warning
    assert '"messages":2' in shown
