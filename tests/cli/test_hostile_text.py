"""Text of servers, clients, captures and adapters acts on no terminal and on no CI runner."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from plumbline.cli.main import app
from plumbline.proxy.record import recorded
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.reports import FORMATS
from plumbline.wire.amqp import PROTOCOL_HEADER, Decoder, Method, Sender
from plumbline.wire.nats import Connect, HPub, Ping, Pub, Sub
from tests.conformance.scripted import scripted

HOSTILE = "\x1b[31m\x1b]0;pwn\x07\x00\x9b1m\x7f\u202e\u2066\u2028\ufeff\r\n::error::pwned\n##[error]pwned\t"
ON_A_LINE = HOSTILE.replace("\r\n", " ").replace("\n", " ")
TOKEN = re.sub(r"\s", "", HOSTILE).replace("\u2028", "").replace("\0", "")  # of a subject
PRINTED = {".json", ".trace"}
BINARY = {".pcapng", ".png"}


def run(*arguments: str | Path) -> Result:
    """A command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def assert_harmless(text: str, where: object) -> None:
    """No control or bidi character but line ends and tabs, no lone surrogate, no command."""
    bad = {char for char in text if not char.isprintable() and char not in "\n\t"}
    assert not bad, (where, bad)
    text.encode()


def assert_no_command(text: str, where: object) -> None:
    """Nothing that a CI runner carries out when it is printed."""
    assert not re.search(r"^\s*::error", text, re.MULTILINE), where
    assert "##[error]" not in text, where


def assert_all_harmless(folder: Path, *ended: Result) -> None:
    for one in ended:
        assert one.exception is None or isinstance(one.exception, SystemExit), one.exception
        assert_harmless(one.stdout, "stdout")
        assert_harmless(one.stderr, "stderr")
        assert_no_command(one.stdout + one.stderr, "printed")
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in BINARY:
            assert_harmless(path.read_text("utf-8"), path)
            if path.suffix in PRINTED:
                assert_no_command(path.read_text("utf-8"), path)


def refusing(link: socket.socket) -> None:
    """A NATS server that refuses the login."""
    link.sendall(b'INFO {"server_id":"X","version":"2.10.0","headers":true}\r\n')
    link.recv(4096)
    link.sendall(f"-ERR '{ON_A_LINE}'\r\n".encode())
    link.recv(4096)


def no_server(link: socket.socket) -> None:
    link.sendall(f"{ON_A_LINE}\r\n".encode())
    link.recv(4096)


def no_level(link: socket.socket) -> None:
    """A NATS server whose version is no version."""
    info = {"server_id": "X", "server_name": HOSTILE, "version": HOSTILE, "headers": True}
    link.sendall(Connect.make(info).raw.replace(b"CONNECT", b"INFO"))
    while data := link.recv(4096):
        if b"PING" in data:
            link.sendall(b"PONG\r\n" * data.count(b"PING"))


def refusing_amqp(link: socket.socket) -> None:
    """An AMQP server that refuses the login."""
    link.recv(4096)
    start: dict[str, Any] = {
        "version_major": 0,
        "version_minor": 9,
        "server_properties": {"product": HOSTILE},
    }
    link.sendall(Method.make("connection.start", **start, mechanisms=b"PLAIN", locales=b"en_US").raw)
    link.recv(4096)
    reply = HOSTILE.encode()[:200].decode("utf-8", "ignore")
    link.sendall(Method.make("connection.close", reply_code=403, reply_text=reply).raw)
    link.recv(4096)


@pytest.mark.parametrize("server", [refusing, no_server, no_level])
@pytest.mark.parametrize("command", ["verify", "explore"])
def test_a_refusal_is_one_harmless_line(
    command: str, server: Callable[[socket.socket], None], tmp_path: Path
) -> None:
    with scripted(server) as url:
        ended = run(command, url)
    assert ended.exit_code in (2, 3)
    assert len(ended.stderr.splitlines()) == 1
    assert "pwn" in ended.stderr
    assert_all_harmless(tmp_path, ended)


def test_a_refusal_of_amqp_is_one_harmless_line(tmp_path: Path) -> None:
    with scripted(refusing_amqp) as url:
        ended = run("verify", f"amqp://{url.rpartition('/')[2]}")
    assert ended.exit_code in (2, 3)
    assert len(ended.stderr.splitlines()) == 1
    assert "\\n\\x3a:error::pwned" in ended.stderr
    assert_all_harmless(tmp_path, ended)


