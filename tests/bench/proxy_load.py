"""How much the recording proxy holds: ``python -m tests.bench.proxy_load``.

5 000 idle connections and 500 busy ones at once before one echo server; then 1 GB in
random segments through one connection each way, compared by SHA-256. Prints times and the proxy's memory.
"""

from __future__ import annotations

import hashlib
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from random import Random

from tests.bench.proxy import peak_memory, recording
from tests.bench.proxy_traffic import Address

IDLE, BUSY = 5000, 500
ROUNDS = 20
BLOCK = b"x" * 1000
VOLUME = 1 << 30


def echo_server() -> Address:
    """Echoes, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    chosen = selectors.DefaultSelector()

    def run() -> None:
        listener.setblocking(False)
        chosen.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in chosen.select():
                if key.fileobj is listener:
                    peer, _ = listener.accept()
                    chosen.register(peer, selectors.EVENT_READ)
                    continue
                peer = key.fileobj  # type: ignore[assignment] # what was registered
                data = peer.recv(1 << 18)
                if data:
                    peer.sendall(data)
                else:
                    chosen.unregister(peer)
                    peer.close()

    threading.Thread(target=run, daemon=True).start()
    host, port = listener.getsockname()
    return host, port


def many(address: Address, process: subprocess.Popen[str]) -> None:
    """5 000 that are silent, 500 that talk."""
    started = time.perf_counter()
    idle = [socket.create_connection(address, timeout=60) for _ in range(IDLE)]
    busy = [socket.create_connection(address, timeout=60) for _ in range(BUSY)]
    for client in [*idle, *busy]:
        client.sendall(b"hello")
    for client in [*idle, *busy]:
        _expect(client, b"hello")
    print(f"{IDLE + BUSY} connections after {time.perf_counter() - started:.1f} s")
    started = time.perf_counter()
    for _ in range(ROUNDS):
        for client in busy:
            client.sendall(BLOCK)
        for client in busy:
            _expect(client, BLOCK)
    elapsed = time.perf_counter() - started
    print(f"{BUSY * ROUNDS / elapsed:,.0f} round trips of {len(BLOCK)} B a second over {BUSY} of them")
    print(f"memory of the proxy: {peak_memory(process.pid) / 1e6:.0f} MB")
    for client in [*idle, *busy]:
        client.close()


def _expect(client: socket.socket, data: bytes) -> None:
    came = b""
    while len(came) < len(data):
        came += client.recv(65536)
    if came != data:
        raise RuntimeError("what came back is not what was sent")


def volume(address: Address, process: subprocess.Popen[str]) -> None:
    """1 GB there and back."""
    random = Random(1)
    sent, came = hashlib.sha256(), hashlib.sha256()
    with socket.create_connection(address, timeout=60) as client:

        def send() -> None:
            left = VOLUME
            while left:
                data = random.randbytes(min(left, random.choice((1, 1460, 65536, 1 << 20))))
                client.sendall(data)
                sent.update(data)
                left -= len(data)

        started = time.perf_counter()
        writer = threading.Thread(target=send)
        writer.start()
        left = VOLUME
        while left:
            data = client.recv(1 << 20)
            came.update(data)
            left -= len(data)
        writer.join()
        elapsed = time.perf_counter() - started
    same = "the same" if sent.digest() == came.digest() else "NOT THE SAME"
    print(f"{VOLUME / 1e9:.2f} GB each way in {elapsed:.1f} s, SHA-256 {same}")
    print(f"memory of the proxy: {peak_memory(process.pid) / 1e6:.0f} MB")


def main() -> None:
    """Prints what was found."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 3 * (IDLE + BUSY) + 100
    if hard < needed:
        print(f"needs {needed} open files, and this user may have {hard}")
        sys.exit(1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    server = echo_server()
    with recording(server, "--strict") as (address, process):
        many(address, process)
    with recording(server, "--strict") as (address, process):
        volume(address, process)


if __name__ == "__main__":
    main()
