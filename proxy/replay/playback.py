"""Replays the clients of a capture: sends each operation after the same answers have arrived.

A client's operation is sent when every connection has received as many operations as it had in the recording,
or ``PATIENCE_S`` later; with the recorded pauses in between, or without. What is of the run, such as the
subject of an acknowledgement or a delivery tag, is that of what comes now: ``nats``, ``amqp``. A connection
that its client ended is ended at the same place, so its subscriptions receive nothing that comes later.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterable
from enum import StrEnum

from plumbline.bounds import REPLAY_ARRIVALS, REPLAY_ARRIVED_BYTES, REPLAY_UNANSWERED
from plumbline.captures.operations import OperationRow
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.replay.amqp import AmqpClient
from plumbline.proxy.replay.client import (
    ReplayClient,
    ReplayCredentials,
    ReplayStoppedError,
    ServerUnreachableError,
    UnplayableCaptureError,
)
from plumbline.proxy.replay.nats import NatsClient
from plumbline.wire.sender import Direction

PATIENCE_S = 2.0  # for what came in the recording and does not come now
POLL_INTERVAL_S = 0.5  # between two looks whether a connection has to be kept alive
TIMES = 10  # what the recording has, a server may send without flooding
_ENDS = ("closed", "reset")  # remarks


class Pace(StrEnum):
    """With the pauses of the recording, or without."""

    ORIGINAL = "original"
    FAST = "fast"


class Replay:
    """One replay; ``late`` counts the operations that were sent although something was missing."""

    def __init__(self, server: Endpoint, login: ReplayCredentials, pace: Pace) -> None:
        self.sent = 0
        self.late = 0
        self._server = server
        self._login = login
        self._pace = pace
        self._names: dict[str, str] = {}  # that servers chose: then -> now
        self._clients: dict[int, ReplayClient] = {}
        self._selector = selectors.DefaultSelector()
        self._started = (0, 0.0)  # when the recording and the replay began
        self._unanswered = 0  # waits one after another that were in vain
        self._received = 0  # by all clients at the last one
        self._most = REPLAY_ARRIVALS  # operations of a server
        self._most_bytes = REPLAY_ARRIVED_BYTES

    def run(self, rows: Iterable[OperationRow]) -> None:
        """Sends what the clients of these rows sent. Raises ``ServerUnreachableError``,
        ``ReplayStoppedError`` and ``UnplayableCaptureError``."""
        try:
            for row in rows:
                if row.operation is not None:
                    self._row(row)
                elif row.direction is Direction.TO_SERVER and row.remark[0] in _ENDS:
                    self._end(row)
            self._wait()
        finally:
            for client in self._clients.values():
                client.socket.close()
            self._selector.close()

    def _row(self, row: OperationRow) -> None:
        client = self._client(row)
        if row.direction is Direction.TO_CLIENT:
            client.recorded(row.operation)
            self._most += TIMES
            self._most_bytes += TIMES * len(row.operation.raw)
            return
        if self._pace is Pace.ORIGINAL:
            self._wait_until(row.time)
        is_late = not self._wait()
        data = client.translated(row.operation)
        if data is not None:
            self.late += is_late
            client.send(data)
            self.sent += 1

    def _end(self, row: OperationRow) -> None:
        """The client ended its connection. Returns when the server has ended its side, too."""
        client = self._clients.get(row.connection.number)
        if client is None:
            return
        if self._pace is Pace.ORIGINAL:
            self._wait_until(row.time)
        self._wait()
        client.end()
        until = time.monotonic() + PATIENCE_S
        while not client.ended and self._receive(until):
            pass

    def _client(self, row: OperationRow) -> ReplayClient:
        number = row.connection.number
        if number not in self._clients:
            client = self._clients[number] = self._started_client(row)
            self._selector.register(client.socket, selectors.EVENT_READ, client)
            until = time.monotonic() + PATIENCE_S
            while not client.is_greeted and not client.ended and self._receive(until):
                pass
            if not client.is_greeted:
                raise ServerUnreachableError(f"no {client.greeting}: {client.ended or 'nothing came'}")
        return self._clients[number]

    def _started_client(self, row: OperationRow) -> ReplayClient:
        if row.dialect is not None and row.dialect.name == "amqp":
            try:
                return AmqpClient(self._server, self._login, row.operation, self._names)
            except UnplayableCaptureError as error:
                raise UnplayableCaptureError(f"connection {row.connection.number}: {error}") from None
        return NatsClient(self._server, self._login)

    # -- waiting -----------------------------------------------------------------------------

    def _wait(self) -> bool:
        """Until every connection has what it had then. False: something did not come in time."""
        until = time.monotonic() + PATIENCE_S
        while any(client.is_behind for client in self._clients.values()):
            if not self._receive(until):
                for client in self._clients.values():
                    client.stop_waiting()
                self._refuse_silence()
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
        for key, _ in self._selector.select(min(left, POLL_INTERVAL_S)):
            client: ReplayClient = key.data
            client.receive()
            if client.ended:
                self._selector.unregister(client.socket)
        self._refuse_flood()
        for client in self._clients.values():
            client.keep_alive()
        return True

    def _refuse_silence(self) -> None:
        """Counts a wait that was in vain, and nothing but such waits since an answer came."""
        received = sum(client.received_count for client in self._clients.values())
        self._unanswered = 1 if received > self._received else self._unanswered + 1
        self._received = received
        if self._unanswered == REPLAY_UNANSWERED:
            raise ReplayStoppedError(
                f"the server answers no more: {REPLAY_UNANSWERED} times nothing came within {PATIENCE_S:g} s"
            )

    def _refuse_flood(self) -> None:
        arrived = sum(client.arrived for client in self._clients.values())
        arrived_bytes = sum(client.arrived_bytes for client in self._clients.values())
        if arrived > self._most or arrived_bytes > self._most_bytes:
            raise ReplayStoppedError(f"the server floods: {arrived} operations, {arrived_bytes} bytes came")