def test_reports_of_a_server_with_a_hostile_name_are_harmless(tmp_path: Path) -> None:
    reports = [f"--{name}={tmp_path / name}" for name in FORMATS]
    with NatsBroker.in_thread(server_name=HOSTILE, jetstream=True, defect=["info-has-proto-0"]) as url:
        ended = run("verify", url, "--select=CORE-00[1-4]", "-n", "0", *reports)
        explored = run("explore", url, "--examples=1", "--seed=1", "-o", tmp_path / "explored")
    assert ended.exit_code == 1, ended.stderr
    assert "\\x1b]0;pwn" in ended.stdout
    assert_all_harmless(tmp_path, ended, explored)


def nats_traffic(url: str, folder: Path, text: str) -> None:
    """A recording of a client that subscribes and publishes."""
    with recorded(url, folder) as proxy, socket.create_connection(_place(proxy.url)) as client:
        subject = f"a.{TOKEN}"
        client.sendall(
            Connect.make({"name": text, "headers": True}).raw + Sub.make("a.*", text[:1] or "1").raw
        )
        client.sendall(Pub.make(subject, text.encode()).raw)
        client.sendall(HPub.make(subject, [("a", ON_A_LINE)], text.encode()).raw + Ping.make().raw)
        received = b""
        while b"PONG" not in received:
            received += client.recv(65536)


def amqp_traffic(url: str, folder: Path, text: str) -> None:
    """A recording of a client that declares, publishes and consumes."""
    name = re.sub("[\r\n]", "", text)  # as RabbitMQ has it
    with recorded(url, folder) as proxy, socket.create_connection(_place(proxy.url)) as client:
        client.sendall(PROTOCOL_HEADER)
        arrived = _methods(client)
        login: dict[str, Any] = {
            "client_properties": {"connection_name": text},
            "mechanism": "PLAIN",
            "locale": "en_US",
        }
        steps = [
            ("connection.start", Method.make("connection.start-ok", response="\0guest\0guest", **login)),
            ("connection.tune", Method.make("connection.tune-ok", channel_max=9, frame_max=131072)),
            ("", Method.make("connection.open", virtual_host="/")),
            ("connection.open-ok", Method.make("channel.open", 1)),
            ("channel.open-ok", Method.make("queue.declare", 1, queue=name)),
            ("queue.declare-ok", Method.make("basic.consume", 1, queue=name, consumer_tag=name[:50])),
            (
                "basic.consume-ok",
                Method.make(
                    "basic.publish", 1, routing_key=name, body=text.encode(), properties={"type": name}
                ),
            ),
        ]
        for awaited, answer in steps:
            while awaited and next(arrived).method != awaited:
                pass
            client.sendall(answer.raw)
        while next(arrived).method != "basic.deliver":
            pass


def _methods(link: socket.socket) -> Iterator[Method]:
    decoder = Decoder(Sender.SERVER)
    while data := link.recv(65536):
        for operation in decoder.feed(data):
            assert isinstance(operation, Method)
            yield operation


def _place(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition("/")[2].rpartition(":")
    return host, int(port)


@pytest.mark.parametrize("protocol", ["nats", "amqp"])
def test_commands_that_read_captures_are_harmless(protocol: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    first, second = tmp_path / "first", tmp_path / "second"
    broker = NatsBroker.in_thread() if protocol == "nats" else AmqpBroker.in_thread()
    record = nats_traffic if protocol == "nats" else amqp_traffic
    with broker as url:
        record(url, first, f"1{HOSTILE}")
        record(url, second, f"2{HOSTILE}")
    ended = [
        run("show", first),
        run("show", first, "--json"),
        run("show", first, "--violations"),
        run("diff", first, second, "--json", out / "d.json", "--html", out / "d.html"),
        run("trace", first, "--connection", "1", "--title", HOSTILE),
        run("trace", first, "--connection", "1", "-o", out / "t.trace"),
        run("audit", first, "--json", out / "a.json"),
        run("audit", first, second),
    ]
    assert "pwn" in ended[0].stdout
    assert_all_harmless(out, *ended)


ADAPTER = f"""
import sys
sys.stderr.write({HOSTILE!r} * 3)
sys.stderr.flush()
print({ON_A_LINE!r})
"""


def test_what_an_adapter_writes_is_harmless(tmp_path: Path) -> None:
    (tmp_path / "adapter.py").write_text(ADAPTER.encode("ascii", "backslashreplace").decode())
    ended = run("gate", "--", sys.executable, tmp_path / "adapter.py")
    assert ended.exit_code in (2, 3)
    assert "pwn" in ended.stderr
    assert_all_harmless(tmp_path / "none", ended)
    assert all(line.startswith(("plumbline: ", "  | ")) for line in ended.stderr.splitlines())
