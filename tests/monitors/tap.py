"""Something to record with: relays connections to a server and shows a watch what crossed."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from plumbline.monitors import MonitorRunner, Observation, Violation
from plumbline.wire import amqp, nats
from plumbline.wire.errors import ProtocolError
from plumbline.wire.sender import Sender


class Tap:
    """Between clients and ``url``. ``violations`` and ``operations`` are those of its watch."""

    def __init__(self, url: str, watch: MonitorRunner) -> None:
        self.upstream = (urlsplit(url).hostname or "", urlsplit(url).port or 4222)
        self.codec = amqp if url.startswith("amqp") else nats
        self.watch = watch
        self.violations: list[Violation] = []
        self.operations = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = url.replace(f":{self.upstream[1]}", f":{self.port}")
        self.connections = 0

    def serve(self) -> None:
        """Accept until the listener is closed."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.relay, args=(client, str(self.connections)), daemon=True).start()

    def relay(self, client: socket.socket, name: str) -> None:
        """Forward both directions until one side closes."""
        try:
            server = socket.create_connection(self.upstream)
        except OSError:
            client.close()
            return
        recording = _Recording(self, name)
        with selectors.DefaultSelector() as waiting, client, server:
            waiting.register(client, selectors.EVENT_READ, (Sender.CLIENT, server))
            waiting.register(server, selectors.EVENT_READ, (Sender.SERVER, client))
            while waiting.get_map():
                for key, _ in waiting.select():
                    side, (sender, other) = key.fileobj, key.data
                    assert isinstance(side, socket.socket)
                    try:
                        data = side.recv(65536)
                        # Seen before it is passed on, so that both directions keep their order.
                        recording.show(data, sender)
                        other.sendall(data)
                        if not data:
                            waiting.unregister(side)
                            other.shutdown(socket.SHUT_WR)
                    except OSError:
                        return


class _Recording:
    """What a tap decodes of one connection."""

    def __init__(self, tap: Tap, name: str) -> None:
        self.tap = tap
        self.name = name
        self.index = 0
        self.decoders = {sender: tap.codec.Decoder(sender) for sender in Sender}

    def show(self, data: bytes, sender: Sender) -> None:
        """Nothing is decoded behind what a decoder refused."""
        if sender not in self.decoders:
            return
        try:
            operations = self.decoders[sender].feed(data)
        except ProtocolError:
            del self.decoders[sender]
            return
        with self.tap.lock:
            for operation in operations:
                self.index += 1
                self.tap.operations += 1
                seen = Observation(operation, sender, self.name, self.index, time.time_ns())
                self.tap.violations += self.tap.watch.observe(seen)


@contextmanager
def tapped(url: str) -> Iterator[Tap]:
    """A tap before ``url`` that runs until the block ends."""
    tap = Tap(url, MonitorRunner())
    threading.Thread(target=tap.serve, daemon=True).start()
    try:
        yield tap
    finally:
        tap.listener.close()
