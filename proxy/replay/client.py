"""One replayed client: the part common to both protocols."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from plumbline.captures.dialects import StreamDecoder
from plumbline.errors import PlumblineError
from plumbline.masking import Mask, masked_url
from plumbline.proxy.addresses import AddressError, Endpoint
from plumbline.wire.errors import ProtocolError


class ServerUnreachableError(Exception):
    """No server answers; the message says which, and why."""


class ReplayStoppedError(Exception):
    """The server answers no more, or floods; the message says which."""


class UnplayableCaptureError(PlumblineError, ValueError):
    """A recording that cannot be played; the message says why."""


class ReplayCredentials(Struct, frozen=True):
    """What a URL says beside the address: secrets, which a capture does not have, are the caller's."""

    user: str = ""
    password: str | None = None  # without one, the user is a token
    virtual_host: str | None = None

    @classmethod
    def of(cls, url: str, password: str | None = None) -> ReplayCredentials:
        """What a URL has: ``user:password@`` or ``token@``, and a virtual host. ``password`` is that of the
        URL's user; without a user it is a token, or that of AMQP's ``guest``. Raises ``AddressError``."""
        parts = urlsplit(url)
        if "@" in f"{parts.path}{parts.query}{parts.fragment}":
            raise AddressError(f"{masked_url(url)}: percent-encode / # ? @ in a user name or a password")
        user = unquote(parts.username or "")
        path = parts.path.removeprefix("/")
        vhost = unquote(path) if path else None
        if password is None:
            return cls(user, None if parts.password is None else unquote(parts.password), vhost)
        if parts.password is not None:
            raise AddressError(f"{masked_url(url)} already has a password: give only one")
        if user or url.startswith("amqp"):
            return cls(user or "guest", password, vhost)
        return cls(password, None, vhost)

    @property
    def mask(self) -> Mask:
        """Masks the password, or the token."""
        return Mask.of(self.user) if self.password is None else Mask.of(self.password, user=self.user)


class ReplayClient(ABC):
    """One connection. ``received_count`` counts what the server sent, as ``expected`` does in
    the recording."""

    greeting = ""  # what a server says first
    heartbeat = b""

    def __init__(self, server: Endpoint, decoder: StreamDecoder) -> None:
        family, address = server.resolve()[0]
        self.socket = socket.socket(family)
        self.expected = 0
        self.received_count = 0
        self.arrived = self.arrived_bytes = 0  # of all kinds
        self._forgiven = 0  # what did not come in time, and is waited for no more
        self.ended = ""  # why nothing more comes
        self.is_greeted = False
        self.heartbeat_s = 0.0  # 0: none is wanted
        self._sent_at = time.monotonic()
        self._decoder = decoder
        try:
            self.socket.connect(address)  # type: ignore[arg-type] # as getaddrinfo gave it
        except OSError as error:
            self.socket.close()
            raise ServerUnreachableError(f"{server}: {error.strerror or error}") from None

    @property
    def is_behind(self) -> bool:
        """Whether something is to come that came then."""
        return not self.ended and self.received_count + self._forgiven < self.expected

    def stop_waiting(self) -> None:
        """What has not come is waited for no more."""
        self._forgiven = max(self._forgiven, self.expected - self.received_count)

    def receive(self) -> None:
        """Takes what there is."""
        operations: Iterable[Any]
        try:
            data = self.socket.recv(1 << 18)
            operations = self._decoder.feed(data)
        except OSError as error:
            self.ended = error.strerror or str(error)
            return
        except ProtocolError as error:
            self.ended, operations = str(error), list(error.operations)
        if not data:
            self.ended = self.ended or "closed by the server"
        self.arrived_bytes += len(data)
        for operation in operations:
            self.arrived += 1
            self.take(operation)

    def send(self, data: bytes) -> None:
        """Writes, if the server is still there."""
        self._sent_at = time.monotonic()
        if data and not self.ended:
            try:
                self.socket.sendall(data)
            except OSError as error:
                self.ended = error.strerror or str(error)

    def end(self) -> None:
        """Sends nothing more: FIN. The server ends its side then."""
        self.heartbeat_s = 0.0
        if not self.ended:
            try:
                self.socket.shutdown(socket.SHUT_WR)
            except OSError as error:
                self.ended = error.strerror or str(error)

    def keep_alive(self) -> None:
        """Sends a heartbeat where the protocol needs one."""
        if self.heartbeat_s and time.monotonic() > self._sent_at + self.heartbeat_s / 2:
            self.send(self.heartbeat)

    @abstractmethod
    def recorded(self, operation: Any) -> None:
        """The recording has this, from the server, at this place."""

    @abstractmethod
    def take(self, operation: Any) -> None:
        """The server sent this now."""

    @abstractmethod
    def translated(self, operation: Any) -> bytes | None:
        """The bytes for now of what the client sent then; None for what goes without saying."""
