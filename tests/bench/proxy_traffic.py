"""The loads of ``tests.bench.proxy``: 128-byte messages through a NATS server. The clients cost little."""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import ExitStack
from statistics import median

Address = tuple[str, int]

PAYLOAD = b"x" * 128
MESSAGES = 600_000
BATCH = 500  # messages that are written together
ROUND_TRIPS = 3000
CLIENTS = 32
EXCHANGES = 20_000


class Client:
    """A raw NATS client that costs as little as it can."""

    def __init__(self, address: Address) -> None:
        self.link = socket.create_connection(address, timeout=60)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        received = b""
        while not received.endswith(b"PONG\r\n"):
            received += self.link.recv(65536)

    def ping(self) -> None:
        """All before has been taken by the server."""
        self.link.sendall(b"PING\r\n")
        if self.link.recv(65536) != b"PONG\r\n":
            raise RuntimeError("expected PONG")

    def take(self, size: int) -> None:
        """Reads so many bytes."""
        buffer = bytearray(1 << 20)
        while size:
            size -= self.link.recv_into(buffer, min(size, len(buffer)))


def rate(address: Address, messages: int = MESSAGES) -> float:
    """Messages a second from a publisher to a subscriber; whole batches, at least one."""
    batches = max(messages // BATCH, 1)
    messages = batches * BATCH
    subscriber, publisher = Client(address), Client(address)
    with subscriber.link, publisher.link:
        subscriber.link.sendall(b"SUB bench 1\r\n")
        subscriber.ping()
        batch = (b"PUB bench %d\r\n" % len(PAYLOAD) + PAYLOAD + b"\r\n") * BATCH

        def send() -> None:
            for _ in range(batches):
                publisher.link.sendall(batch)

        started = time.perf_counter()
        sender = threading.Thread(target=send)
        sender.start()
        subscriber.take(messages * len(b"MSG bench 1 %d\r\n" % len(PAYLOAD) + PAYLOAD + b"\r\n"))
        elapsed = time.perf_counter() - started
        sender.join()
    return messages / elapsed


def round_trip(address: Address, trips: int = ROUND_TRIPS) -> float:
    """Seconds until one's own message comes back: the median."""
    client = Client(address)
    with client.link:
        client.link.sendall(b"SUB own 1\r\n")
        client.ping()
        sent = b"PUB own %d\r\n" % len(PAYLOAD) + PAYLOAD + b"\r\n"
        size = len(b"MSG own 1 %d\r\n" % len(PAYLOAD) + PAYLOAD + b"\r\n")
        times = []
        for _ in range(trips):
            started = time.perf_counter()
            client.link.sendall(sent)
            client.take(size)
            times.append(time.perf_counter() - started)
    return median(times)


def exchanges(address: Address, count: int = EXCHANGES, clients: int = CLIENTS) -> tuple[float, float]:
    """Messages a second, and seconds of the median round trip: each of the clients sends its next message
    when it has its last one back, so that every message is a segment of its own."""
    with ExitStack() as running:
        poll = running.enter_context(select.epoll())
        places: dict[int, tuple[socket.socket, bytes, int]] = {}
        for number in range(clients):
            link = running.enter_context(Client(address).link)
            subject = b"own%03d" % number
            link.sendall(b"SUB %s 1\r\nPING\r\n" % subject)
            if link.recv(65536) != b"PONG\r\n":
                raise RuntimeError("expected PONG")
            sent = b"PUB %s %d\r\n%s\r\n" % (subject, len(PAYLOAD), PAYLOAD)
            size = len(b"MSG %s 1 %d\r\n%s\r\n" % (subject, len(PAYLOAD), PAYLOAD))
            places[link.fileno()] = link, sent, size
            poll.register(link.fileno(), select.EPOLLIN)
        times: list[float] = []
        sent_at, left = {}, {}
        began = time.perf_counter()
        for number, (link, sent, size) in places.items():
            sent_at[number], left[number] = time.perf_counter(), size
            link.sendall(sent)
        while len(times) < count:
            for number, _ in poll.poll():
                link, sent, size = places[number]
                left[number] -= len(link.recv(65536))
                if left[number] <= 0:
                    now = time.perf_counter()
                    times.append(now - sent_at[number])
                    sent_at[number], left[number] = now, size
                    link.sendall(sent)
        return len(times) / (time.perf_counter() - began), median(times)
