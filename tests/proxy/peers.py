"""Clients and servers of raw bytes on either side of a relay."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.relay import Relay, Tap

PATIENCE_S = 60.0  # a hang ends here; a machine with much else to do is slow
Serve = Callable[[socket.socket], object]


def echo(peer: socket.socket) -> None:
    """Sends back what comes, and ends when the client does."""
    while data := peer.recv(65536):
        peer.sendall(data)


@contextmanager
def server(serve: Serve, family: socket.AddressFamily = socket.AF_INET, path: str = "") -> Iterator[str]:
    """Serves each client in a thread; yields its URL."""
    listener = socket.socket(family)
    listener.bind(path or ("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    listener.listen(1024)

    def one(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            serve(peer)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peer.settimeout(PATIENCE_S)
                threading.Thread(target=one, args=(peer,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        if path:
            yield f"tcp+unix://{path}"
        else:
            host, port = listener.getsockname()[:2]
            yield f"tcp://{Endpoint('tcp', host, port)}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@contextmanager
def relayed(
    url: str, tap: Tap | None = None, listen: str = "127.0.0.1:0", *, record_first: bool = True
) -> Iterator[Relay]:
    """A relay before ``url``, in a thread."""
    relay = Relay(Endpoint.parse(url), Endpoint.parse(listen), tap, record_first=record_first)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield relay
    finally:
        relay.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def connect(address: Endpoint) -> socket.socket:
    """A client of that address."""
    family, place = address.resolve()[0]
    client = socket.socket(family)
    client.settimeout(PATIENCE_S)
    client.connect(place)  # type: ignore[arg-type] # as getaddrinfo gave it
    return client


def receive(peer: socket.socket, size: int) -> bytes:
    """Exactly so many bytes, or fewer if the stream ends."""
    parts = []
    while size and (data := peer.recv(min(size, 1 << 20))):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def reset(peer: socket.socket) -> None:
    """Closes so that the other side sees a reset."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
