"""The server under test: its URL, what it says of itself, how quick it is.

``open_target`` is the liveness probe: it either gives a calibrated ``TargetAccess`` or raises one
clear sentence, within five seconds. Nothing here judges.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import re
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from conformance.verdicts import Target
from wire.errors import ProtocolError
from wire.nats import Connect, Decoder, Err, Info, Operation, Ping, Pong, Sender

CONNECT_TIMEOUT_S = 2.0
SPEAK_FIRST_S = 1.5  # how long a NATS server may take to send INFO (it speaks first)
ANSWER_S = 1.0
PROBE_S = 3.0  # all of a probe: what answers every second byte in time is no target either
ROUND_TRIPS = 9
ROUND_TRIPS_S = 1.0  # of a slow target fewer round trips are measured
BUSY_ROUND_TRIPS = 30
BUSY_PAUSE_S = 0.01
LEAST_SLACK_S = 0.05
MOST_SLACK_S = 2.0
SLACK_ROUND_TRIPS = 20

_FEATURES = ("headers", "jetstream", "auth_required", "tls_required", "tls_available", "nonce")


class BadUrl(ValueError):
    """The URL is not one of a NATS server; the text says what to write instead."""


class TargetUnreachable(Exception):
    """Nothing at the URL speaks NATS; the text is one sentence for the user."""


class AccessRefused(Exception):
    """The target speaks NATS and does not let us in; the text says what to write instead."""


class Url(Struct, frozen=True):
    """A NATS URL: ``nats://[user:password@|token@]host[:port]``."""

    host: str
    port: int = 4222
    user: str | None = None
    password: str | None = None
    token: str | None = None

    @classmethod
    def parse(cls, text: str) -> Url:
        """Raises ``BadUrl``."""
        example = "write nats://127.0.0.1:4222 or nats://user:password@host:4222"
        try:
            parts = urlsplit(text if "://" in text else f"nats://{text}")
            port = parts.port or 4222
        except ValueError as error:
            raise BadUrl(f"{mask(text)!r} is not a URL ({error}): {example}") from None
        if parts.scheme != "nats":
            raise BadUrl(f"{mask(text)!r} has the scheme {parts.scheme!r}, which is not supported: {example}")
        if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise BadUrl(f"{mask(text)!r} is not the URL of a server: {example}")
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
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        """The URL without its secrets."""
        return f"nats://{self.user}@{self.address}" if self.user else f"nats://{self.address}"


def mask(url: str) -> str:
    """``url`` with what may be a secret blotted out."""
    return re.sub(r"//[^@/]*@", "//***@", url)


class TargetAccess:
    """How checks reach the target. One per process; hands out names that no other check uses."""

    def __init__(
        self,
        url: Url,
        target: Target,
        info: Mapping[str, Any],
        variants: Mapping[str, str] | None = None,
        run: str = "0",
        worker: str = "",
    ) -> None:
        self.url = url
        self.target = target
        self.info = dict(info)
        self.variants = dict(variants or {})
        self.run = run
        self.program: tuple[str, ...] = ()  # starts another server like it, where Plumbline knows how
        self._worker = worker
        self._counter = itertools.count(1)

    @property
    def prefix(self) -> str:
        """What every object of this run starts with."""
        return f"PL{self.run}"

    @property
    def level(self) -> tuple[int, ...]:
        return parse_level(self.target.level)

    @property
    def slack_s(self) -> float:
        return self.target.slack_s

    def calibrated_again(self) -> TargetAccess:
        """The same target with the slack that it needs now, which is more if this machine has become busy.

        What is measured is how late we are when we wait for a moment and then for an answer, since that is
        what checks do.
        """
        try:
            _, late = probe(self.url, BUSY_ROUND_TRIPS, pause_s=BUSY_PAUSE_S)
        except (TargetUnreachable, AccessRefused):
            return self
        busy = copy.copy(self)
        slack = max(self.target.slack_s, _slack(late))
        busy.target = msgspec.structs.replace(self.target, slack_s=slack)
        return busy

    def next_token(self) -> str:
        """A name prefix for one check; unique on the target."""
        return f"{self.prefix}{self._worker}x{next(self._counter)}"

    def url_of(self, variant: str | None) -> Url | None:
        """Where a variant of the target listens; None if the run names none."""
        if variant is None:
            return self.url
        text = self.variants.get(variant)
        return Url.parse(text) if text else None

    def is_alive(self, url: Url | None = None) -> bool:
        """Whether a fresh connection (to a variant's ``url``, say) is answered, without a restart between.

        A variant may refuse whom it does not know (NKeys) or has no room for: a refusal is an answer too.
        """
        if url is None or url == self.url:
            return not self.absence()
        try:
            probe(url)
        except AccessRefused:
            return True
        except TargetUnreachable:
            return False
        return True

    def absence(self) -> str:
        """Why the target that the run began with is no longer there, in a sentence; empty if it is."""
        try:
            info, _ = probe(self.url)
        except (TargetUnreachable, AccessRefused) as error:
            return str(error)
        if _identity(info) != _identity(self.info):
            return f"Another server process answers at {self.url.address}: it was restarted during the run."
        return ""


