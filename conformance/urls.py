"""URLs of targets, for every protocol, and the errors for unreachable targets. Pure."""

from __future__ import annotations

import re
from typing import ClassVar
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from plumbline.errors import PlumblineError


class UrlError(PlumblineError, ValueError):
    """The URL is not one of a server; the text says what to write instead."""


class AccessRefusedError(PlumblineError):
    """The target speaks the protocol and does not let us in; the text says what to write instead."""


class NatsUrl(Struct, frozen=True):
    """A NATS URL: ``nats://[user:password@|token@]host[:port]``."""

    protocol: ClassVar[str] = "nats"

    host: str
    port: int = 4222
    user: str | None = None
    password: str | None = None
    token: str | None = None

    @classmethod
    def parse(cls, text: str) -> NatsUrl:
        """Raises ``UrlError``."""
        example = "write nats://127.0.0.1:4222 or nats://user:password@host:4222"
        try:
            parts = urlsplit(text if "://" in text else f"nats://{text}")
            port = parts.port or 4222
        except ValueError as error:
            raise UrlError(f"{mask(text)!r} is not a URL ({error}): {example}") from None
        if parts.scheme != "nats":
            raise UrlError(
                f"{mask(text)!r} has the scheme {parts.scheme!r}, which is not supported: {example}"
            )
        if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise UrlError(f"{mask(text)!r} is not the URL of a server: {example}")
        user = unquote(parts.username) if parts.username else None
        password = unquote(parts.password) if parts.password is not None else None
        if user is not None and password is None:
            return cls(parts.hostname, port, token=user)
        return cls(parts.hostname, port, user=user, password=password)

    @property
    def credentials(self) -> dict[str, str]:
        """The CONNECT fields that authenticate."""
        fields = {"user": self.user, "pass": self.password, "auth_token": self.token}
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def address(self) -> str:
        return _address(self.host, self.port)

    def __str__(self) -> str:
        """The URL without its secrets."""
        return f"nats://{self.user}@{self.address}" if self.user else f"nats://{self.address}"


class AmqpUrl(Struct, frozen=True):
    """An AMQP URL: ``amqp://[user:password@]host[:port][/virtual-host]``, the virtual host percent-encoded.

    Source: RabbitMQ, "URI Specification".
    """

    protocol: ClassVar[str] = "amqp"

    host: str
    port: int = 5672
    user: str = "guest"
    password: str = "guest"
    virtual_host: str = "/"

    @classmethod
    def parse(cls, text: str) -> AmqpUrl:
        """Raises ``UrlError``."""
        example = "write amqp://guest:guest@127.0.0.1:5672/%2f"
        try:
            parts = urlsplit(text)
            port = parts.port or 5672
        except ValueError as error:
            raise UrlError(f"{mask(text)!r} is not a URL ({error}): {example}") from None
        path = parts.path.removeprefix("/")
        if parts.scheme != "amqp" or not parts.hostname or "/" in path or parts.query or parts.fragment:
            raise UrlError(f"{mask(text)!r} is not the URL of a server: {example}")
        return cls(
            parts.hostname,
            port,
            user=unquote(parts.username) if parts.username else "guest",
            password=unquote(parts.password) if parts.password is not None else "guest",
            virtual_host=unquote(path) if path else "/",
        )

    @property
    def address(self) -> str:
        return _address(self.host, self.port)

    def __str__(self) -> str:
        """The URL without its secrets."""
        return f"amqp://{self.user}@{self.address}/{quote(self.virtual_host, safe='')}"


AnyUrl = NatsUrl | AmqpUrl


def parse_url(text: str) -> AnyUrl:
    """A URL of any protocol; NATS if it does not say. Raises ``UrlError``."""
    return AmqpUrl.parse(text) if text.startswith("amqp:") else NatsUrl.parse(text)


def mask(url: str) -> str:
    """``url`` with what may be a secret blotted out."""
    return re.sub(r"//[^@/]*@", "//***@", url)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
