"""What hostile servers of both protocols do with a socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

Script = Callable[[socket.socket], None]


class drained:  # noqa: N801 - reads like a function
    """Reads and forgets what the peer sends, until it closes or the block ends."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._closed = threading.Event()
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        with suppress(OSError):
            while self._link.recv(65536):
                pass
        self._closed.set()

    @property
    def has_closed(self) -> bool:
        """Whether the peer has closed."""
        return self._closed.is_set()

    def wait(self, seconds: float | None = None) -> None:
        """Until the peer closes, or for so long."""
        self._closed.wait(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def flood(link: socket.socket, chunk: bytes) -> None:
    """Send it again and again. Raises ``OSError`` when the peer has closed."""
    while True:
        link.sendall(chunk)


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """Run ``script`` for every connection, in threads; gives ``host:port``."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    links: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                link, _ = listener.accept()
                links.append(link)
                threading.Thread(target=serve, args=(link,), daemon=True).start()

    def serve(link: socket.socket) -> None:
        with suppress(OSError, ValueError), link:
            script(link)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield "{}:{}".format(*listener.getsockname())
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for link in links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()
