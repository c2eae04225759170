"""The addon in a real mitmproxy: content views, and our capture."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
import pytest

from plumbline.captures.files import read
from plumbline.proxy.addresses import Endpoint
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.servers.nats.nats_server import NatsServer
from tests.captures.test_amqp_trace import connected, get
from tests.captures.test_trace_writer import COMMAND
from tests.conftest import servers_required
from tests.patience import HANGS_AFTER_S
from tests.proxy.peers import connect, echo, receive, server

UNBUFFERED = {**os.environ, "PYTHONUNBUFFERED": "1"}  # mitmdump's lines come as it prints them
MITMDUMP = Path(sys.executable).with_name("mitmdump")


@pytest.fixture(scope="module")
def addon() -> str:
    if not MITMDUMP.exists():
        reason = "no mitmproxy beside this Python: pip install 'plumbline-mq[mitm]'"
        if servers_required():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    done = subprocess.run(
        [*COMMAND, "mitm-addon"], capture_output=True, text=True, check=True, timeout=HANGS_AFTER_S
    )
    return done.stdout.strip()


class Mitm:
    """A mitmdump that runs."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address

    def end(self) -> str:
        """What it printed, once it has ended."""
        self.process.terminate()
        return self.process.communicate(timeout=HANGS_AFTER_S)[0]


@contextmanager
def mitmdump(addon: str, server: str, home: Path, *options: str) -> Iterator[Mitm]:
    """Before ``server``, on a port of its own."""
    command = [str(MITMDUMP), "--mode", f"reverse:tcp://{server}", "--listen-host", "127.0.0.1", "-p", "0"]
    command += ["-s", addon, "--set", f"confdir={home}", "--set", "flow_detail=3", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home, env=UNBUFFERED
    ) as process:
        assert process.stdout is not None
        try:
            printed = []
            for line in process.stdout:
                printed.append(line)
                if found := re.search(r"listening at 127\.0\.0\.1:(\d+)", line):
                    yield Mitm(process, f"127.0.0.1:{found[1]}")
                    return
            raise AssertionError("".join(printed))
        finally:
            process.kill()


def test_a_nats_session_is_shown_and_recorded(addon: str, nats_server: NatsServer, tmp_path: Path) -> None:
    async def talk(url: str) -> None:
        async with await nats.connect(url, user="ann", password="s3cr3t") as client:
            came = await client.subscribe("a.*")
            await client.publish("a.b", b"hello", headers={"A": "b"})
            await came.next_msg(HANGS_AFTER_S)

    server = nats_server.url.removeprefix("nats://")
    captures = tmp_path / "captures"
    with mitmdump(addon, server, tmp_path, "--set", f"plumbline_capture={captures}") as mitm:
        asyncio.run(talk(f"nats://{mitm.address}"))
        shown = mitm.end()
    assert "HPUB a.b" in shown, shown
    assert "HMSG a.b 1" in shown
    rows = list(read([captures]))
    verbs = [row.fields["op"] for row in rows if row.number and row.fields["op"] not in ("PING", "PONG")]
    assert verbs[:2] == ["INFO", "CONNECT"]
    assert [verb for verb in verbs[2:] if verb != "INFO"] == ["SUB", "HPUB", "HMSG"]
    assert [row.fields["op"] for row in rows][-1] == "closed"
    assert b"s3cr3t" not in b"".join(path.read_bytes() for path in captures.iterdir())


def test_an_amqp_session_is_shown_and_recorded(addon: str, tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    with AmqpBroker.in_thread() as url:
        server = url.partition("@")[2].partition("/")[0]
        options = ["--set", f"plumbline_capture={captures}", "--set", "plumbline_protocol=amqp"]
        with mitmdump(addon, server, tmp_path, *options) as mitm:
            with connected(f"amqp://{mitm.address}") as channel:
                channel.queue_declare("ORDERS", auto_delete=True)
                channel.basic_publish("", "ORDERS", b"x" * 100_000)
                assert len(get(channel, "ORDERS")[2]) == 100_000
            shown = mitm.end()
    assert '[1] basic.publish exchange="" routing_key="ORDERS"' in shown, shown
    assert "bytes of an incomplete operation)" in shown
    methods = [row.fields["op"] for row in read([captures]) if row.number]
    assert methods[:2] == ["protocol-header", "connection.start"]
    assert methods.count("basic.publish") == methods.count("basic.get-ok") == 1
    assert methods[-1] == "connection.close-ok"


def test_unknown_protocol_has_no_view(addon: str, tmp_path: Path) -> None:

    with server(echo) as url, mitmdump(addon, url.removeprefix("tcp://"), tmp_path) as mitm:
        with connect(Endpoint.parse(mitm.address)) as client:
            client.sendall(b"GET / of nothing known")
            assert receive(client, 22) == b"GET / of nothing known"
        shown = mitm.end()
    assert "GET / of nothing known" in shown
    # mitmproxy prints a traceback for each of its own tasks that it cancels at its end.
    assert "mitm_addon.py" not in shown
