"""The recording proxy beside others, which record nothing: ``python -m tests.bench.proxy [ROUNDS]``.

The others are socat, mitmproxy in its TCP mode, and toxiproxy (``PLUMBLINE_TOXIPROXY_SERVER``, or on the
path); those that are missing are left out. The same loads for each, in turn, round after round: 128-byte
messages through a real nats-server,

    stream      from one publisher to one subscriber, as many as go; they share segments, some 400 in each
    exchanges   from 32 clients, each of which waits for its own message before it sends the next
    one alone   the round trip of one such client, without other clients

What counts is the ratio within a round, since a busy machine is busy for all. Clients, server and proxy share
the processors, so no proxy can be faster than the server is without one: that is the first line. A Python
loop that only receives and sends, and records nothing, shows what Python costs. Before each of them a file
is written and deleted: a virtual machine gives free memory back to its host within seconds, and gets it again
slowly, page by page. Who records would pay for that, who relays would not.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from plumbline.servers.nats.nats_server import MissingServer, NatsServer, real_servers
from tests.bench import proxy_traffic as traffic
from tests.bench.command_line import runs_asked
from tests.bench.proxy_traffic import Address

READY_WITHIN_S = 60.0
FAMILIAR_BYTES = 1000  # of the page cache, for each message of the stream: more than one of them records
WARMING = 6  # so much less than is measured goes through each of them first

MITMDUMP = Path(sys.executable).with_name("mitmdump")
SOCAT, STRICT, MITMPROXY = "socat", "record --strict", "mitmproxy, TCP mode"


@dataclass(frozen=True)
class Figures:
    """Messages a second, seconds of median round trips; of the relay CPU seconds a message, and memory."""

    stream: float
    exchanges: float
    busy_trip: float  # among the exchanges
    lone_trip: float
    cpu: float = 0.0  # of the stream
    memory: int = 0  # the most it had, in bytes


@dataclass(frozen=True)
class Volume:
    """How much of each load."""

    messages: int = traffic.MESSAGES
    exchanges: int = traffic.EXCHANGES
    trips: int = traffic.ROUND_TRIPS


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
        unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=unbuffered) as process:
            try:
                yield _printed_address(process), process
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


def _printed_address(process: subprocess.Popen[str]) -> Address:
    """The address that mitmproxy prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"listening at ([\d.]+):(\d+)", line):
            return found[1], int(found[2])
    raise RuntimeError("mitmproxy printed no address")


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


def measured(address: Address, pid: int, volume: Volume) -> Figures:
    """One round for one of them; ``pid`` is 0 where there is none."""
    before = cpu_seconds(pid) if pid else 0.0
    streamed = traffic.rate(address, volume.messages)
    cpu = 0.0
    if pid:
        await_children(pid)
        cpu = (cpu_seconds(pid) - before) / volume.messages
    exchanged, busy_trip = traffic.exchanges(address, volume.exchanges)
    lone_trip = traffic.round_trip(address, volume.trips)
    return Figures(streamed, exchanged, busy_trip, lone_trip, cpu, peak_memory(pid) if pid else 0)


def await_children(pid: int) -> None:
    """Until those of socat, one for each connection, have ended: only then is their time known."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + READY_WITHIN_S
    while left := children.read_text().split():
        within = deadline - time.monotonic()
        if within <= 0:
            raise RuntimeError(f"{pid}'s children {left} have not ended: their CPU time is not known")
        with suppress(ProcessLookupError):  # it was fetched meanwhile
            ended = os.pidfd_open(int(left[0]))
            try:
                select.select([ended], [], [], within)
            finally:
                os.close(ended)


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


def make_memory_familiar(messages: int) -> None:
    """Has the host give the memory that a recording of so many takes."""
    piece = bytes(128 * 1024)  # about what a recording writes at once: the kernel takes pages by size
    with tempfile.TemporaryFile() as file:
        for _ in range(messages * FAMILIAR_BYTES // len(piece)):
            file.write(piece)


def compare(server: Address, rounds: int, volume: Volume) -> dict[str, list[Figures]]:
    """All of them, round after round."""
    figures: dict[str, list[Figures]] = {}
    for _ in range(rounds):
        for name, start in ways(server).items():
            with ExitStack() as running:
                address, pid = start(running)
                traffic.rate(address, volume.messages // WARMING)
                make_memory_familiar(volume.messages)
                figures.setdefault(name, []).append(measured(address, pid, volume))
    return figures


def ratio(some: list[Figures], others: list[Figures], value: Callable[[Figures], float]) -> float:
    """The median of what each round gives."""
    return median(value(one) / value(other) for one, other in zip(some, others, strict=True))


def added(some: list[Figures], direct: list[Figures], value: Callable[[Figures], float]) -> float:
    """Microseconds more than without a proxy, the median of the rounds."""
    return 1e6 * median(value(one) - value(other) for one, other in zip(some, direct, strict=True))


def table(figures: dict[str, list[Figures]]) -> Iterator[str]:
    """Lines; shares are of socat's, or of what no proxy reaches where there is no socat."""
    direct = figures["no proxy"]
    yardstick = figures.get(SOCAT, direct)
    yield f"{'':24}{'stream':^34}{'exchanges of ' + str(traffic.CLIENTS):^32}{'one alone':^10}"
    yield (
        f"{'':24}{'messages/s':>11}{'of socat':>9}{'CPU/million':>14}"
        f"{'messages/s':>12}{'of socat':>9}{'added':>10}{'added':>10}{'memory':>9}"
    )
    for name, some in figures.items():
        yield (
            f"{name:24}{median(one.stream for one in some):>11,.0f}"
            f"{ratio(some, yardstick, lambda one: one.stream):>9.2f}"
            f"{median(one.cpu for one in some) * 1e6:>12.2f} s"
            f"{median(one.exchanges for one in some):>12,.0f}"
            f"{ratio(some, yardstick, lambda one: one.exchanges):>9.2f}"
            f"{added(some, direct, lambda one: one.busy_trip):>7.0f} us"
            f"{added(some, direct, lambda one: one.lone_trip):>7.0f} us"
            f"{max(one.memory for one in some) / 1e6:>6.0f} MB"
        )
    if MITMPROXY in figures:
        slow = figures[MITMPROXY]
        for what, value in LOADS.items():
            ours, most = ratio(figures[STRICT], slow, value), ratio(direct, slow, value)
            yield f"{what}: {STRICT} is {ours:.1f} times as fast as {MITMPROXY}; no proxy, {most:.1f} times"


LOADS: dict[str, Callable[[Figures], float]] = {
    "stream": lambda one: one.stream,
    "exchanges": lambda one: one.exchanges,
}


def main() -> None:
    """Prints a table."""
    rounds = runs_asked(__doc__, 5)
    binary = real_servers()[0]
    if isinstance(binary, MissingServer):
        print(binary)
        return
    with NatsServer(binary.path, {"jetstream": False}) as server:
        host, port = server.url.removeprefix("nats://").split(":")
        figures = compare((host, int(port)), rounds, Volume())
    print(f"nats-server {binary.version}, messages of {len(traffic.PAYLOAD)} B, medians of {rounds} rounds")
    for line in table(figures):
        print(line)


if __name__ == "__main__":
    main()
