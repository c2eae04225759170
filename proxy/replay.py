"""The clients of a NATS capture once more: what they sent, when they have what they had then.

A client's operation is sent when every connection has received as many operations as it had in the recording,
or ``PATIENCE_S`` later; with the recorded pauses in between, or without. Subjects of acknowledgements are
those of the messages that come now, at the same place of the same subscription. Secrets, which a capture does
not have, are the caller's.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from proxy.addresses import Endpoint
from proxy.nats_dialect import LIMITS
from proxy.operations import Row
from proxy.pipe import Direction
from proxy.redaction import MASK, SECRETS
from wire.errors import ProtocolError
from wire.nats import Connect, Decoder, HMsg, HPub, Info, Msg, Operation, Ping, Pong, Pub, Sender

PATIENCE_S = 2.0  # for what came in the recording and does not come now
UNCOUNTED = (Info, Ping, Pong)  # which come when time has passed


class Pace(StrEnum):
    """With the pauses of the recording, or without."""

    ORIGINAL = "original"
    FAST = "fast"


class Unreachable(Exception):
    """No server answers; the message says which, and why."""


class _Client:
    """One connection, live. ``came`` counts operations, as ``expected`` does in the recording."""

    def __init__(self, number: int, server: Endpoint) -> None:
        family, address = server.resolve()[0]
        self.number = number
        self.socket = socket.socket(family)
        self.expected = 0
        self.came = 0
        self.ended = ""
        self.is_greeted = False
        self._decoder = Decoder(Sender.SERVER, LIMITS)
        self._recorded: defaultdict[str, list[str | None]] = defaultdict(list)  # replies of messages, by sid
        self._live: defaultdict[str, list[str | None]] = defaultdict(list)
        try:
            self.socket.connect(address)  # type: ignore[arg-type] # as getaddrinfo gave it
        except OSError as error:
            self.socket.close()
            raise Unreachable(f"{server}: {error.strerror or error}") from None

    def recorded(self, operation: Operation) -> None:
        """The recording has this at this place."""
        if not isinstance(operation, UNCOUNTED):
            self.expected += 1
        if isinstance(operation, Msg | HMsg):
            self._recorded[operation.sid].append(operation.reply)

    def receive(self) -> None:
        """Takes what there is."""
        try:
            data = self.socket.recv(1 << 18)
            operations = self._decoder.feed(data)
        except OSError as error:
            self.ended = error.strerror or str(error)
            return
        except ProtocolError as error:
            self.ended, operations = str(error), list(error.operations)
        if not data:
            self.ended = self.ended or "closed by the server"
        for operation in operations:
            self.is_greeted = self.is_greeted or isinstance(operation, Info)
            if isinstance(operation, Ping):
                self.send(Pong.make().raw)
            if not isinstance(operation, UNCOUNTED):
                self.came += 1
            if isinstance(operation, Msg | HMsg):
                self._live[operation.sid].append(operation.reply)

    def send(self, data: bytes) -> None:
        """Writes, if the server is still there."""
        if not self.ended:
            try:
                self.socket.sendall(data)
            except OSError as error:
                self.ended = error.strerror or str(error)

    def rebound(self, subject: str) -> str:
        """The subject to which what was sent to ``subject`` is sent now."""
        for sid, replies in self._recorded.items():
            if subject in replies:
                at = len(replies) - 1 - replies[::-1].index(subject)
                now = self._live[sid]
                return (now[at] if at < len(now) else None) or subject
        return subject


class Replay:
    """One replay; ``late`` counts the operations that were sent although something was missing."""

    def __init__(self, server: Endpoint, credentials: dict[str, str], pace: Pace) -> None:
        self.sent = 0
        self.late = 0
        self._server = server
        self._credentials = credentials
        self._pace = pace
        self._clients: dict[int, _Client] = {}
        self._selector = selectors.DefaultSelector()
        self._started = (0, 0.0)  # when the recording and the replay began

    @property
    def came(self) -> Counter[int]:
        """How many operations each connection received, without INFO, PING and PONG."""
        return Counter({number: client.came for number, client in self._clients.items()})

    def run(self, rows: Iterable[Row]) -> None:
        """Sends what the clients of these rows sent. Raises ``Unreachable``."""
        try:
            for row in rows:
                if isinstance(row.operation, Operation):
                    self._row(row, row.operation)
            self._wait()
        finally:
            for client in self._clients.values():
                client.socket.close()
            self._selector.close()

    def _row(self, row: Row, operation: Operation) -> None:
        client = self._client(row.connection.number)
        if row.direction is Direction.TO_CLIENT:
            client.recorded(operation)
            return
        if isinstance(operation, Pong):
            return
        if self._pace is Pace.ORIGINAL:
            self._wait_until(row.time)
        if not self._wait():
            self.late += 1
        client.send(self._again(client, operation))
        self.sent += 1

    def _client(self, number: int) -> _Client:
        if number not in self._clients:
            client = self._clients[number] = _Client(number, self._server)
            self._selector.register(client.socket, selectors.EVENT_READ, client)
            until = time.monotonic() + PATIENCE_S
            while not client.is_greeted and not client.ended and self._receive(until):
                pass
            if not client.is_greeted:
                raise Unreachable(f"no INFO: {client.ended or 'nothing came'}")
        return self._clients[number]

    def _again(self, client: _Client, operation: Operation) -> bytes:
        """The bytes for now; those of the recording, where nothing is of the run."""
        if isinstance(operation, Connect):
            return Connect.make(_with(operation.fields, self._credentials)).raw
        if isinstance(operation, Pub | HPub) and operation.subject.startswith("$JS.ACK."):
            subject = client.rebound(operation.subject)
            line = operation.raw[: operation.head].replace(operation.args[0], subject.encode(), 1)
            return line + operation.raw[operation.head :]
        return operation.raw

    # -- waiting -----------------------------------------------------------------------------

    def _wait(self) -> bool:
        """Until every connection has what it had then. False: something did not come in time."""
        until = time.monotonic() + PATIENCE_S
        while any(client.came < client.expected and not client.ended for client in self._clients.values()):
            if not self._receive(until):
                for client in self._clients.values():
                    client.expected = min(client.expected, client.came)  # it is waited for only once
                return False
        return True

    def _wait_until(self, recorded: int) -> None:
        if not self._started[0]:
            self._started = (recorded, time.monotonic())
        until = self._started[1] + (recorded - self._started[0]) / 1e9
        while self._receive(until):
            pass

    def _receive(self, until: float) -> bool:
        """Takes what comes; False when ``until`` has passed."""
        left = until - time.monotonic()
        if left <= 0:
            return False
        for key, _ in self._selector.select(left):
            client: _Client = key.data
            client.receive()
            if client.ended:
                self._selector.unregister(client.socket)
        return True


def _with(fields: dict[str, Any], credentials: dict[str, str]) -> dict[str, Any]:
    """CONNECT without what was masked, and with what is known."""
    masked = {name for name in fields if name in SECRETS and not set(str(fields[name])) - {chr(MASK)}}
    return {name: value for name, value in fields.items() if name not in masked} | credentials


def credentials_of(userinfo: str) -> dict[str, str]:
    """``user:pass`` or a token, as it stands in a URL."""
    if not userinfo:
        return {}
    user, colon, password = userinfo.partition(":")
    return {"user": user, "pass": password} if colon else {"auth_token": user}
