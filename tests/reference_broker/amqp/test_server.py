"""The AMQP broker on a socket and as a command: what only they can get wrong."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from plumbline.reference_broker.amqp.defects import all_defects
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.amqp.storage.records import JOURNAL
from plumbline.wire.amqp import PROTOCOL_HEADER, Method
from tests.certificates import Certificates
from tests.patience import HANGS_AFTER_S
from tests.reference_broker.amqp.player import Player

COMMAND = [sys.executable, "-m", "plumbline", "broker", "amqp"]


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *flags], capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False
    )


def hang_up(player: Player) -> None:
    for link in player.links.values():
        link.socket.close()


def test_the_url_is_where_it_listens() -> None:
    with AmqpBroker.in_thread(users={"u": "p"}, vhosts=("a/b",)) as url:
        parts = urlsplit(url)
        assert (parts.scheme, parts.username, parts.password, parts.path) == ("amqp", "u", "p", "/a%2fb")


def test_a_connection_over_tls_ends_with_the_broker(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    pair = {"certfile": str(certificates.pem("server")), "keyfile": str(certificates.key("server"))}
    running = AmqpBroker.in_thread(tls=pair)
    context = ssl.create_default_context(cafile=str(certificates.pem("ca")))
    address = urlsplit(running.start())
    with (
        socket.create_connection((address.hostname, address.port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.sendall(PROTOCOL_HEADER)
        assert secure.recv(1)
        running.stop()  # which waits for its connections
        while secure.recv(4096):
            pass


@pytest.mark.parametrize("is_durable", [False, True])
def test_stop_sends_connection_close(is_durable: bool, tmp_path: Path) -> None:
    running = AmqpBroker.in_thread(data_dir=str(tmp_path) if is_durable else None)
    player = Player(running.start())
    player.connect()
    running.stop()
    player.end(within=5)
    hang_up(player)
    assert player.log == [
        "a< [0] connection.close reply_code=320 reply_text=CONNECTION_FORCED - broker forced connection "
        "closure with reason 'shutdown' class_id=0 method_id=0",
        "a< closed",
    ]


def test_slow_consumer_does_not_block_others() -> None:
    count, body = 3000, "x" * 10_000
    running = AmqpBroker.in_thread(max_pending=200_000)
    with running as url:
        player = Player(url)
        player.connect("slow", 1)
        player.connect("quick", 2)
        player.ask("queue.declare", 1, "quick", queue="q")
        player.ask("basic.consume", 1, "slow", queue="q", consumer_tag="c", no_ack=True)
        data = Method.make("basic.publish", 1, routing_key="q", body=body.encode()).raw * count
        player.links["quick"].send(data)
        (answer,) = player.ask("queue.declare", 2, "quick", queue="q", passive=True)
        assert isinstance(answer, Method)
        waiting = answer.arguments["message_count"]
        assert waiting > count // 2
        got = len(player.take(count, "slow", within=30))
        assert got == count
        hang_up(player)


def test_a_hundred_thousand_channels_are_refused_and_others_go_on() -> None:
    with AmqpBroker.in_thread() as url:
        player = Player(url)
        player.connect("greedy", 0)
        player.connect("modest")
        opens = [Method.make("channel.open", number % 65535 + 1).raw for number in range(100_000)]
        player.links["greedy"].send(b"".join(opens))
        *opened, refusal = player.take(2048, "greedy", within=20)
        assert len(opened) == 2047
        assert isinstance(refusal, Method)
        assert (refusal.method, refusal.arguments["reply_code"]) == ("connection.close", 530)
        assert [one.method for one in player.ask("basic.qos", 1, "modest")] == ["basic.qos-ok"]
        hang_up(player)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_cleanly(number: signal.Signals) -> None:
    with subprocess.Popen([*COMMAND, "-p", "-1"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("amqp://guest:guest@127.0.0.1:")
        process.send_signal(number)
        assert process.wait(HANGS_AFTER_S) == 0


def test_the_command_lists_defects() -> None:
    listed = run("--list-defects")
    assert listed.returncode == 0
    assert all(one.name in listed.stdout and one.summary in listed.stdout for one in all_defects())


def test_an_unknown_defect_and_a_port_in_use_are_usage_errors() -> None:
    unknown = run("--defect", "any-password-is-wrong")
    assert (unknown.returncode, "did you mean" in unknown.stderr) == (2, True)
    with AmqpBroker.in_thread() as url:
        taken = run("-p", str(urlsplit(url).port))
    assert (taken.returncode, "choose another port with -p" in taken.stderr) == (2, True)


def test_two_brokers_do_not_share_a_folder(tmp_path: Path) -> None:
    with AmqpBroker.in_thread(data_dir=str(tmp_path)):
        other = run("-p", "-1", "-d", str(tmp_path))
    assert (other.returncode, "in use by another broker" in other.stderr) == (2, True)


def test_damaged_journal_is_reported(tmp_path: Path) -> None:
    with AmqpBroker.in_thread(data_dir=str(tmp_path)) as url:
        player = Player(url)
        player.connect()
        player.queue("q", durable=True)
        hang_up(player)
    with (tmp_path / JOURNAL).open("ab") as journal:
        journal.write(b"cut off")
    command = [*COMMAND, "-p", "-1", "-d", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        player = Player(process.stdout.readline().split()[0])
        player.connect()
        assert [one.method for one in player.ask("queue.declare", queue="q", passive=True)] == [
            "queue.declare-ok"
        ]
        hang_up(player)
        process.terminate()
        assert "its last 7 bytes are left out" in process.stderr.read()
