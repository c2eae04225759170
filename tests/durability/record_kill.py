"""kill -9 a recording proxy under load: its capture is readable, and has what the proxy let pass.

With ``--strict`` everything that was forwarded is in the capture. Without, what was forwarded last may be
missing; what is there is a beginning of what was sent.
"""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from msgspec import Struct

from plumbline.captures.files import files_of
from plumbline.captures.reader import CaptureParser
from plumbline.captures.reassembly import BytesLost, Reassembler, StreamBytes
from plumbline.captures.segments import segment
from plumbline.wire.sender import Direction
from tests.durability.kill import LEAST_LIFE_S, MOST_LIFE_S, READY_S, Shown, show_nothing
from tests.proxy.peers import server

CONNECTIONS = 3
PAYLOAD = 200  # bytes of one message


class RecordResult(Struct, frozen=True):
    """How much was forwarded and recorded, in bytes, and what was wrong."""

    kills: int
    forwarded: int
    recorded: int
    faults: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return self.recorded > 0 and not self.faults

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.forwarded} bytes forwarded, {self.recorded} recorded\n"
            f"{len(self.faults)} faults" + "".join(f"\n  {one}" for one in self.faults[:3])
        )


class Life:
    """What passed on both sides of one proxy, by connection; the first bytes of a connection name it."""

    def __init__(self) -> None:
        self.sent = [bytearray() for _ in range(CONNECTIONS)]  # by clients
        self.came_back = [bytearray() for _ in range(CONNECTIONS)]
        self.forwarded: dict[bytes, bytearray] = {}  # to the server, by the first subject
        self.flowing = threading.Event()

    def serve(self, peer: socket.socket) -> None:
        """A server that sends back what comes."""
        received = bytearray()
        while data := peer.recv(65536):
            received += data
            if b" " in received[4:]:
                self.forwarded[bytes(received.split(b" ", 2)[1])] = received
            with contextlib.suppress(OSError):
                peer.sendall(data)

    def talk(self, number: int, place: tuple[str, int]) -> None:
        """A client that sends numbered messages until its connection ends."""
        count = 0
        with contextlib.suppress(OSError), socket.create_connection(place) as client:
            client.setblocking(False)
            waiting = b""
            while True:
                if not waiting:
                    waiting = b"".join(
                        b"PUB c%d %d\r\n%0*d\r\n" % (number, PAYLOAD, PAYLOAD, count + more)
                        for more in range(20)
                    )
                    count += 20
                readable, writable, _ = select.select([client], [client], [], READY_S)
                if readable:
                    data = client.recv(65536)
                    if not data:
                        return
                    self.came_back[number] += data
                    self.flowing.set()
                if writable:
                    size = client.send(waiting)
                    self.sent[number] += waiting[:size]
                    waiting = waiting[size:]


@contextmanager
def _recording(
    url: str, folder: Path, *, strict: bool
) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    command = [sys.executable, "-m", "plumbline", "record", url, "--listen", "127.0.0.1:0", "-o", str(folder)]
    command += ["--strict"] if strict else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            host, _, port = process.stdout.readline().split()[0].removeprefix("nats://").rpartition(":")
            yield process, (host, int(port))
        finally:
            process.kill()


def run_recorder(folder: Path, *, kills: int, seed: int, show: Shown = show_nothing) -> RecordResult:
    """Kill a recorder ``kills`` times, strict ones and others in turn."""
    random = Random(seed)
    forwarded = recorded = 0
    faults: list[str] = []
    for number in range(kills):
        life, strict = Life(), number % 2 == 0
        place = folder / str(number)
        with (
            server(life.serve) as url,
            _recording(url.replace("tcp", "nats"), place, strict=strict) as (process, at),
        ):
            clients = [threading.Thread(target=life.talk, args=(one, at)) for one in range(CONNECTIONS)]
            for client in clients:
                client.start()
            assert life.flowing.wait(READY_S), "nothing came back"
            time.sleep(random.uniform(LEAST_LIFE_S, MOST_LIFE_S))  # the moment of the kill
            process.kill()
            process.wait()
            for client in clients:
                client.join(READY_S)
        forwarded += sum(map(len, life.forwarded.values())) + sum(map(len, life.came_back))
        found, wrong = check_capture(place, life, strict=strict)
        recorded += found
        faults += [f"kill {number + 1}: {one}" for one in wrong]
        shutil.rmtree(place)
        show(number + 1)
    return RecordResult(kills, forwarded, recorded, tuple(faults))


def check_capture(folder: Path, life: Life, *, strict: bool) -> tuple[int, list[str]]:
    """Bytes that the capture has, and what is wrong with it."""
    streams, faults = _streams(folder)
    for number in range(CONNECTIONS):
        name = b"c%d" % number
        to_server, to_client = streams.get(name, (b"", b""))
        if not life.sent[number].startswith(to_server):
            faults.append(f"{name!r}: bytes to the server that were not sent")
        if not to_server.startswith(to_client[: len(to_server)]):
            faults.append(f"{name!r}: bytes to the client that the server did not send")
        if strict and not to_server.startswith(bytes(life.forwarded.get(name, b""))):
            faults.append(
                f"{name!r}: {len(life.forwarded[name]) - len(to_server)} forwarded bytes are not recorded"
            )
        if strict and not to_client.startswith(bytes(life.came_back[number])):
            faults.append(
                f"{name!r}: {len(life.came_back[number]) - len(to_client)} bytes to the client missing"
            )
    return sum(len(one) + len(other) for one, other in streams.values()), faults


def _streams(folder: Path) -> tuple[dict[bytes, tuple[bytes, bytes]], list[str]]:
    """Both directions of each connection, by its first subject."""
    reassembler, faults = Reassembler(), list[str]()
    found: dict[int, tuple[list[bytes], list[bytes]]] = {}
    for file in files_of([folder]):
        for packet in CaptureParser().feed(file.read_bytes()):
            one = segment(packet)
            for event in reassembler.feed(one) if one is not None else ():
                if isinstance(event, StreamBytes):
                    found.setdefault(event.connection.number, ([], []))[event.direction].append(event.data)
                elif isinstance(event, BytesLost):
                    faults.append(f"{event.size} bytes are lost in connection {event.connection.number}")
    joined = [
        (b"".join(both[Direction.TO_SERVER]), b"".join(both[Direction.TO_CLIENT])) for both in found.values()
    ]
    return {
        to_server.split(b" ", 2)[1]: (to_server, to_client) for to_server, to_client in joined if to_server
    }, faults
