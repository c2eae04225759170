"""The reference broker beside the newest nats-server here: ``python -m tests.bench.nats_servers [RUNS]``.

Both run as processes of their own and are measured in turn, A B A B, by the same client, which does next to
nothing itself: it sends ready bytes and counts what comes. Printed are the medians, and the median of
the ratios of neighbouring runs, which a machine whose speed drifts does not bend.
"""

from __future__ import annotations

import platform
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Self

import msgspec

from plumbline.servers.nats.nats_server import NatsServer, ServerBinary, real_servers
from plumbline.wire.nats import Pub
from tests.bench.command_line import runs_asked

PAYLOAD = b"x" * 128
CORE_MESSAGES = 100_000
STREAM_MESSAGES = 20_000
WINDOW = 1_000  # publishes without a PubAck yet
BATCH = 100
RECEIVE_BYTES = 256 * 1024
PATIENCE_S = 60.0
STREAM = "BENCH"
SUBJECT = "bench.orders"


class Client:
    """One connection that counts bytes and lines."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = b""
        self.until(b"\r\n")  # INFO
        self.send(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n')
        self.flush()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def until(self, mark: bytes) -> bytes:
        """What comes, up to and with ``mark``."""
        while mark not in self.held:
            self.held += self._received()
        before, _, self.held = self.held.partition(mark)
        return before + mark

    def flush(self) -> None:
        """Wait until the server has read all that was sent."""
        self.send(b"PING\r\n")
        self.until(b"PONG\r\n")

    def take(self, size: int) -> None:
        """Wait for so many bytes."""
        size -= len(self.held)
        self.held = b""
        while size > 0:
            size -= len(self._received())

    def lines(self, count: int) -> bytes:
        """So many lines, or a few more."""
        chunks = [self.held]
        count -= self.held.count(b"\n")
        while count > 0:
            chunks.append(self._received())
            count -= chunks[-1].count(b"\n")
        self.held = b""
        return b"".join(chunks)

    def request(self, subject: str, body: object) -> bytes:
        """One JetStream request; its reply, or what went wrong."""
        payload = msgspec.json.encode(body)
        self.send(b"SUB _INBOX.api 9\r\n" + Pub.make(subject, payload, "_INBOX.api").raw + b"UNSUB 9 1\r\n")
        reply = self.until(b"}\r\n")
        if b'"error"' in reply:
            raise RuntimeError(f"{subject}: {reply!r}")
        return reply

    def _received(self) -> bytes:
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()


def core(address: tuple[str, int], messages: int = CORE_MESSAGES) -> float:
    """Messages a second from one publisher to one subscriber."""
    delivered = len(f"MSG {SUBJECT} 1 {len(PAYLOAD)}\r\n") + len(PAYLOAD) + len("\r\n")
    burst = Pub.make(SUBJECT, PAYLOAD).raw * messages
    with Client(address) as subscriber, Client(address) as publisher:
        subscriber.send(f"SUB {SUBJECT} 1\r\n".encode())
        subscriber.flush()
        sending = threading.Thread(target=publisher.send, args=(burst,))
        started = time.perf_counter()
        sending.start()
        subscriber.take(delivered * messages)
        elapsed = time.perf_counter() - started
        sending.join()
    return messages / elapsed


def stream_publish(
    address: tuple[str, int], messages: int = STREAM_MESSAGES, storage: str = "memory"
) -> float:
    """Acknowledged publishes a second into a stream, ``WINDOW`` under way.

    ``messages`` is a multiple of half of that.
    """
    chunk = Pub.make(SUBJECT, PAYLOAD, "_INBOX.acks").raw * (WINDOW // 2)
    rounds = messages // (WINDOW // 2)
    with stream(address, storage) as client:
        client.send(b"SUB _INBOX.acks 1\r\n")
        client.flush()
        started = time.perf_counter()
        client.send(chunk)
        for left in range(rounds - 1, -1, -1):
            if left:
                client.send(chunk)
            lines = client.lines(WINDOW)  # a PubAck is two
            client.held = b"\n" * (lines.count(b"\n") - WINDOW)
        return messages / (time.perf_counter() - started)


def pull_and_ack(address: tuple[str, int], messages: int = STREAM_MESSAGES, storage: str = "memory") -> float:
    """Messages a second that are pulled ``BATCH`` at a time, each acknowledged; a multiple of that."""
    consumer = {"durable_name": "D", "ack_policy": "explicit", "max_ack_pending": 2 * BATCH}
    wanted = Pub.make(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.D", b'{"batch":%d}' % BATCH, "_INBOX.pull").raw
    with stream(address, storage) as client:
        client.send(Pub.make(SUBJECT, PAYLOAD).raw * messages)
        client.flush()
        client.request(
            f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.D", {"stream_name": STREAM, "config": consumer}
        )
        client.send(b"SUB _INBOX.pull 1\r\n")
        started = time.perf_counter()
        for _ in range(messages // BATCH):
            client.send(wanted)
            heads = client.lines(2 * BATCH).split(b"\r\n")[: 2 * BATCH : 2]
            client.send(b"".join(b"PUB %b 4\r\n+ACK\r\n" % head.split(b" ", 4)[3] for head in heads))
        client.flush()
        return messages / (time.perf_counter() - started)


@contextmanager
def stream(address: tuple[str, int], storage: str = "memory") -> Iterator[Client]:
    """A connection, and a stream that is there as long."""
    with Client(address) as client:
        config = {"name": STREAM, "subjects": [SUBJECT], "storage": storage}
        client.request(f"$JS.API.STREAM.CREATE.{STREAM}", config)
        yield client
        client.held = b""
        client.flush()
        client.request(f"$JS.API.STREAM.DELETE.{STREAM}", {})


@dataclass(frozen=True)
class Measure:
    """What is measured, and what the reference broker is to reach of the real server."""

    name: str
    rate: Callable[[tuple[str, int]], float]
    target: float


MEASURES = (
    Measure("core, publish to deliver, 128 B", core, 0.3),
    Measure("JetStream publish, in memory, pipelined", stream_publish, 0.2),
    Measure(f"pull({BATCH}) and ack", pull_and_ack, 0.2),
)
START_TARGET_S = 0.3
BROKER = (sys.executable, "-m", "plumbline", "broker", "nats", "-js", "-a", "127.0.0.1", "-p", "-1")


@contextmanager
def reference_broker(*options: str) -> Iterator[tuple[str, int]]:
    """The reference broker as a process; its address, once it has printed it."""
    with subprocess.Popen((*BROKER, *options), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield "127.0.0.1", int(process.stdout.readline().split()[0].rpartition(":")[2])
        finally:
            process.terminate()


def seconds_to_pong() -> float:
    """From starting the process to the first PONG."""
    started = time.perf_counter()
    with reference_broker() as address, Client(address):
        return time.perf_counter() - started


def newest() -> ServerBinary:
    """The newest real server. Ends the program if there is none."""
    servers = [server for server in real_servers() if isinstance(server, ServerBinary)]
    if not servers:
        raise SystemExit(f"nothing to compare with: {real_servers()[0]}")
    return max(servers, key=lambda server: [int(part) for part in server.version.split(".")])


def main() -> None:
    """Prints a table."""
    runs = runs_asked(__doc__, 5)
    server = newest()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"{python}, {runs} runs of each in turn, beside nats-server {server.version}; messages a second")
    print(f"{'median':40} {'reference':>11} {'nats-server':>12} {'ratio':>7} {'least':>7} {'most':>7} target")
    with reference_broker() as ours, NatsServer(server.path) as real:
        theirs = ("127.0.0.1", int(real.url.rpartition(":")[2]))
        for measure in MEASURES:
            pairs = [(measure.rate(ours), measure.rate(theirs)) for _ in range(runs)]
            ratios = [own / other for own, other in pairs]
            rates = f"{median(own for own, _ in pairs):>11,.0f} {median(other for _, other in pairs):>12,.0f}"
            spread = f"{median(ratios):>7.2f} {min(ratios):>7.2f} {max(ratios):>7.2f}"
            print(f"{measure.name:40} {rates} {spread} {measure.target:>7}")
    starts = [seconds_to_pong() for _ in range(runs)]
    print(
        f"{'start of the process to the first PONG':40} {median(starts):>10.3f}s"
        f"  {min(starts):.3f} to {max(starts):.3f} s, target {START_TARGET_S} s"
    )


if __name__ == "__main__":
    main()
