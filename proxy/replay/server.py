"""Replays the server of a capture for real clients: each client gets the recorded answers.

The n-th client to connect is the n-th of the recording. What the server sent after some operation of the
client is sent when the client has sent one like it, in whatever order; a message that another client caused,
when that one has sent what it had sent then. What is of the run is translated: ``serving``.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator, Sequence

from plumbline.bounds import REPLAY_ARRIVED_BYTES
from plumbline.captures.operations import OperationRow
from plumbline.proxy.addresses import Endpoint, listening_socket
from plumbline.proxy.replay.answers import AmqpServerReplay, NatsServerReplay, ServerReplay
from plumbline.proxy.replay.playback import TIMES, Pace
from plumbline.wire.sender import Direction

FIRST_CLIENT_S = 60.0
PATIENCE_S = 10.0  # for what clients sent then and do not send now
POLL_INTERVAL_S = 0.05


class _ReplayedConversation:
    """One connection of the recording, and the client that has its place."""

    def __init__(self, rows: Sequence[tuple[int, OperationRow]], speaker: ServerReplay) -> None:
        self.rows = rows  # with their places in the whole recording
        self.at = 0
        self.speaker = speaker
        self.client: socket.socket | None = None
        self.ended = False
        self.ready = 0.0  # when the next row may be sent
        self.most_bytes = REPLAY_ARRIVED_BYTES + TIMES * sum(len(row.operation.raw) for _, row in rows)

    @property
    def number(self) -> int:
        return self.rows[0][1].connection.number

    @property
    def is_done(self) -> bool:
        return self.at == len(self.rows) or self.ended

    def has_received_up_to(self, place: int) -> bool:
        """Whether the client has sent what it had sent when the recording was there."""
        if self.is_done:
            return True
        return not any(
            number < place and row.direction is Direction.TO_SERVER for number, row in self.rows[self.at :]
        )


class ReplayedServer:
    """Listens from construction on, on a port of its own."""

    def __init__(self, rows: Sequence[OperationRow], pace: Pace) -> None:
        self.sent_count = 0
        self.accepted = 0
        self.unheard: list[str] = []  # what no client sent, and clients that flooded
        self._pace = pace
        self._conversations = list(_conversations(rows))
        self._waiting = list(self._conversations)  # for a client
        self._listener = listening_socket(Endpoint("tcp", "127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._moved = 0.0  # when something last happened

    @property
    def address(self) -> Endpoint:
        """Where it listens."""
        return Endpoint("tcp", *self._listener.getsockname()[:2])

    @property
    def clients(self) -> int:
        """How many it waits for."""
        return len(self._conversations)

    def run(self) -> None:
        """Until all has been sent, or nothing has happened for ``PATIENCE_S``."""
        self._moved = time.monotonic() + FIRST_CLIENT_S - PATIENCE_S
        try:
            while not all(one.is_done for one in self._conversations):
                if time.monotonic() > self._moved + PATIENCE_S:
                    self.unheard += [_describe_stuck(one) for one in self._conversations if not one.is_done]
                    break
                self._turn()
            self._close_clients()
        finally:
            for one in self._conversations:
                if one.client is not None:
                    one.client.close()
            self._listener.close()
            self._selector.close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(POLL_INTERVAL_S):
            self._moved = max(self._moved, time.monotonic())
            if key.data is None:
                self._accept()
            else:
                self._receive(key.data)
        for one in self._conversations:
            if one.client is not None and not one.ended:
                self._send(one, one.speaker.keep_alive())
                self._send_due(one)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if not self._waiting:
            client.close()  # the recording has no more
            return
        self.accepted += 1
        one = self._waiting.pop(0)
        client.settimeout(PATIENCE_S)
        one.client = client
        self._selector.register(client, selectors.EVENT_READ, one)

    def _receive(self, one: _ReplayedConversation) -> None:
        assert one.client is not None
        try:
            data = one.client.recv(1 << 18)
        except OSError:
            data = b""
        one.most_bytes -= len(data)
        if one.most_bytes < 0:
            self.unheard.append(f"connection {one.number}: the client floods, and was closed")
        if not data or one.most_bytes < 0:
            self._end(one)
            one.client.close()
            return
        self._send(one, one.speaker.receive(data))

    def _send(self, one: _ReplayedConversation, data: bytes) -> None:
        """Writes. A client that is gone, or does not read in time, has ended."""
        assert one.client is not None
        try:
            one.client.sendall(data)
        except OSError:
            self._end(one)

    def _end(self, one: _ReplayedConversation) -> None:
        if one.client is not None and not one.ended:
            one.ended = True
            self._selector.unregister(one.client)

    def _send_due(self, one: _ReplayedConversation) -> None:
        """Sends what can be sent now."""
        while not one.is_done and time.monotonic() >= one.ready:
            place, row = one.rows[one.at]
            if row.direction is Direction.TO_SERVER:
                if not one.speaker.has_received(row.operation):
                    return
            elif not one.speaker.may_send(row.operation):
                return
            else:
                is_caused = one.speaker.is_delivery(row.operation)
                if is_caused and not all(other.has_received_up_to(place) for other in self._conversations):
                    return
                self._send(one, one.speaker.translated(row.operation))
                self.sent_count += 1
            self._moved = max(self._moved, time.monotonic())
            one.at += 1
            if self._pace is Pace.ORIGINAL and not one.is_done:
                one.ready = time.monotonic() + (one.rows[one.at][1].time - row.time) / 1e9

    def _close_clients(self) -> None:
        """The clients may hear the last of it, and hang up."""
        until = time.monotonic() + PATIENCE_S / 10
        while time.monotonic() < until and not all(one.ended for one in self._conversations):
            self._turn()


def _describe_stuck(one: _ReplayedConversation) -> str:
    _, row = one.rows[one.at]
    if one.client is None:
        return f"connection {one.number}: no client came for it"
    return f"connection {one.number}, operation {row.number}: waited in vain for {row}"


def _conversations(rows: Sequence[OperationRow]) -> Iterator[_ReplayedConversation]:
    of_each: dict[int, list[tuple[int, OperationRow]]] = {}
    for place, row in enumerate(rows):
        if row.operation is not None:
            of_each.setdefault(row.connection.number, []).append((place, row))
    for some in of_each.values():
        dialect = some[0][1].dialect
        speaker = AmqpServerReplay() if dialect is not None and dialect.name == "amqp" else NatsServerReplay()
        yield _ReplayedConversation(
            [pair for pair in some if speaker.is_recorded_traffic(pair[1].operation)], speaker
        )
