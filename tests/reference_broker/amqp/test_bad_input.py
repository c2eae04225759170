"""Bad input over sockets, on the reference broker and RabbitMQ alike: the right close code, and nothing else.

Each connection that misbehaves has a neighbour, which goes on. The reference broker prints no traceback.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.wire.amqp import Method, ProtocolHeader, frame
from tests.patience import HANGS_AFTER_S
from tests.reference_broker.amqp.player import Player

COMMAND = [sys.executable, "-m", "plumbline", "broker", "amqp", "-p", "-1"]
CLOSED_WITHIN_S = 15.0  # RabbitMQ leaves some sockets open for three seconds
CHANNELS = 2047  # what both propose


@dataclass
class Server:
    """One of the two. ``log`` is what the reference broker prints."""

    url: str
    log: Path | None = None


@pytest.fixture(params=["reference", "rabbitmq"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "rabbitmq":
        node: RabbitMQ = request.getfixturevalue("rabbitmq")
        yield Server(node.url)
        return
    log = tmp_path / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        yield Server(process.stdout.readline().split()[0], log)
        process.terminate()
        output = process.stdout.read()
        assert process.wait(HANGS_AFTER_S) == 0
    assert "Traceback" not in log.read_text() + output


@dataclass
class Case:
    """``sends`` misbehaves on an open connection of that name, whose limits are ``tune``."""

    sends: Callable[[Player], None]
    code: int
    class_and_method: tuple[int, int] = (0, 0)
    tune: dict[str, int] = field(default_factory=dict)


def _frame_end(player: Player) -> None:
    player.raw(Method.make("basic.qos", 1).raw[:-1] + b"\xcd", "bad")


def _large_frame(player: Player) -> None:
    player.raw(frame(1, 1, bytes(4200)), "bad")  # RabbitMQ lets the eight octets around a payload pass


def _closed_channel(player: Player) -> None:
    player.ask("channel.close", 1, "bad", reply_code=200, reply_text="bye")
    player.send("basic.qos", 1, "bad", prefetch_count=1)


def _lying_table(player: Player) -> None:
    whole = Method.make("queue.declare", 1, queue="q", arguments={"a": 1}).raw
    payload = bytearray(whole[7:-1])
    (length,) = struct.unpack(">I", payload[9:13])
    assert length == len(payload) - 13
    payload[9:13] = struct.pack(">I", 2**31)
    player.raw(frame(1, 1, bytes(payload)), "bad")


def _lying_frame(player: Player) -> None:
    player.raw(struct.pack(">BHI", 1, 1, 2**31) + b"x" * 100, "bad")


CASES = {
    "a frame that does not end with 0xCE": Case(_frame_end, 501),
    "a frame larger than was agreed": Case(_large_frame, 501, tune={"frame_max": 4096}),
    "a frame that announces 2 GB": Case(_lying_frame, 501),
    "a method on a channel that was closed": Case(_closed_channel, 504, (60, 10)),
    "a table with a length that is a lie": Case(_lying_table, 501, (50, 10)),
}


@pytest.fixture
def player(server: Server) -> Iterator[Player]:
    """With a connection that does nothing wrong."""
    player = Player(server.url)
    player.connect("neighbour")
    yield player
    for link in player.links.values():
        link.socket.close()


def _goes_on(player: Player) -> None:
    (answer,) = player.ask("basic.qos", 1, "neighbour", prefetch_count=1)
    assert answer.method == "basic.qos-ok"
    player.connect("fresh")


@pytest.mark.parametrize("name", CASES)
def test_bad_input_closes_one_connection_with_reply_code(player: Player, name: str) -> None:
    case = CASES[name]
    player.connect("bad", **case.tune)
    case.sends(player)
    close = next(
        one for one in player.take(1, "bad", within=CLOSED_WITHIN_S) if one.method == "connection.close"
    )
    assert isinstance(close, Method)
    assert close.arguments["reply_code"] == case.code
    assert (close.arguments["class_id"], close.arguments["method_id"]) == case.class_and_method
    _goes_on(player)


@pytest.mark.parametrize("header", [b"AMQP\x00\x01\x00\x00", b"AMQP\x00\x00\x09\x07", b"GET / HT"], ids=repr)
def test_wrong_protocol_header_is_answered_with_the_right_one(player: Player, header: bytes) -> None:
    player.dial("bad")
    player.raw(header, "bad")
    (answer,) = player.take(1, "bad")
    assert answer == ProtocolHeader.make()
    player.end("bad", CLOSED_WITHIN_S)
    assert player.links["bad"].ended
    _goes_on(player)


def test_hundred_thousand_channels_are_refused(player: Player) -> None:
    player.connect("bad", 0)
    opens = [Method.make("channel.open", number % 65535 + 1).raw for number in range(100_000)]
    player.links["bad"].send(b"".join(opens))
    came = player.take(CHANNELS + 1, "bad", within=200)
    (refusal,) = [one for one in came if one.method != "channel.open-ok"]
    assert isinstance(refusal, Method)
    assert (refusal.method, refusal.arguments["reply_code"]) == ("connection.close", 530)
    assert len(came) <= CHANNELS + 1
    _goes_on(player)
