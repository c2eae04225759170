"""A TCP peer that does exactly what a test needs, such as a server with faults."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Script = Callable[[socket.socket], None]

INFO = b'INFO {"server_id":"SCRIPTED","version":"2.15.0","headers":true,"max_payload":1048576}\r\n'


@contextmanager
def scripted(script: Script) -> Iterator[str]:
    """Run ``script`` for every connection, in threads; gives ``host:port``."""
    listener = socket.create_server(("127.0.0.1", 0))
    links: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            links.append(link)
            threading.Thread(target=_guarded, args=(script, link), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for link in links:
            link.close()


def _guarded(script: Script, link: socket.socket) -> None:
    with suppress(OSError):  # the test has closed its end
        script(link)


def silent(link: socket.socket) -> None:
    """Accepts, reads, and never sends."""
    while link.recv(4096):
        pass


def closing(link: socket.socket) -> None:
    """Closes at once."""
    link.close()


def dripping(data: bytes) -> Script:
    """A byte of it now and then: never silent for long, and not done for minutes."""

    def script(link: socket.socket) -> None:
        with suppress(OSError):
            for byte in data:
                link.sendall(bytes([byte]))
                time.sleep(0.3)

    return script


def http(link: socket.socket) -> None:
    """Answers whatever comes as a web server does."""
    link.recv(4096)
    link.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    link.close()


def nats(answer: Callable[[socket.socket, bytes], None]) -> Script:
    """INFO, PONG for every PING, and ``answer`` for every other line (payload lines included)."""

    def script(link: socket.socket) -> None:
        link.sendall(INFO)
        for line in lines(link):
            if line == b"PING\r\n":
                link.sendall(b"PONG\r\n")
            elif not line.startswith(b"CONNECT"):
                answer(link, line)

    return script


def lines(link: socket.socket) -> Iterator[bytes]:
    with link.makefile("rb") as file:
        yield from file
