"""``plumbline show``: text, JSON lines, following, and captures that others made."""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from plumbline.captures.operations import OperationReader, OperationRow
from plumbline.captures.segments import ACK, Address, Segment
from plumbline.proxy.record import recorded
from tests.patience import HANGS_AFTER_S
from tests.proxy.peers import PATIENCE_S, connect, echo, receive, server

COMMAND = [sys.executable, "-m", "plumbline", "show"]


def show(*arguments: str, code: int = 0) -> list[str]:
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S
    )
    assert done.returncode == code, done.stderr
    return (done.stdout + done.stderr).splitlines()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A client's PUB and PING, recorded."""
    with (
        server(lambda peer: [peer.recv(1 << 20), receive(peer, 1)]) as url,
        recorded(url.replace("tcp", "nats"), tmp_path) as proxy,
        connect(proxy.relay.address) as client,
    ):
        client.sendall(b"PUB ORDERS.new _INBOX.a 4\r\n\xffabc\r\nPING\r\n")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    return tmp_path


def test_text(capture: Path) -> None:
    lines = show(str(capture))
    clocks = [re.fullmatch(r"(\d\d:\d\d:\d\d\.\d{9})  1 (.*)", line) for line in lines]
    shown = [found[2] for found in clocks if found]
    assert shown[0].startswith("! opened: 127.0.0.1:")
    assert shown[1:3] == ["> PUB ORDERS.new _INBOX.a 4 | \\xffabc", "> PING"]
    assert sorted(shown[3:]) == ["! closed (client)", "! closed (server)"]


def test_json_lines_and_a_filter(capture: Path) -> None:
    (line,) = show(str(capture), "--json", "--filter", 'subject ~ "ORDERS.*"')
    found = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", found.pop("time"))
    assert found == {
        "connection": 1, "number": 1, "sender": "client", "op": "PUB", "size": 33, "subject": "ORDERS.new",
        "reply": "_INBOX.a", "payload_base64": "/2FiYw==",
    }  # fmt: skip


def test_follow_shows_new_operations(tmp_path: Path) -> None:
    with server(echo) as url, recorded(url.replace("tcp", "nats"), tmp_path, roll_bytes=2000) as proxy:
        command = [*COMMAND, str(tmp_path), "--follow", "--filter", "op = PUB and sender = client"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            with connect(proxy.relay.address) as client:
                for number in range(100):  # over several files
                    client.sendall(b"PUB a 3\r\n%03d\r\n" % number)
                    receive(client, 14)
                    assert process.stdout.readline().rstrip().endswith(f"> PUB a 3 | {number:03}")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0


def test_a_classic_capture_with_a_lost_and_a_doubled_segment(tmp_path: Path) -> None:
    def packet(seq: int, data: bytes) -> bytes:
        tcp = struct.pack("!HHIIBBHHH", 40000, 4222, seq, 1, 0x50, 0x18, 1000, 0, 0) + data
        ip = (
            struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
            + tcp
        )
        frame = bytes(12) + b"\x08\x00" + ip
        return struct.pack("<IIII", 1, 0, len(frame), len(frame)) + frame

    place = tmp_path / "other.pcap"
    first, lost, second = b"PUB a 1\r\nx\r\nPUB b 5\r\nhe", b"llo\r\nPU", b"B c 1\r\ny\r\nPUB d 1\r\nz\r\n"
    packets = [packet(1, first), packet(1, first), packet(1 + len(first + lost), second)]
    place.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(packets))
    lines = [line.partition(" 1 ")[2] or line for line in show(str(place))]
    assert lines == [
        "! opened: 10.0.0.1:40000 to 10.0.0.2:4222, first seen in its middle",
        "> PUB a 1 | x",
        "! lost: 7 bytes are not in the capture (client)",
        "! entered: 10 bytes passed over (client)",
        "> PUB d 1 | z",
        "plumbline: 7 bytes lost, 0 places that could not be decoded",
    ]


def test_a_stream_that_is_no_protocol_is_passed_over_in_linear_time() -> None:
    place, peer = Address("10.0.0.1", 4222), Address("10.0.0.2", 40000)
    reader = OperationReader("nats")
    noise = b"\x17\x03\x03no protocol at all\r\n" * 40
    found: list[OperationRow] = []
    seq = 1
    for number in range(2000):
        data = b"PUB a 3\r\nabc\r\nPING\r\n" if number == 1999 else noise
        found += reader.feed(Segment(peer, place, seq, 1, ACK, data, 0, 0, ()))
        seq += len(data)
    assert [row.fields["op"] for row in found] == ["opened", "entered", "PUB", "PING"]
    assert found[1].remark[1] == f"{len(noise) * 1999} bytes passed over"


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcapng"
    empty.touch()
    assert show(str(empty)) == [
        f"plumbline: {empty}: the file is empty",
        "plumbline: no operations of NATS or AMQP were found",
    ]


def test_a_folder_of_folders_names_those_with_captures(tmp_path: Path) -> None:
    inner = tmp_path / "nats"
    inner.mkdir()
    (inner / "a.pcapng").touch()
    message = f"plumbline: {tmp_path}: no capture files found; give a folder inside it: {inner}"
    assert show(str(tmp_path), code=2) == [message]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        ([__file__], "not a capture file: it starts with "),
        (["."], ".: no capture files found"),
        ([__file__, "--filter", "op ="], "expected a value"),
        ([__file__, "--protocol", "mqtt"], "--protocol mqtt: known are nats, amqp"),
    ],
)
def test_unreadable_capture_is_usage_error(arguments: list[str], message: str, tmp_path: Path) -> None:
    assert any(message in line for line in show(*arguments, code=2))
