"""TLS of the small client library for NATS. One thread may read while another writes."""

from __future__ import annotations

import socket
import ssl
import threading


class EncryptedSocket:
    """As much of a socket as the library uses, over a plain one."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Shakes hands. Raises ``OSError``."""
        self._plain = plain
        self._lock = threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
            except ssl.SSLError:
                self._flush()  # the alert
                raise
            else:
                self._flush()
                return

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._plain.sendall(data)

    def _receive(self) -> None:
        data = self._plain.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._incoming.write(data)

    def recv(self, size: int) -> bytes:
        """Decrypted; raises ``OSError`` at the end."""
        while True:
            with self._lock:
                try:
                    return self._tls.read(size)
                except ssl.SSLWantReadError:
                    pass
            self._receive()

    def sendall(self, data: bytes) -> None:
        """Encrypted."""
        with self._lock:
            self._tls.write(data)
            self._flush()

    def shutdown(self, how: int) -> None:
        """As of a socket."""
        self._plain.shutdown(how)

    def close(self) -> None:
        """As of a socket."""
        self._plain.close()
