"""The recording proxy beside others, which record nothing: ``python -m tests.bench.proxy [ROUNDS]``.

The others are socat, mitmproxy in its TCP mode, and toxiproxy (``PLUMBLINE_TOXIPROXY_SERVER``, or on the
path); those that are missing are left out. The same load for each, in turn, round after round: 128-byte
messages through a real nats-server from one publisher to one subscriber, both of which go through the proxy;
and the round trip of one such message. What counts is the ratio within a round, since a busy machine is busy
for all.

Client, server and proxy share the processors, so no proxy can be faster than the server is without one: that
is the first line. A Python loop that only receives and sends, and records nothing, shows what Python costs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ci.servers import MissingServer, NatsServer, real_servers

PAYLOAD = b"x" * 128
MESSAGES = 200_000
BATCH = 500
ROUND_TRIPS = 3000
READY_WITHIN_S = 60.0

MITMDUMP = Path(sys.executable).with_name("mitmdump")
SOCAT, STRICT, MITMPROXY = "socat", "record --strict", "mitmproxy, TCP mode"

Address = tuple[str, int]


@dataclass(frozen=True)
class Figures:
    """Messages a second, seconds of a median round trip; of the relay CPU seconds a message and memory."""

    rate: float
    round_trip: float
    cpu: float = 0.0
    memory: int = 0  # the most it had, in bytes


class Client:
    """A raw NATS client that costs as little as it can."""

    def __init__(self, address: Address) -> None:
        self.link = socket.create_connection(address, timeout=60)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        said = b""
        while not said.endswith(b"PONG\r\n"):
            said += self.link.recv(65536)

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
    """Messages a second from a publisher to a subscriber."""
    subscriber, publisher = Client(address), Client(address)
    with subscriber.link, publisher.link:
        subscriber.link.sendall(b"SUB bench 1\r\n")
        subscriber.ping()
        batch = (b"PUB bench %d\r\n" % len(PAYLOAD) + PAYLOAD + b"\r\n") * BATCH
        started = time.perf_counter()
        sender = threading.Thread(target=lambda: publisher.link.sendall(batch * (messages // BATCH)))
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


@contextmanager
def socat(server: Address) -> Iterator[tuple[Address, subprocess.Popen[bytes]]]:
    """Socat as a relay: a process for each connection."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    listen = f"TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr,nodelay,backlog=64"
    with subprocess.Popen(["socat", listen, f"TCP:{server[0]}:{server[1]},nodelay"]) as process:
        try:
            await_port(("127.0.0.1", port))
            yield ("127.0.0.1", port), process
        finally:
            process.terminate()


@contextmanager
def recording(server: Address, *flags: str) -> Iterator[tuple[Address, subprocess.Popen[str]]]:
    """Our proxy, as a user starts it."""
    with tempfile.TemporaryDirectory(prefix="plumbline-bench-") as folder:
        command = [sys.executable, "-m", "plumbline", "record", f"nats://{server[0]}:{server[1]}"]
        command += ["--listen", "127.0.0.1:0", "-o", folder, *flags]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                found = re.match(r"nats://([\d.]+):(\d+)", process.stdout.readline())
                assert found is not None
                yield (found[1], int(found[2])), process
            finally:
                process.terminate()


