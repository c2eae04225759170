"""URLs of targets, for every protocol, and the errors for unreachable targets. Pure."""

from __future__ import annotations

from typing import ClassVar, Self
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from plumbline.conformance.nats.login import NatsLogin
from plumbline.errors import PlumblineError
from plumbline.masking import Mask, masked_url
from plumbline.tls import TlsOptions
from plumbline.wire.nats.jetstream import API_PREFIX

MECHANISMS = ("PLAIN", "AMQPLAIN", "EXTERNAL")  # of AMQP logins
DEFAULT_USER = DEFAULT_PASSWORD = "guest"  # of RabbitMQ
_NATS_PORTS = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}
_SCHEMES = (
    "write nats://127.0.0.1:4222 or amqp://guest:guest@127.0.0.1:5672; tls:// and amqps:// are with TLS, "
    "ws:// and wss:// are NATS over WebSocket"
)
_ENCODE = "percent-encode / # ? @ in a user name or a password (/ is %2F)"


class UrlError(PlumblineError, ValueError):
    """The URL is not one of a server; the text says what to write instead."""


class AccessRefusedError(PlumblineError):
    """The target speaks the protocol and does not let us in; the text says what to write instead."""


class BaseUrl(Struct, frozen=True, kw_only=True):
    """What URLs of every protocol share. ``tls``: how the connection is encrypted; None: it is not."""

    tls: TlsOptions | None = None

    def with_tls(self, options: TlsOptions) -> Self:
        """The same server with these options if the URL asks for TLS; as it is if it does not."""
        return self if self.tls is None else replace(self, tls=options)

    @property
    def flags(self) -> tuple[str, ...]:
        """The options of a command line that reach it, besides the URL. Without secrets."""
        return self.tls.flags if self.tls is not None else ()


class NatsUrl(BaseUrl, frozen=True):
    """A NATS URL: ``nats://[user:password@|token@]host[:port]``, or ``tls://`` for TLS; ``ws://`` and
    ``wss://`` for WebSocket, whose ports are those of HTTP.

    With ``?handshake_first=true`` TLS begins before INFO, as the server's option of that name.
    """

    protocol: ClassVar[str] = "nats"

    host: str
    port: int = 4222
    user: str | None = None
    password: str | None = None
    token: str | None = None
    is_tls_first: bool = False
    is_web: bool = False  # inside WebSocket
    login: NatsLogin | None = None  # instead of a user, a password and a token
    inbox_prefix: str = "_INBOX"
    api_prefix: str = API_PREFIX  # of requests to JetStream

    @classmethod
    def parse(cls, text: str) -> NatsUrl:
        """Raises ``UrlError``."""
        example = "write nats://127.0.0.1:4222 or nats://user:password@host:4222"
        parts = _split(text if "://" in text else f"nats://{text}", text, example)
        if parts.scheme not in _NATS_PORTS:
            raise UrlError(
                f"{masked_url(text)!r} has the scheme {parts.scheme!r}, which is not supported: {_SCHEMES}"
            )
        if not parts.hostname or parts.path not in ("", "/") or parts.fragment:
            raise _no_server(text, example)
        user = unquote(parts.username) if parts.username else None
        password = unquote(parts.password) if parts.password is not None else None
        is_token = user is not None and password is None
        return cls(
            tls=TlsOptions() if parts.scheme in ("tls", "wss") else None,
            host=parts.hostname,
            port=parts.port or _NATS_PORTS[parts.scheme],
            user=None if is_token else user,
            password=password,
            token=user if is_token else None,
            is_tls_first=_is_tls_first(parts, text, example),
            is_web=parts.scheme in ("ws", "wss"),
        )

    def with_password(self, password: str) -> NatsUrl:
        """The same server with this password for the user of the URL; without a user it is a token.

        Raises ``UrlError`` if the URL has a password."""
        if self.password is not None:
            raise _two_passwords(self)
        user = self.user or self.token
        if user is None:
            return replace(self, token=password)
        return replace(self, user=user, password=password, token=None)

    @property
    def mask(self) -> Mask:
        """Masks its password or token, and its login."""
        mask = Mask.of(self.password or self.token, user=self.user, shown=str(self))
        return mask if self.login is None else mask | self.login.mask

    @property
    def begins_with_tls(self) -> bool:
        """Whether TLS begins before INFO."""
        return self.is_tls_first or self.is_web

    def with_login(self, login: NatsLogin) -> NatsUrl:
        """The same server with this login. Raises ``UrlError`` if the URL has another one."""
        if self.user or self.password or self.token:
            raise UrlError(f"the URL of {self} already has a user or a token: give only one login")
        return replace(self, login=login)

    def credentials(self, nonce: str = "") -> dict[str, str]:
        """The CONNECT fields that authenticate. ``nonce``: of INFO, which an NKey signs."""
        fields = {"user": self.user, "pass": self.password, "auth_token": self.token}
        signed = self.login.fields(nonce) if self.login is not None else {}
        return {name: value for name, value in fields.items() if value is not None} | signed

    @property
    def flags(self) -> tuple[str, ...]:
        login = (self.login.option,) if self.login is not None else ()
        inbox = (f"--inbox-prefix={self.inbox_prefix}",) if self.inbox_prefix != "_INBOX" else ()
        api = (f"--js-api-prefix={self.api_prefix}",) if self.api_prefix != API_PREFIX else ()
        return (*super().flags, *login, *inbox, *api)

    @property
    def address(self) -> str:
        return _address(self.host, self.port)

    def __str__(self) -> str:
        """The URL without its secrets."""
        plain, encrypted = ("ws", "wss") if self.is_web else ("nats", "tls")
        scheme = plain if self.tls is None else encrypted
        first = "?handshake_first=true" if self.is_tls_first else ""
        user = f"{self.user}@" if self.user else ""
        return f"{scheme}://{user}{self.address}{first}"