def _identity(info: Mapping[str, Any]) -> Any:
    """What stays the same while a target lives; behind one address there may be all servers of a cluster."""
    return info.get("cluster") or info.get("server_id")


def parse_level(text: str) -> tuple[int, ...]:
    """``"v2.10.14-beta"`` -> ``(2, 10, 14)``: the numbers of a version. Raises ``ValueError``."""
    match = re.match(r"v?(\d{1,9}(?:\.\d{1,9})+)", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a protocol level: write one such as 2.9")
    return tuple(map(int, match[1].split(".")))


def open_target(
    url: Url, *, level: str | None = None, variants: Mapping[str, str] | None = None, run: str = "0"
) -> TargetAccess:
    """Probe and calibrate. Raises ``TargetUnreachable`` or ``AccessRefused``, each with one sentence."""
    info, round_trips = probe(url, round_trips=ROUND_TRIPS)
    version = str(info.get("version", ""))
    try:
        chosen = ".".join(map(str, parse_level(level or version)))
    except ValueError:
        raise AccessRefused(
            f"{url} reports version {version!r}, from which no protocol level follows: add --level 2.9"
        ) from None
    target = Target(
        url=str(url),
        server_name=str(info.get("server_name", "")),
        version=version,
        level=chosen,
        features=tuple(name for name in _FEATURES if info.get(name)),
        rtt_s=statistics.median(round_trips),
        slack_s=_slack(round_trips),
        variants=tuple(sorted(variants or {})),
    )
    return TargetAccess(url, target, info, variants, run)


def _slack(round_trips: Sequence[float]) -> float:
    return min(MOST_SLACK_S, LEAST_SLACK_S + SLACK_ROUND_TRIPS * max(round_trips))


def probe(url: Url, round_trips: int = 1, *, pause_s: float = 0.0) -> tuple[dict[str, Any], list[float]]:
    """INFO's fields, and the round trips of some PINGs in seconds.

    With ``pause_s`` each is preceded by such a wait; how much longer that took counts as well.
    Raises ``TargetUnreachable`` or ``AccessRefused``.
    """
    try:
        link = socket.create_connection((url.host, url.port), CONNECT_TIMEOUT_S)
    except socket.gaierror as error:
        raise TargetUnreachable(f"{url.host} is not a known host ({error.strerror}).") from None
    except ConnectionRefusedError:
        raise TargetUnreachable(f"Nothing listens at {url.address} (connection refused).") from None
    except OSError as error:
        raise TargetUnreachable(f"{url.address} cannot be reached ({error}).") from None
    with link:
        try:
            return _greet(link, url, round_trips, pause_s)
        except ProtocolError as error:
            if error.excerpt.startswith(b"HTTP/"):
                raise TargetUnreachable(f"{url.address} speaks HTTP, not NATS.") from None
            raise TargetUnreachable(f"{url.address} does not speak NATS: {error}.") from None
        except OSError as error:
            raise TargetUnreachable(f"{url.address} broke the connection off ({error}).") from None


def _greet(
    link: socket.socket, url: Url, round_trips: int, pause_s: float
) -> tuple[dict[str, Any], list[float]]:
    reader = _Reader(link, url, time.monotonic() + PROBE_S)
    try:
        first = reader.next(SPEAK_FIRST_S)
    except TimeoutError:
        # An HTTP server waits for a request: an answer to this tells it from one that is silent.
        link.sendall(b"PING\r\n\r\n")
        try:
            first = reader.next(ANSWER_S)
        except TimeoutError:
            raise TargetUnreachable(
                f"{url.address} accepts connections and says nothing; a NATS server sends INFO first."
            ) from None
    if not isinstance(first, Info):
        raise TargetUnreachable(f"{url.address} does not speak NATS: it began with {str(first)[:80]!r}.")
    info = first.fields
    if info.get("tls_required"):
        raise AccessRefused(f"{url} requires TLS, which Plumbline does not speak yet: use a plain listener")
    headers = bool(info.get("headers"))  # a server without headers refuses who asks for no_responders
    connect = {**CONNECT_DEFAULTS, "headers": headers, "no_responders": headers, **url.credentials}
    _send(link, Connect.make(connect))
    return info, _round_trips(link, reader, url, round_trips, pause_s)


def _round_trips(link: socket.socket, reader: _Reader, url: Url, count: int, pause_s: float) -> list[float]:
    until = time.monotonic() + ROUND_TRIPS_S
    found = [_round_trip(link, reader, url, pause_s)]
    while len(found) < count and time.monotonic() < until:
        found.append(_round_trip(link, reader, url, pause_s))
    return found


def _round_trip(link: socket.socket, reader: _Reader, url: Url, pause_s: float) -> float:
    began = time.monotonic() + pause_s
    time.sleep(pause_s)
    _send(link, Ping.make())
    while True:
        try:
            operation = reader.next(ANSWER_S)
        except TimeoutError:
            raise TargetUnreachable(f"{url.address} does not answer PING within {ANSWER_S:.0f} s.") from None
        if isinstance(operation, Pong):
            return time.monotonic() - began
        if isinstance(operation, Ping):
            _send(link, Pong.make())
        if isinstance(operation, Err):
            raise AccessRefused(
                f"{url} refuses the connection: {operation.message}. "
                f"Write the credentials into the URL: nats://user:password@{url.address}"
            )


def _send(link: socket.socket, operation: Operation) -> None:
    """Write it. If the server has closed already, what it said before is still to be read: no error here."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        link.sendall(operation.raw)


class _Reader:
    """Operations one at a time from a blocking socket, each within a deadline."""

    def __init__(self, link: socket.socket, url: Url, deadline: float) -> None:
        self._link = link
        self._url = url
        self._deadline = deadline
        self._decoder = Decoder(Sender.SERVER)
        self._ready: list[Operation] = []
        self._spoke = False

    def next(self, within: float) -> Operation:
        """Raises ``TimeoutError``, ``ProtocolError``, ``TargetUnreachable`` (closed)."""
        deadline = min(time.monotonic() + within, self._deadline)
        while (left := deadline - time.monotonic()) > 0 and not self._ready:
            self._link.settimeout(left)
            data = self._link.recv(65536)
            if not data:
                raise TargetUnreachable(f"{self._url.address} closes the connection {self._when()}.")
            try:
                self._ready = self._decoder.feed(data)
            except ProtocolError as error:
                if not error.operations:
                    raise
                self._ready = list(error.operations)
        if left <= 0:  # also of a peer that never stops talking
            raise TimeoutError
        self._spoke = True
        return self._ready.pop(0)

    def _when(self) -> str:
        return "before it answers PING" if self._spoke else "without a word of NATS"


# docs.nats.io, "Client Protocol", CONNECT: what an ordinary client of today asks for.
CONNECT_DEFAULTS: dict[str, Any] = {
    "verbose": False,
    "pedantic": False,
    "lang": "plumbline",
    "version": "0",
    "protocol": 1,
    "headers": True,
    "no_responders": True,
}
