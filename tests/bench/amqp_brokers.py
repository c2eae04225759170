"""The reference AMQP broker beside RabbitMQ, in turn: ``python -m tests.bench.amqp_brokers [RUNS]``.

Publishing with confirms (all pipelined, 100 B, transient, classic queue), consuming with one ack for each
delivery at prefetch 100, and the time from the start of the process to the first open connection. The client
is the same for both: a socket and frames that were made beforehand. Targets: publishing at least 0.8 times,
consuming at least as quick as RabbitMQ, starting at least 20 times quicker.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from plumbline.servers.amqp.rabbitmq import RabbitMQ, rabbitmq_server
from plumbline.servers.nats.nats_server import MissingServer
from plumbline.wire.amqp import PROTOCOL_HEADER, Decoder, Method, Sender
from tests.bench.command_line import runs_asked

MESSAGES = 10_000
BODY = b"x" * 100
PREFETCH = 100
COMMAND = [sys.executable, "-m", "plumbline", "broker", "amqp", "-p", "-1"]
# As they begin on the wire: frame type, channel 1; then the method in a frame.
_HEAD = struct.Struct(">BHI")
_ACK = bytes.fromhex("003c0050")
_DELIVER = bytes.fromhex("003c003c")
_TAG = struct.Struct(">Q")


class Client:
    """One connection with channel 1 open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.decoder = Decoder(Sender.SERVER)
        self.socket.sendall(PROTOCOL_HEADER)
        self.read(1)
        self.ask("connection.start-ok", 0, mechanism="PLAIN", response="\0guest\0guest", locale="en_US")
        self.socket.sendall(
            Method.make("connection.tune-ok", 0, channel_max=2047, frame_max=131072, heartbeat=0).raw
        )
        self.ask("connection.open", 0, virtual_host="/")
        self.ask("channel.open", 1)

    def read(self, count: int) -> None:
        while count > 0:
            count -= len(self.decoder.feed(self.socket.recv(65536)))

    def ask(self, method: str, channel: int = 1, **arguments: Any) -> None:
        self.socket.sendall(Method.make(method, channel, **arguments).raw)
        self.read(1)

    def frames(self) -> Iterator[bytes]:
        """The payload of each frame that comes."""
        held = b""
        while data := self.socket.recv(1 << 18):
            held += data
            at, size = 0, len(held)
            while at + 7 <= size:
                end = at + 8 + _HEAD.unpack_from(held, at)[2]
                if end > size:
                    break
                yield held[at + 7 : end - 1]
                at = end
            held = held[at:]

    def publish(self) -> float:
        """Messages a second, from the first publish to the last confirm."""
        self.ask("confirm.select")
        data = Method.make("basic.publish", 1, routing_key="bench", body=BODY).raw * MESSAGES
        started = time.perf_counter()
        sending = threading.Thread(target=self.socket.sendall, args=(data,))
        sending.start()
        confirmed = 0
        for payload in self.frames():
            if payload.startswith(_ACK):
                (tag,) = _TAG.unpack_from(payload, 4)
                confirmed = tag if payload[12] & 1 else confirmed + 1
                if confirmed >= MESSAGES:
                    break
        took = time.perf_counter() - started
        sending.join()
        return MESSAGES / took

    def consume(self) -> float:
        """Messages a second, from basic.consume to the last delivery; each is acknowledged."""
        self.ask("basic.qos", prefetch_count=PREFETCH)
        acks = [Method.make("basic.ack", 1, delivery_tag=tag + 1).raw for tag in range(MESSAGES)]
        started = time.perf_counter()
        self.socket.sendall(Method.make("basic.consume", 1, queue="bench", consumer_tag="c").raw)
        got = acked = 0
        for payload in self.frames():
            if payload.startswith(_DELIVER):
                got += 1
                if got - acked >= PREFETCH // 4 or got == MESSAGES:
                    self.socket.sendall(b"".join(acks[acked:got]))
                    acked = got
                if got == MESSAGES:
                    break
        return MESSAGES / (time.perf_counter() - started)


def once(url: str) -> tuple[float, float]:
    """Both rates."""
    publisher, consumer = Client(url), Client(url)
    publisher.ask("queue.declare", queue="bench", auto_delete=True)
    rates = publisher.publish(), consumer.consume()
    publisher.socket.close()
    consumer.socket.close()
    return rates


@contextmanager
def reference() -> Iterator[str]:
    """The URL of a reference broker in a process of its own."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[0]
        finally:
            process.terminate()


def start_of_reference() -> float:
    """Seconds until a connection is open."""
    started = time.perf_counter()
    with reference() as url:
        Client(url).socket.close()
        return time.perf_counter() - started


def start_of(node: RabbitMQ) -> float:
    """The same for RabbitMQ."""
    started = time.perf_counter()
    node.start()
    Client(node.url).socket.close()
    return time.perf_counter() - started


def print_line(
    name: str, unit: str, ours: list[float], theirs: list[float], better: Callable[[float], float]
) -> None:
    """A line of the table."""
    shown = [
        " ".join(f"{value:10,.2f}" for value in (min(one), median(one), max(one))) for one in (ours, theirs)
    ]
    print(f"{name:24} {unit:6} {shown[0]}   {shown[1]}   {better(median(ours) / median(theirs)):6.2f}")


def main() -> None:
    """Prints a table."""
    runs = runs_asked(__doc__, 5)
    binary = rabbitmq_server()
    if isinstance(binary, MissingServer):
        print(f"skipped: {binary}")
        return
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    node = RabbitMQ(binary.path)
    try:
        their_start = start_of(node)
        our_start = [start_of_reference() for _ in range(runs)]
        with reference() as url:
            for _ in range(runs + 1):  # the first is a warm-up
                theirs.append(once(node.url))
                ours.append(once(url))
    finally:
        node.stop()
    print(f"RabbitMQ {binary.version}; {runs} runs of {MESSAGES} messages of {len(BODY)} bytes")
    print(f"{'':31} {'reference: min, median, max':>32}   {'RabbitMQ: min, median, max':>32}   ratio")
    rates = [[list(one) for one in zip(*each[1:], strict=True)] for each in (ours, theirs)]
    print_line("publish, confirms", "msg/s", rates[0][0], rates[1][0], lambda ratio: ratio)
    print_line("consume, ack each", "msg/s", rates[0][1], rates[1][1], lambda ratio: ratio)
    print_line("start", "s", our_start, [their_start], lambda ratio: 1 / ratio)


if __name__ == "__main__":
    main()
