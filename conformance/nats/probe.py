"""The liveness probe of a NATS server: reads INFO and measures PING round trips."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Mapping
from typing import Any

from plumbline.conformance.limits import OBJECT_PREFIX
from plumbline.conformance.nats.grants import Grants, grants_of
from plumbline.conformance.targets.links import Link, open_link
from plumbline.conformance.targets.urls import AccessRefusedError, NatsUrl
from plumbline.errors import TargetUnreachable
from plumbline.passwords import VARIABLE
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import (
    Connect,
    Decoder,
    Err,
    HMsg,
    Info,
    Msg,
    Operation,
    Ping,
    Pong,
    Pub,
    Sender,
    Sub,
)
from plumbline.wire.nats.jetstream import API_PREFIX

SPEAK_FIRST_S = 1.5  # how long a NATS server may take to send INFO (it speaks first)
ANSWER_S = 2.0  # also on a machine that does much else
PROBE_S = 8.0  # all of a probe: what answers every second byte in time is no target either
ROUND_TRIPS_S = 1.0  # of a slow target fewer round trips are measured

FEATURES = ("headers", "jetstream", "auth_required", "tls_required", "tls_available", "nonce")


_FOR_TLS = "(and --tls-ca FILE if its certificate authority is not one of the system's)"


def identity(info: Mapping[str, Any]) -> Any:
    """What stays the same while a target lives; behind one address there may be all servers of a cluster."""
    return info.get("cluster") or info.get("server_id")


# docs.nats.io, "Client Protocol", CONNECT: what an ordinary client of today asks for.
CONNECT_DEFAULTS: dict[str, Any] = {
    "verbose": False,
    "pedantic": False,
    "lang": "plumbline",
    "version": "0",
    "protocol": 1,
    "headers": True,
    "no_responders": True,
}


def probe(link: Link, url: NatsUrl, round_trips: int, pause_s: float) -> tuple[dict[str, Any], list[float]]:
    """INFO's fields, and the round trips of some PINGs in seconds, over a fresh connection.

    Raises ``TargetUnreachable`` or ``AccessRefusedError``; ``OSError`` if the peer breaks off.
    """
    try:
        return _greet(link, url, round_trips, pause_s)
    except ProtocolError as error:
        if error.excerpt.startswith(b"HTTP/"):
            raise TargetUnreachable(f"{url.address} speaks HTTP, not NATS.") from None
        raise TargetUnreachable(f"{url.address} does not speak NATS: {error}.") from None


def _greet(link: Link, url: NatsUrl, round_trips: int, pause_s: float) -> tuple[dict[str, Any], list[float]]:
    deadline = time.monotonic() + PROBE_S
    reader = _Reader(link, url, deadline)
    try:
        first = reader.next(SPEAK_FIRST_S)
    except TimeoutError:
        # An HTTP server waits for a request: an answer to this tells it from one that is silent.
        link.sendall(b"PING\r\n\r\n")
        _info_of(_late(reader, url), url)
        # A NATS server that was only late takes the empty line for an error: it is greeted anew.
        with open_link(url) as again:
            reader = _Reader(again, url, deadline)
            return _connect(again, reader, url, _late(reader, url), round_trips, pause_s)
    return _connect(link, reader, url, first, round_trips, pause_s)


def _late(reader: _Reader, url: NatsUrl) -> Operation:
    """What comes first, after all."""
    try:
        return reader.next(ANSWER_S)
    except TimeoutError:
        raise TargetUnreachable(
            f"{url.address} accepts connections but sends no data; a NATS server sends INFO first."
        ) from None


def _connect(
    link: Link, reader: _Reader, url: NatsUrl, first: Operation, round_trips: int, pause_s: float
) -> tuple[dict[str, Any], list[float]]:
    info = _info_of(first, url)
    if info.get("tls_required") and url.tls is None and not url.is_web:
        raise AccessRefusedError(f"{url} requires TLS: write tls://{url.address} {_FOR_TLS}")
    headers = bool(info.get("headers"))  # a server without headers refuses who asks for no_responders
    credentials = url.credentials(str(info.get("nonce") or ""))
    connect = {**CONNECT_DEFAULTS, "headers": headers, "no_responders": headers, **credentials}
    _send(link, Connect.make(connect))
    return info, _round_trips(link, reader, url, round_trips, pause_s)


def _info_of(first: Operation, url: NatsUrl) -> dict[str, Any]:
    """What a server says of itself, first of all."""
    if not isinstance(first, Info):
        raise TargetUnreachable(f"{url.address} does not speak NATS; it sent first: {str(first)[:80]!r}.")
    return first.fields


def ask_grants(link: Link, url: NatsUrl) -> Grants:
    """What this login may do with JetStream, over a fresh connection; nothing known if it is not answered.

    Raises ``OSError`` if the peer breaks off, ``TargetUnreachable``, and ``AccessRefusedError`` if there is
    no API with the prefix that was given.
    """
    reader = _Reader(link, url, time.monotonic() + PROBE_S)
    inbox = f"{url.inbox_prefix}.{OBJECT_PREFIX}{secrets.token_hex(8)}"
    try:
        first = reader.next(ANSWER_S)
        nonce = str(first.fields.get("nonce") or "") if isinstance(first, Info) else ""
        connect = Connect.make({**CONNECT_DEFAULTS, **url.credentials(nonce)})
        _send(link, connect, Sub.make(inbox, 1), Pub.make(f"{url.api_prefix}.INFO", b"", inbox))
        while not isinstance(operation := reader.next(ANSWER_S), Msg | Err):
            if isinstance(operation, Ping):
                _send(link, Pong.make())
            if isinstance(operation, HMsg) and url.api_prefix != API_PREFIX:
                raise AccessRefusedError(
                    f"{url}: nothing answers at {url.api_prefix}.INFO: "
                    "give another --js-domain or --js-api-prefix"
                )
    except (TimeoutError, ProtocolError):
        return Grants()
    if isinstance(operation, Err):
        return Grants(no_jetstream=operation.message)  # it may not even ask
    return grants_of(operation.payload)


def _round_trips(link: Link, reader: _Reader, url: NatsUrl, count: int, pause_s: float) -> list[float]:
    until = time.monotonic() + ROUND_TRIPS_S
    found = [_round_trip(link, reader, url, pause_s)]
    while len(found) < count and time.monotonic() < until:
        found.append(_round_trip(link, reader, url, pause_s))
    return found


def _round_trip(link: Link, reader: _Reader, url: NatsUrl, pause_s: float) -> float:
    began = time.monotonic() + pause_s
    time.sleep(pause_s)
    _send(link, Ping.make())
    while True:
        try:
            operation = reader.next(ANSWER_S)
        except TimeoutError:
            raise TargetUnreachable(f"{url.address} does not answer PING within {ANSWER_S:.0f} s.") from None
        if isinstance(operation, Pong):
            return time.monotonic() - began
        if isinstance(operation, Ping):
            _send(link, Pong.make())
        if isinstance(operation, Err):
            raise AccessRefusedError(
                f"{url} refuses the connection: {operation.message}. "
                f"Write the credentials into the URL: nats://user:password@{url.address}, "
                f"or the password into {VARIABLE}; for an NKey or a JWT use --nkey FILE or --creds FILE."
            )


def _send(link: Link, *operations: Operation) -> None:
    """Write them. If the server has closed already, what it sent before is still to be read: no error."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        link.sendall(b"".join(operation.raw for operation in operations))


