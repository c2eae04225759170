"""A relay before a server that rewrites the server's operations: the same server, other bytes.

A ``Rewrite`` gets whole operations, decides what is sent for each, and does no I/O. What a client sends
passes as it is, since checks also send what no decoder can read.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from plumbline.wire import amqp, nats
from plumbline.wire.errors import ProtocolError
from plumbline.wire.sender import Sender

READ_SIZE = 65536

# An operation of the server, and what the client gets for it: its bytes, or nothing, or several.
Rewrite = Callable[[Any], bytes]


class StreamDecoder(Protocol):
    """A decoder of ``wire``, of any protocol."""

    def feed(self, data: bytes, /) -> Sequence[Any]: ...


DECODERS: dict[str, Callable[[Sender], StreamDecoder]] = {"nats": nats.Decoder, "amqp": amqp.Decoder}


@contextmanager
def relay(protocol: str, address: tuple[str, int], rewrites: Callable[[], Rewrite]) -> Iterator[str]:
    """``host:port`` of a relay to the server there. Each connection has a rewrite of its own."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            arguments = (client, address, DECODERS[protocol](Sender.SERVER), rewrites())
            threading.Thread(target=_relay, args=arguments, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _relay(client: socket.socket, address: tuple[str, int], decoder: StreamDecoder, rewrite: Rewrite) -> None:
    """Both directions of one connection, until one side ends it or the server sends what is no operation."""
    with client, suppress(OSError, ProtocolError), socket.create_connection(address) as server:
        while True:
            readable, _, _ = select.select((client, server), (), ())
            if client in readable:
                if not (data := client.recv(READ_SIZE)):
                    return
                server.sendall(data)
            if server in readable:
                if not (data := server.recv(READ_SIZE)):
                    return
                client.sendall(b"".join(map(rewrite, decoder.feed(data))))
