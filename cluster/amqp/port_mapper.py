"""A port mapper (epmd) for each node: it answers where the other nodes are: at their relays.

An Erlang node asks the port mapper of its own machine for the port of another node, and connects there. With
a port mapper of its own, each node gets another answer, and all connections between nodes pass relays.
Source: Erlang, "ERTS User's Guide", "Distribution Protocol", "EPMD Protocol".
"""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress

ALIVE2, ALIVE2_ANSWER = 120, 118
PORT_PLEASE2, PORT2_ANSWER = 122, 119
NAMES = 110
CREATION = 1
NORMAL_NODE, TCP, HIGHEST, LOWEST = 77, 0, 6, 5
UNKNOWN = 1


class PortMapper:
    """The port mapper of one node, from construction until ``stop``. ``ports``: by names without the host,
    those of relays for other nodes."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._server = _Server(("127.0.0.1", 0), _Request)
        self._server.ports = dict(ports)
        self._server.creations = {}
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Idempotent."""
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    ports: dict[str, int]
    creations: dict[str, int]  # tells a node from an earlier one of its name
    creation = CREATION


class _Request(socketserver.StreamRequestHandler):
    """One request; a registration holds as long as its connection."""

    server: _Server

    def handle(self) -> None:
        size = self.rfile.read(2)
        body = self.rfile.read(int.from_bytes(size)) if len(size) == 2 else b""
        match body[:1]:
            case b"x":
                self._register(body)
            case b"z":
                self.wfile.write(_port_answer(body[1:].decode(), self.server.ports))
            case b"n":
                lines = [f"name {name} at port {port}\n" for name, port in self.server.ports.items()]
                self.wfile.write(self.server.server_address[1].to_bytes(4) + "".join(lines).encode())
            case _:
                pass

    def _register(self, body: bytes) -> None:
        port, _, _, _, _, length = struct.unpack_from(">HBBHHH", body, 1)
        name = body[11 : 11 + length].decode()
        self.server.ports[name] = port
        self.server.creation = mine = self.server.creation + 1
        self.server.creations[name] = mine
        self.wfile.write(struct.pack(">BBI", ALIVE2_ANSWER, 0, mine))
        with suppress(OSError):
            self.rfile.read()  # until the node ends
        if self.server.creations[name] == mine:
            self.server.ports.pop(name, None)


def _port_answer(name: str, ports: Mapping[str, int]) -> bytes:
    port = ports.get(name)
    if port is None:
        return bytes([PORT2_ANSWER, UNKNOWN])
    text = name.encode()
    versions = struct.pack(">BBHBBHH", PORT2_ANSWER, 0, port, NORMAL_NODE, TCP, HIGHEST, LOWEST)
    return versions + len(text).to_bytes(2) + text + bytes(2)