@contextmanager
def mitmproxy(server: Address) -> Iterator[tuple[Address, subprocess.Popen[str]]]:
    """Mitmproxy's TCP mode, which prints nothing."""
    with tempfile.TemporaryDirectory(prefix="plumbline-bench-") as folder:
        command = [str(MITMDUMP), "--mode", f"reverse:tcp://{server[0]}:{server[1]}", "-p", "0"]
        command += ["--listen-host", "127.0.0.1", "--set", f"confdir={folder}", "--set", "flow_detail=0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield _address_told(process), process
            finally:
                process.kill()


@contextmanager
def toxiproxy(program: str, server: Address) -> Iterator[tuple[Address, subprocess.Popen[str]]]:
    """Toxiproxy without a toxic."""
    with socket.socket() as free, socket.socket() as other:
        for one in (free, other):
            one.bind(("127.0.0.1", 0))
        control, port = free.getsockname()[1], other.getsockname()[1]
    command = [program, "-host", "127.0.0.1", "-port", str(control)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            await_port(("127.0.0.1", control))
            asked = {"name": "bench", "listen": f"127.0.0.1:{port}", "upstream": f"{server[0]}:{server[1]}"}
            request = urllib.request.Request(
                f"http://127.0.0.1:{control}/proxies", json.dumps(asked).encode(), method="POST"
            )
            urllib.request.urlopen(request, timeout=READY_WITHIN_S).close()
            yield ("127.0.0.1", port), process
        finally:
            process.kill()


@contextmanager
def python(server: Address) -> Iterator[tuple[Address, subprocess.Popen[str]]]:
    """The least that a relay in Python can do."""
    command = [sys.executable, "-m", "tests.bench.bare_relay", server[0], str(server[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield ("127.0.0.1", int(process.stdout.readline())), process
        finally:
            process.kill()


def _address_told(process: subprocess.Popen[str]) -> Address:
    """Where mitmproxy says that it listens."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"listening at ([\d.]+):(\d+)", line):
            return found[1], int(found[2])
    raise RuntimeError("mitmproxy did not say where it listens")


def await_port(address: Address) -> None:
    """Until somebody listens there. Raises ``OSError``."""
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            socket.create_connection(address).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
        else:
            return


def peak_memory(pid: int) -> int:
    """The most memory a process has held, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def cpu_seconds(pid: int) -> float:
    """What a process and its children that have ended took."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def measured(address: Address, pid: int = 0, messages: int = MESSAGES, trips: int = ROUND_TRIPS) -> Figures:
    """One round for one of them."""
    before = cpu_seconds(pid) if pid else 0.0
    reached = rate(address, messages)
    if not pid:
        return Figures(reached, round_trip(address, trips))
    await_children(pid)
    cpu = (cpu_seconds(pid) - before) / messages
    return Figures(reached, round_trip(address, trips), cpu, peak_memory(pid))


def await_children(pid: int) -> None:
    """Until those of socat, one for each connection, have ended: only then is their time known."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + READY_WITHIN_S
    while left := children.read_text():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{pid}'s children {left} have not ended: their CPU time is not known")
        time.sleep(0.01)


def ways(server: Address) -> dict[str, Callable[[ExitStack], tuple[Address, int]]]:
    """What is compared, by name: how to start it, and its process if its memory matters."""

    def started(
        relay: Callable[[], AbstractContextManager[tuple[Address, subprocess.Popen[Any]]]],
    ) -> Callable[[ExitStack], tuple[Address, int]]:
        def start(running: ExitStack) -> tuple[Address, int]:
            address, process = running.enter_context(relay())
            return address, process.pid

        return start

    found: dict[str, Callable[[ExitStack], tuple[Address, int]]] = {"no proxy": lambda _: (server, 0)}
    if shutil.which("socat"):
        found[SOCAT] = started(lambda: socat(server))
    found["Python, recv and send"] = started(lambda: python(server))
    found[STRICT] = started(lambda: recording(server, "--strict"))
    found["record"] = started(lambda: recording(server))
    if MITMDUMP.exists():
        found[MITMPROXY] = started(lambda: mitmproxy(server))
    if program := os.environ.get("PLUMBLINE_TOXIPROXY_SERVER") or shutil.which("toxiproxy-server"):
        found["toxiproxy"] = started(lambda: toxiproxy(program, server))
    return found


def compare(
    server: Address, rounds: int, messages: int = MESSAGES, trips: int = ROUND_TRIPS
) -> dict[str, list[Figures]]:
    """All of them, round after round."""
    figures: dict[str, list[Figures]] = {}
    for _ in range(rounds):
        for name, start in ways(server).items():
            with ExitStack() as running:
                address, pid = start(running)
                figures.setdefault(name, []).append(measured(address, pid, messages, trips))
    return figures


def main() -> None:
    """Prints a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    binary = real_servers()[0]
    if isinstance(binary, MissingServer):
        print(binary)
        return
    with NatsServer(binary.path, {"jetstream": False}) as server:
        host, port = server.url.removeprefix("nats://").split(":")
        figures = compare((host, int(port)), rounds)
    print(
        f"nats-server {binary.version}, {MESSAGES:,} messages of {len(PAYLOAD)} B, {rounds} rounds; medians"
    )
    print(
        f"{'':26}{'messages/s':>12}{'of socat':>10}{'CPU/million':>13}"
        f"{'round trip':>12}{'added':>9}{'memory':>9}"
    )
    direct, yardstick = figures["no proxy"], figures.get(SOCAT, figures["no proxy"])
    for name, some in figures.items():
        share = median(one.rate / other.rate for one, other in zip(some, yardstick, strict=True))
        added = median(one.round_trip - other.round_trip for one, other in zip(some, direct, strict=True))
        trip, cpu = median(one.round_trip for one in some), median(one.cpu for one in some)
        memory = max(one.memory for one in some)
        print(
            f"{name:26}{median(one.rate for one in some):>12,.0f}{share:>10.2f}{cpu * 1e6:>11.2f} s"
            f"{trip * 1e6:>9.0f} us{added * 1e6:>6.0f} us{memory / 1e6:>6.0f} MB"
        )
    if MITMPROXY in figures:
        pairs = zip(figures[STRICT], figures[MITMPROXY], strict=True)
        share = median(one.rate / other.rate for one, other in pairs)
        best = median(one.rate / other.rate for one, other in zip(direct, figures[MITMPROXY], strict=True))
        print(
            f"record --strict is {share:.1f} times as fast as mitmproxy's TCP mode; "
            f"no proxy at all would be {best:.1f} times"
        )


if __name__ == "__main__":
    main()
