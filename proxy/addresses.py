"""Where to listen and where to connect: ``nats://host:port``, ``[::1]:4333``, ``unix:/path``."""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import dataclass

from plumbline.errors import PlumblineError
from plumbline.masking import masked_url

PORTS = {
    "nats": 4222,
    "amqp": 5672,
}  # a URL may leave the port out; the scheme is the protocol that is spoken
RAW = "tcp"  # bytes of no known protocol
ENCRYPTED = {"tls": "nats", "amqps": "amqp"}  # and what is spoken inside
_ENCRYPTED_PORTS = {"tls": 4222, "amqps": 5671}
_HOST_PORT = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:/\[\]]*))(?::(?P<port>\d{1,5}))?(?:/.*)?")


class AddressError(PlumblineError, ValueError):
    """An address that cannot be read or found; the message says which and what is expected."""


@dataclass(frozen=True)
class Endpoint:
    """One end as it was named. ``path`` is set for a Unix socket, ``host`` and ``port`` otherwise."""

    protocol: str
    host: str = ""
    port: int = 0
    path: str = ""
    encrypted: bool = False

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, protocol: str = RAW) -> Endpoint:
        """Reads ``[scheme://]host[:port]`` or ``[scheme+]unix:/path``. Raises ``AddressError``.

        A user, a password and a virtual host may stand in a URL; they are the clients' business.
        """
        shown = masked_url(text)
        scheme, separator, rest = text.partition("://")
        named = scheme if separator else protocol
        if named.endswith("+unix") or (separator and named == "unix"):
            return cls(named.removesuffix("+unix").replace("unix", RAW), path=_path(rest, text))
        if not separator and text.startswith("unix:"):
            return cls(protocol, path=_path(text.removeprefix("unix:"), text))
        if separator and named not in (*PORTS, RAW, *ENCRYPTED):
            schemes = ", ".join(f"{name}://" for name in (*PORTS, *ENCRYPTED, RAW))
            raise AddressError(f"{shown}: known are {schemes} and unix:/path")
        address = rest if separator else text
        found = _HOST_PORT.fullmatch(address.rpartition("@")[2])
        if found is None:
            raise AddressError(f"{shown}: expected host:port, [address]:port or unix:/path")
        port = int(found["port"]) if found["port"] else (PORTS | _ENCRYPTED_PORTS).get(named)
        if port is None or port > 65535:
            raise AddressError(f"{shown}: expected a port, 0 to 65535")
        host = found["v6"] or found["host"] or "127.0.0.1"
        return cls(ENCRYPTED.get(named, named), host, port, encrypted=named in ENCRYPTED)

    def resolve(self) -> list[tuple[socket.AddressFamily, object]]:
        """Family and socket address of each of its places, best first. Raises ``AddressError``."""
        if self.path:
            return [(socket.AF_UNIX, self.path)]
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            reason = error.strerror or error
            raise AddressError(f"{self}: {self.host} is not a known host ({reason})") from None
        return [(family, address) for family, _, _, _, address in found]


def _path(path: str, text: str) -> str:
    if not path:
        raise AddressError(f"{text}: expected unix:/path")
    return path


def listening_socket(endpoint: Endpoint, backlog: int = 4096) -> socket.socket:
    """Bound, listening, not blocking. Raises ``AddressError``."""
    family, address = endpoint.resolve()[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)  # type: ignore[arg-type] # as getaddrinfo gave it
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressError(f"{endpoint} is in use: choose another address") from None
        raise AddressError(f"cannot listen on {endpoint}: {error.strerror or error}") from None
    listener.setblocking(False)
    return listener