class _Reader:
    """Operations one at a time from a blocking socket, each within a deadline."""

    def __init__(self, link: Link, url: NatsUrl, deadline: float) -> None:
        self._link = link
        self._url = url
        self._deadline = deadline
        self._decoder = Decoder(Sender.SERVER)
        self._ready: list[Operation] = []
        self._spoke = False

    def next(self, within: float) -> Operation:
        """Raises ``TimeoutError``, ``ProtocolError``, ``TargetUnreachable`` (closed)."""
        deadline = min(time.monotonic() + within, self._deadline)
        while (left := deadline - time.monotonic()) > 0 and not self._ready:
            self._link.settimeout(left)
            data = b""
            with contextlib.suppress(ConnectionResetError):  # closed, with some of what we sent unread
                data = self._link.recv(65536)
            if not data:
                raise TargetUnreachable(f"{self._url.address} closes the connection {self._when()}.")
            try:
                self._ready = self._decoder.feed(data)
            except ProtocolError as error:
                if not error.operations:
                    raise
                self._ready = list(error.operations)
        if left <= 0:  # also of a peer that never stops talking
            raise TimeoutError
        self._spoke = True
        return self._ready.pop(0)

    def _when(self) -> str:
        return "before it answers PING" if self._spoke else "without a word of NATS"
