"""The liveness probe of an AMQP broker: connection.start, and how long a channel takes. Judges nothing."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Collection, Mapping
from typing import Any

from plumbline.conformance.amqp.handshake import open_, start_ok, tune_ok
from plumbline.conformance.targets.links import Link
from plumbline.conformance.targets.urls import MECHANISMS, AccessRefusedError, AmqpUrl
from plumbline.errors import TargetUnreachable
from plumbline.passwords import VARIABLE
from plumbline.wire.amqp import Decoder, Limits, Method, Operation, ProtocolHeader, Sender
from plumbline.wire.errors import ProtocolError

ANSWER_S = 2.0
REFUSED_S = 5.0  # RabbitMQ closes 3 s after a refused login
PROBE_S = 8.0
LIMITS = Limits(max_body=64 * 1024)  # a probe asks for no message
ROUND_TRIPS_S = 1.0  # of a slow target fewer round trips are measured


# Products that speak RabbitMQ's dialect, and whose version is one of RabbitMQ's.
_RABBITMQ = frozenset({"RabbitMQ", "Plumbline-reference-broker"})
_PROTOCOL = "0.9.1"


def is_rabbitmq(claimed: Collection[str]) -> bool:
    """Whether a target with these features says that it is RabbitMQ, or just like it."""
    return bool(_RABBITMQ.intersection(claimed))


def level(version: str, claimed: Collection[str]) -> str:
    """AMQP's levels are RabbitMQ's versions; another server has the protocol's own version."""
    return version if is_rabbitmq(claimed) else _PROTOCOL


def features(info: Mapping[str, Any]) -> tuple[str, ...]:
    """The capabilities that the server claims, and its product."""
    capabilities = info.get("capabilities")
    claimed = capabilities if isinstance(capabilities, Mapping) else {}
    product = str(info.get("product", "")).replace(" ", "-")
    return (*(name for name, value in claimed.items() if value is True), *([product] if product else []))


def identity(info: Mapping[str, Any]) -> Any:
    """What stays the same while a target lives."""
    return info.get("cluster_name"), info.get("product"), info.get("version")


def probe(link: Link, url: AmqpUrl, round_trips: int, pause_s: float) -> tuple[dict[str, Any], list[float]]:
    """The server properties, and the round trips of some channel.open in seconds, over a fresh connection.

    Raises ``TargetUnreachable`` or ``AccessRefusedError``; ``OSError`` if the peer breaks off.
    """
    try:
        return _Probe(link, url).run(round_trips, pause_s)
    except ProtocolError as error:
        spoken = (
            "speaks HTTP, not AMQP" if error.excerpt.startswith(b"HTTP/") else f"does not speak AMQP: {error}"
        )
        raise TargetUnreachable(f"{url.address} {spoken}.") from None


class _Probe:
    """One connection, one operation at a time, each within a deadline."""

    def __init__(self, link: Link, url: AmqpUrl) -> None:
        self._link = link
        self._url = url
        self._decoder = Decoder(Sender.SERVER, LIMITS)
        self._ready: list[Operation] = []
        self._deadline = time.monotonic() + PROBE_S

    def run(self, round_trips: int, pause_s: float) -> tuple[dict[str, Any], list[float]]:
        self._send(ProtocolHeader.make())
        start = self._receive("connection.start", "does not answer the protocol header", ANSWER_S)
        _require_mechanism(self._url, start)
        self._send(start_ok(self._url, {}))
        tune = self._login()
        self._send(tune_ok(tune, {}), open_(self._url, {}))
        self._receive("connection.open-ok", "does not answer connection.open", ANSWER_S)
        until = time.monotonic() + ROUND_TRIPS_S
        # Each opens a channel more and closes none: what closes a channel is for the checks to see.
        count = min(round_trips, tune.arguments["channel_max"] or round_trips)
        found = [self._round_trip(1, pause_s)]
        while len(found) < count and time.monotonic() < until:
            found.append(self._round_trip(len(found) + 1, pause_s))
        with contextlib.suppress(OSError, TargetUnreachable):
            self._send(Method.make("connection.close", reply_code=200, reply_text="bye"))
            self._receive("connection.close-ok", "does not close", ANSWER_S)
        return _server_info(start, tune), found

    def _login(self) -> Method:
        try:
            return self._receive("connection.tune", "does not answer connection.start-ok", REFUSED_S)
        except ssl.SSLError:
            raise  # it is about a certificate
        except (OSError, TargetUnreachable, AccessRefusedError) as error:
            place = f"amqp://user:password@{self._url.address}/%2f"
            advice = (
                f"write the credentials into the URL: {place}, or the password into {VARIABLE}; for a client "
                "certificate use --auth-mechanism EXTERNAL."
            )
            raise AccessRefusedError(f"{error} To log in, {advice}") from None

    def _round_trip(self, channel: int, pause_s: float) -> float:
        began = time.monotonic() + pause_s
        time.sleep(pause_s)
        self._send(Method.make("channel.open", channel))
        self._receive("channel.open-ok", "does not answer channel.open", ANSWER_S)
        return time.monotonic() - began

    def _send(self, *operations: Operation) -> None:
        """If the server has closed already, what it sent before is still to be read: no error here."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._link.sendall(b"".join(operation.raw for operation in operations))

    def _receive(self, method: str, failure: str, within: float) -> Method:
        """Raises ``TargetUnreachable``, ``AccessRefusedError`` for a refusal, and as decoder
        and socket do."""
        deadline = min(time.monotonic() + within, self._deadline)
        while True:
            while self._ready:
                operation = self._ready.pop(0)
                if isinstance(operation, Method) and operation.method == method:
                    return operation
                if isinstance(operation, Method) and operation.method == "connection.close":
                    raise AccessRefusedError(
                        f"{self._url} refuses the connection: {operation.arguments['reply_text']}"
                    )
                if isinstance(operation, ProtocolHeader):
                    raise TargetUnreachable(f"{self._url.address} does not speak AMQP 0-9-1: {operation}.")
            left = deadline - time.monotonic()
            if left <= 0:
                raise TargetUnreachable(f"{self._url.address} accepts connections and {failure}.")
            self._link.settimeout(left)
            try:
                data = self._link.recv(65536)
            except TimeoutError:
                continue
            if not data:
                raise TargetUnreachable(f"{self._url.address} closes the connection and {failure}.")
            try:
                self._ready = self._decoder.feed(data)
            except ProtocolError as error:
                if not error.operations:
                    raise
                self._ready = list(error.operations)


def offered_mechanisms(start: Method) -> list[str]:
    """The SASL mechanisms of connection.start."""
    mechanisms = start.arguments["mechanisms"]
    text = mechanisms.decode("utf-8", "replace") if isinstance(mechanisms, bytes) else str(mechanisms)
    return text.split()


def _require_mechanism(url: AmqpUrl, start: Method) -> None:
    offered = offered_mechanisms(start)
    known = [name for name in MECHANISMS if name in offered]
    if url.mechanism not in offered and (known or url.mechanism != "PLAIN"):
        raise AccessRefusedError(
            f"{url} does not offer the mechanism {url.mechanism} (it offers {', '.join(offered) or 'none'}): "
            "choose one with --auth-mechanism"
        )


def _server_info(start: Method, tune: Method) -> dict[str, Any]:
    properties = dict(start.arguments["server_properties"])
    return {
        **properties,
        "server_name": properties.get("cluster_name", properties.get("product", "")),
        "mechanisms": start.arguments["mechanisms"],
        **tune.arguments,
    }
