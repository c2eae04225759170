"""The same bytes to a real nats-server and to the reference broker of its level: the same answers.

The scripts are data, ``scripts.toml``. After each segment the client PINGs and reads up to the PONG or the
end, so that what a segment caused is seen before the next; the other clients are read at the end.
"""

from __future__ import annotations

import json
import socket
import tomllib
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from plumbline.wire.nats import Decoder, Info, Msg, Operation, Pong, Sender

SCRIPTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("scripts.toml").read_text())
QUIET = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
# The rest of INFO identifies the server, or is the work of its language.
INFO_FIELDS = [
    *("version", "proto", "host", "headers", "auth_required", "max_payload", "jetstream", "client_ip"),
    *("connect_info", "remote_account", "api_lvl"),
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_answers_are_those_of_the_real_server(name: str, server_binary: ServerBinary) -> None:
    config, scripts = SCRIPTS[name]["config"], SCRIPTS[name]["scripts"]
    broker = NatsBroker.in_thread(**config, level=server_binary.version)
    with NatsServer(server_binary.path, config) as server, broker as url:
        real = {script: play(server.url, text) for script, text in scripts.items()}
        ours = {script: play(url, text) for script, text in scripts.items()}
    assert ours == real


@pytest.mark.parametrize("size", [4095, 4096, 4097, 9000])
def test_the_longest_control_line_is_that_of_the_real_server(size: int, server_binary: ServerBinary) -> None:
    line = f"1 IN\n1 PUB {'a' * (size - 2)} 1\n1 x"
    broker = NatsBroker.in_thread(level=server_binary.version)
    with NatsServer(server_binary.path, {"jetstream": False}) as server, broker as url:
        assert play(url, line) == play(server.url, line)


def play(url: str, script: str) -> dict[str, list[str]]:
    """What each client got."""
    lines = [line.partition(" ") for line in script.strip("\n").split("\n")]
    with ExitStack() as running:
        clients = {
            name: running.enter_context(Peer(url)) for name in dict.fromkeys(line[0] for line in lines)
        }
        for name, segment in groupby(lines, key=lambda line: line[0]):
            clients[name].ask("".join(f"{_spelled(text)}\r\n" for _, _, text in segment).encode())
        for client in clients.values():
            client.ask(b"")
        return {name: client.heard() for name, client in clients.items()}


def _spelled(line: str) -> str:
    verb, _, fields = line.partition(" ")
    return "CONNECT " + json.dumps({**QUIET, **json.loads(fields or "{}")}) if verb == "IN" else line


class Peer:
    """A raw client."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port), timeout=5)
        self._decoder = Decoder(Sender.SERVER)
        self._operations: list[Operation] = []
        self._pongs = 0
        self._ended = False

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()

    def ask(self, data: bytes) -> None:
        """Send, then read until everything before is answered, or the server closes."""
        segment = data + b"PING\r\n"
        self._pongs += sum(line.upper().startswith(b"PING") for line in segment.split(b"\r\n"))
        try:
            self._socket.sendall(segment)
            while not self._ended and sum(isinstance(one, Pong) for one in self._operations) < self._pongs:
                received = self._socket.recv(65536)
                self._ended = not received
                self._operations += self._decoder.feed(received)
        except ConnectionError:
            self._ended = True

    def heard(self) -> list[str]:
        """One text per operation; messages in a row are sorted.

        The order in which the subscriptions of one connection get a message is the server's affair.
        """
        texts: list[str] = []
        for is_message, run in groupby(self._operations, key=lambda one: isinstance(one, Msg)):
            lines = [_text(operation) for operation in run]
            texts += sorted(lines) if is_message else lines
        return texts + ["<closed>"] * self._ended


def _text(operation: Operation) -> str:
    if isinstance(operation, Info):
        fields = {name: operation.fields.get(name) for name in INFO_FIELDS}
        # A level is a minor version; the broker has one patch release of each.
        fields["version"] = ".".join(str(fields["version"]).split(".")[:2])
        return "INFO " + json.dumps(fields)
    return str(operation)