class AmqpUrl(BaseUrl, frozen=True):
    """An AMQP URL: ``amqp://[user:password@]host[:port][/virtual-host]``, the virtual host percent-encoded;
    ``amqps://`` for TLS, whose port is 5671.

    Source: RabbitMQ, "URI Specification".
    """

    protocol: ClassVar[str] = "amqp"

    host: str
    port: int = 5672
    user: str = DEFAULT_USER
    password: str = DEFAULT_PASSWORD
    virtual_host: str = "/"
    mechanism: str = "PLAIN"  # of MECHANISMS

    @classmethod
    def parse(cls, text: str) -> AmqpUrl:
        """Raises ``UrlError``."""
        example = "write amqp://guest:guest@127.0.0.1:5672/%2f"
        parts = _split(text, text, example)
        path = parts.path.removeprefix("/")
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname or "/" in path:
            raise _no_server(text, example)
        if parts.query or parts.fragment:
            raise _no_server(text, example)
        is_tls = parts.scheme == "amqps"
        return cls(
            tls=TlsOptions() if is_tls else None,
            host=parts.hostname,
            port=parts.port or (5671 if is_tls else 5672),
            user=unquote(parts.username) if parts.username else DEFAULT_USER,
            password=unquote(parts.password) if parts.password is not None else DEFAULT_PASSWORD,
            virtual_host=unquote(path) if path else "/",
        )

    @property
    def flags(self) -> tuple[str, ...]:
        mechanism = (f"--auth-mechanism={self.mechanism}",) if self.mechanism != "PLAIN" else ()
        return (*super().flags, *mechanism)

    def with_password(self, password: str) -> AmqpUrl:
        """The same server with this password. Raises ``UrlError`` if the URL has a password."""
        if self.password != DEFAULT_PASSWORD:
            raise _two_passwords(self)
        return replace(self, password=password)

    @property
    def mask(self) -> Mask:
        """Masks its password. The default of RabbitMQ is no secret."""
        secret = "" if (self.user, self.password) == (DEFAULT_USER, DEFAULT_PASSWORD) else self.password
        return Mask.of(secret, user=self.user, shown=str(self))

    @property
    def address(self) -> str:
        return _address(self.host, self.port)

    def __str__(self) -> str:
        """The URL without its secrets."""
        scheme = "amqp" if self.tls is None else "amqps"
        user = "" if self.mechanism == "EXTERNAL" else f"{self.user}@"
        return f"{scheme}://{user}{self.address}/{quote(self.virtual_host, safe='')}"


AnyUrl = NatsUrl | AmqpUrl


def url_with_password(text: str, password: str) -> str:
    """``text`` with a password for its user, or as a token. Not for a report or a command line: it has the
    secret in it. Raises ``UrlError`` if it has a password already."""
    url = parse_url(text)
    url.with_password(password)  # which refuses a second one
    user = url.user if isinstance(url, AmqpUrl) else url.user or url.token
    login = ":".join(quote(part, safe="") for part in (user, password) if part)
    scheme, _, place = str(url).partition("://")
    return f"{scheme}://{login}@{place.rpartition('@')[2]}"


def parse_url(text: str) -> AnyUrl:
    """A URL of any protocol; NATS if it does not say. Raises ``UrlError``."""
    return AmqpUrl.parse(text) if text.startswith(("amqp:", "amqps:")) else NatsUrl.parse(text)


def _is_tls_first(parts: SplitResult, text: str, example: str) -> bool:
    """Whether the query says that TLS begins before INFO. Raises ``UrlError`` for any other query."""
    if not parts.query:
        return False
    if parts.scheme != "tls" or parse_qsl(parts.query) not in (
        [("handshake_first", "true")],
        [("handshake_first", "false")],
    ):
        raise UrlError(
            f"{masked_url(text)!r}: ?handshake_first=true is for URLs that begin with tls://; {example}"
        )
    return parts.query.endswith("true")


def _split(url: str, text: str, example: str) -> SplitResult:
    """The parts of ``url``, which the user wrote as ``text``. Raises ``UrlError``."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its text has what it took for a port, which may be part of a password
        raise UrlError(
            f"{masked_url(text)!r} is not a URL: the port is a number up to 65535; {_ENCODE}; {example}"
        ) from None
    return parts


def _no_server(text: str, example: str) -> UrlError:
    advice = f"{_ENCODE}; " if "@" in text else ""
    return UrlError(f"{masked_url(text)!r} is not the URL of a server: {advice}{example}")


def _two_passwords(url: AnyUrl) -> UrlError:
    return UrlError(f"the URL of {url} already has a password: give only one")


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
