"""Brokers that freeze: from some connection on they answer nothing but the first steps of a client."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from math import inf
from urllib.parse import urlsplit

from tests.hostile.amqp_servers import method, methods
from tests.hostile.sockets import drained

Relay = Callable[[socket.socket, socket.socket], None]  # from a client to the broker, until it freezes
CONNECTION, CHANNEL = 10, 20  # classes of AMQP


class Freezing:
    """A relay before the healthy broker at ``url``. The first connections, and those after the last frozen
    one, are passed on whole; of the frozen ones only what ``relay`` passes on reaches the broker."""

    def __init__(self, url: str, relay: Relay, *, after: int, frozen: float = inf) -> None:
        place = urlsplit(url)
        self._broker = (str(place.hostname), place.port)
        self._relay = relay
        self._after = after
        self._frozen = frozen
        self._numbers = itertools.count(1)
        self.frozen_connections = 0

    def __call__(self, link: socket.socket) -> None:
        number = next(self._numbers)
        with socket.create_connection(self._broker) as broker:
            threading.Thread(target=_pass_on, args=(broker, link), daemon=True).start()
            if not self._after < number <= self._after + self._frozen:
                _pass_on(link, broker)
                return
            self.frozen_connections += 1
            self._relay(link, broker)
            drained(link).wait()


def nats_lines(*verbs: bytes) -> Relay:
    """The first lines of a client that have these verbs, and then nothing more."""

    def relay(link: socket.socket, broker: socket.socket) -> None:
        file = link.makefile("rb")
        while (line := file.readline()) and line.partition(b" ")[0].strip() in verbs:
            broker.sendall(line)

    return relay


def amqp_methods(*, of: Collection[int]) -> Relay:
    """The first methods of a client that are of these classes, and then nothing more."""

    def relay(link: socket.socket, broker: socket.socket) -> None:
        broker.sendall(b"AMQP\x00\x00\x09\x01")
        for channel, name, arguments in methods(link):
            if name[0] not in of:
                return
            broker.sendall(method(name, arguments, channel))

    return relay


def _pass_on(source: socket.socket, drain: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            drain.sendall(data)
    with suppress(OSError):
        drain.shutdown(socket.SHUT_RDWR)
