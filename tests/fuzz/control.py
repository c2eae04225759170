"""The control API of the proxy: any bytes on its connection are answered, or end it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from plumbline.captures.dialects import known
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.faults.control import ControlApi
from plumbline.proxy.faults.injection import Faults
from plumbline.proxy.faults.language import parse_fault
from tests.fuzz.target import Target

HEAD = (
    "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Type: application/json\r\n"
    "Content-Length: {size}\r\n\r\n"
)


class _AtOnce:
    """A loop that does in this thread what it is called for."""

    def call(self, action: Callable[[], None]) -> None:
        action()


class _Connection:
    """A socket that has received all it will, and keeps what is sent."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.sent = b""

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._data)

    def recv_into(self, buffer: bytearray) -> int:
        """Zero at the end."""
        taken, self._data = self._data[: len(buffer)], self._data[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)

    def sendall(self, data: bytes) -> None:
        self.sent += bytes(data)

    def settimeout(self, seconds: float | None) -> None:
        """Nothing is waited for here."""


_relay: Any = SimpleNamespace(
    loop=_AtOnce(),
    server=Endpoint.parse("nats://127.0.0.1:4222"),
    address=Endpoint.parse("127.0.0.1:1"),
    links=[],
)
_loop: Any = None
_FAULTS = Faults(_loop, known()["nats"], 0, lambda *_: None, lambda *_: None)
_CONTROL = ControlApi(_relay, _FAULTS, 0)
_CONTROL.close()  # its requests come from here


def control(data: bytes) -> None:
    """One connection."""
    _FAULTS.change({})
    sent = exchange(data)
    assert not sent.startswith((b"HTTP/1.1 500", b"HTTP/1.1 503")), sent[:200]
    for name, fault in _FAULTS.active.items():
        assert name
        assert parse_fault(fault.text).kind is fault.kind
    shown = _body(exchange(request("GET", "/faults")))
    assert shown == {name: fault.text for name, fault in _FAULTS.active.items()}
    proxies = _body(exchange(request("GET", "/proxies")))
    assert [toxic["name"] for toxic in proxies["nats"]["toxics"]] == list(_FAULTS.active)


def exchange(data: bytes) -> bytes:
    """What the API answers to these bytes."""
    connection: Any = _Connection(data)
    _CONTROL._server.RequestHandlerClass(connection, ("127.0.0.1", 1), _CONTROL._server)
    sent: bytes = connection.sent
    return sent


def request(method: str, path: str, body: object = None) -> bytes:
    """One request."""
    text = b"" if body is None else json.dumps(body).encode()
    return HEAD.format(method=method, path=path, size=len(text)).encode() + text


def _body(answer: bytes) -> Any:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def _seeds() -> list[bytes]:
    toxics = (
        {"type": "latency", "attributes": {"latency": 50, "jitter": 5}, "toxicity": 0.5},
        {"type": "bandwidth", "attributes": {"rate": 10}, "stream": "upstream"},
        {"type": "slicer"},
        {"type": "slow_close", "attributes": {"delay": 10}},
        {"type": "timeout", "attributes": {"timeout": 0}},
        {"type": "reset_peer"},
        {"type": "limit_data", "attributes": {"bytes": 9}},
        {"type": "fault", "name": "f", "attributes": {"fault": "drop PUB every 2nd"}},
    )
    add = request("POST", "/faults", {"name": "a", "fault": "latency 5ms"})
    return [
        add,
        add + request("POST", "/faults/a", {"fault": "drop PUB"}) + request("DELETE", "/faults/a"),
        request("POST", "/reset"),
        request("GET", "/connections"),
        request("GET", "/version"),
        *(request("POST", "/proxies/nats/toxics", toxic) for toxic in toxics),
        add
        + request("PATCH", "/proxies/nats/toxics/a", {"attributes": {"latency": 7}})
        + request("GET", "/proxies/nats/toxics/a")
        + request("DELETE", "/proxies/nats/toxics/a"),
    ]


WORDS = (
    b"GET ",
    b"POST ",
    b"DELETE ",
    b"PATCH ",
    b"/faults",
    b"/proxies/nats/toxics",
    b"/reset",
    b"Host: evil\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Origin: http://x\r\n",
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b"[]",
    b"{}",
    b'"\\ud800"',
    b"latency 1ns",
    b"bandwidth 1",
    b" on upstream",
    b" with 50%",
    b"every 1st",
    b"\r\n\r\n",
    b"Expect: 100-continue\r\n",
    b"99999999999999999999",
)
TARGETS = [Target("control", control, _seeds, WORDS, 500)]
