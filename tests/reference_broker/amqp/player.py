"""Plays a scenario against an AMQP server over sockets and writes the answers down, so that servers compare.

What differs from run to run or is no contract (generated names, times, details of frame errors, how
confirms are put together) is written as a placeholder.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from plumbline.wire.amqp import PROTOCOL_HEADER, Decoder, Method, Operation, Sender, frame

ARRIVES_WITHIN_S = 10.0
TAKEN_WITHIN_S = 30.0
QUIET_S = 0.03  # how long nothing must come before we believe that nothing comes
CLIENT_CAPABILITIES = {"consumer_cancel_notify": True, "authentication_failure_close": True}
HIDDEN = {"reserved_1", "server_properties"}

_GENERATED = re.compile(r"amq\.(gen|ctag)-[A-Za-z0-9_-]{22}")
_ADDRESS = re.compile(r"(amq\.rabbitmq\.reply-to)\.[^ ']+")
_FRAME_DETAIL = re.compile(r"^((?:FRAME|INTERNAL|SYNTAX)_ERROR|UNEXPECTED_FRAME)( - .*)?$", re.DOTALL)


class Link:
    """One connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.decoder = Decoder(Sender.SERVER)
        self.arrived: list[Operation] = []
        self.ended = False

    def read(self, within: float) -> bool:
        """Take in what comes; False if nothing did."""
        if self.ended:
            return False
        self.socket.settimeout(max(within, 0.001))
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            return False
        except ConnectionError:
            data = b""
        if not data:
            self.ended = True
            return False
        self.arrived += self.decoder.feed(data)
        return True

    def send(self, data: bytes) -> None:
        self.socket.settimeout(TAKEN_WITHIN_S)
        try:
            self.socket.sendall(data)
        except ConnectionError:
            self.ended = True


class Player:
    """Connections by name, and the ``log`` of what happened on them."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "127.0.0.1", parts.port or 5672)
        self.links: dict[str, Link] = {}
        self.log: list[str] = []
        self.settled: dict[str, dict[int, str]] = {}  # confirms by connection: one channel each
        self.filled = 0
        self.queues: dict[str, None] = {}
        self.exchanges: dict[str, None] = {}

    # Connections

    def dial(self, link: str = "a") -> Link:
        """A socket that has sent nothing."""
        self.links[link] = Link(self.address)
        return self.links[link]

    def connect(self, link: str = "a", channels: int = 1, **tune: int) -> Link:
        """An open connection with that many channels; nothing of it is logged."""
        made = self.dial(link)
        log, self.log = self.log, []
        made.send(PROTOCOL_HEADER)
        self.take(1, link)
        self.send(
            "connection.start-ok",
            0,
            link,
            client_properties={"capabilities": CLIENT_CAPABILITIES},
            mechanism="PLAIN",
            response="\0guest\0guest",
            locale="en_US",
        )
        self.take(1, link)
        self.send("connection.tune-ok", 0, link, **{"channel_max": 2047, "frame_max": 131072, **tune})
        self.send("connection.open", 0, link, virtual_host="/")
        for number in range(1, channels + 1):
            self.send("channel.open", number, link)
        self.take(1 + channels, link)
        self.log = log
        return made

    def close(self) -> None:
        """Delete what was declared, then leave."""
        log, self.log = self.log, []
        self.connect("cleaner")
        for name in self.queues:
            self.send("queue.delete", 1, "cleaner", queue=name)
        for name in self.exchanges:
            self.send("exchange.delete", 1, "cleaner", exchange=name)
        self.take(len(self.queues) + len(self.exchanges), "cleaner")
        self.log = log
        for link in self.links.values():
            link.socket.close()

    # Steps of a scenario

    def send(self, method: str, channel: int = 1, link: str = "a", **arguments: Any) -> None:
        """Send a method and write it down; answers are for ``expect``."""
        if method == "queue.declare" and arguments.get("queue"):
            self.queues[arguments["queue"]] = None
        if method == "exchange.declare" and not arguments["exchange"].startswith("amq."):
            self.exchanges[arguments["exchange"]] = None
        operation = Method.make(method, channel, **arguments)
        self.log.append(f"{link}> {steady(str(operation))}")
        self.links[link].send(operation.raw)

    def raw(self, data: bytes, link: str = "a") -> None:
        self.log.append(f"{link}> {data[:40]!r}")
        self.links[link].send(data)

    def method_frame(self, payload: bytes, channel: int = 1, link: str = "a") -> None:
        self.raw(frame(1, channel, payload), link)

    def take(self, count: int, link: str = "a", within: float = ARRIVES_WITHIN_S) -> list[Operation]:
        """What arrives; ``count`` only ends the wait."""
        source = self.links[link]
        deadline = time.monotonic() + within
        while len(source.arrived) < count and not source.ended and time.monotonic() < deadline:
            source.read(deadline - time.monotonic())
        while source.read(QUIET_S):
            pass
        taken, source.arrived = source.arrived, []
        return taken

    def expect(self, count: int, link: str = "a", within: float = ARRIVES_WITHIN_S) -> list[Operation]:
        """Write down what arrives; between channels there is no order."""
        taken = self.take(count, link, within)
        taken.sort(key=lambda operation: operation.channel)
        self.log += [f"{link}< {log_text(operation)}" for operation in taken] or [f"{link}< nothing"]
        return taken

    def end(self, link: str = "a", within: float = 6.0) -> None:
        """Write down what arrives until the server closes the socket."""
        source = self.links[link]
        deadline = time.monotonic() + within
        while not source.ended and time.monotonic() < deadline:
            source.read(deadline - time.monotonic())
        self.log += [f"{link}< {log_text(operation)}" for operation in source.arrived]
        source.arrived = []
        self.log.append(f"{link}< {'closed' if source.ended else 'still open'}")

    def ask(
        self, method: str, channel: int = 1, link: str = "a", *, answers: int = 1, **arguments: Any
    ) -> list[Operation]:
        """Send, and write down what comes back."""
        self.send(method, channel, link, **arguments)
        return self.expect(answers, link)

    def queue(self, name: str, link: str = "a", **arguments: Any) -> None:
        self.ask("queue.declare", 1, link, queue=name, **arguments)

    def publish(self, queue: str, *bodies: str, link: str = "a", channel: int = 1, **options: Any) -> None:
        """To the default exchange, confirmed by the arrival of what came after them on another channel."""
        for body in bodies:
            self.send("basic.publish", channel, link, routing_key=queue, body=body.encode(), **options)

    def fill(self, queue: str, *bodies: str, **options: Any) -> None:
        """Publish, and wait until the queue has them; a connection of its own does it."""
        if "filler" not in self.links:
            self.connect("filler")
            log, self.log = self.log, []
            self.ask("confirm.select", 1, "filler")
            self.log = log
        log, self.log = self.log, []
        self.publish(queue, *bodies, link="filler", **options)
        acked = 0
        deadline = time.monotonic() + ARRIVES_WITHIN_S
        self.filled += len(bodies)
        while acked < self.filled and time.monotonic() < deadline:
            for one in self.take(1, "filler"):
                assert isinstance(one, Method), one
                acked = max(acked, one.arguments.get("delivery_tag", 0))
        self.log = [*log, f"= {queue} gets {' '.join(bodies)}"]

    def confirms(self, count: int, link: str = "a") -> None:
        """Write down returns in their order, and what was acked and nacked, ``count`` in all so far."""
        settled = self.settled.setdefault(link, {})
        deadline = time.monotonic() + ARRIVES_WITHIN_S
        while len(settled) < count and time.monotonic() < deadline:
            for one in self.take(1, link):
                assert isinstance(one, Method), one
                if one.method not in ("basic.ack", "basic.nack"):
                    self.log.append(f"{link}< {log_text(one)}")
                    continue
                tag = one.arguments["delivery_tag"]
                first = 1 if one.arguments["multiple"] else tag
                for each in range(first, tag + 1):
                    settled.setdefault(each, one.method)
        self.log.append(f"{link}< confirms {sorted(settled.items())}")

    def count(self, queue: str, ready: int) -> None:
        """Real servers count a little later: wait, unlogged, until the queue has that many ready."""
        if "counter" not in self.links:
            self.connect("counter")
        log, self.log = self.log, []
        deadline = time.monotonic() + ARRIVES_WITHIN_S
        found: Any = None
        while time.monotonic() < deadline:
            self.send("queue.declare", 1, "counter", queue=queue, passive=True)
            (answer,) = self.take(1, "counter")
            assert isinstance(answer, Method)
            found = answer.arguments.get("message_count")
            if found in (ready, None):
                break
        if found is None:
            self.links.pop("counter").socket.close()
        self.log = [*log, f"= {queue} has {found} ready"]

    def drain(self, queue: str, link: str = "a") -> None:
        """Get everything without acknowledgement, and write it down."""
        while True:
            answer = self.ask("basic.get", 1, link, queue=queue, no_ack=True)
            if not answer or answer[0].method != "basic.get-ok":
                return

    def leave(self, link: str) -> None:
        """Without a word."""
        self.links.pop(link).socket.close()


def log_text(operation: Operation) -> str:
    """An operation without what differs from run to run."""
    if not isinstance(operation, Method):
        return str(operation)
    values = {name: _value(name, value) for name, value in operation.arguments.items() if name not in HIDDEN}
    text = " ".join([f"[{operation.channel}] {operation.method}", *(f"{n}={v}" for n, v in values.items())])
    if operation.properties is None:
        return steady(text)
    properties = " ".join(f"{name}={_value(name, value)}" for name, value in operation.properties.items())
    return steady(f"{text} | {properties} {operation.body[:40]!r}")


def steady(text: str) -> str:
    return _ADDRESS.sub(r"\1.ADDRESS", _GENERATED.sub(r"amq.\1-NAME", text))


def _value(name: str, value: Any) -> Any:
    if name == "mechanisms":
        return " ".join(sorted(value.split()))
    if name == "reply_text" and (found := _FRAME_DETAIL.match(value)):
        return found[1]
    if isinstance(value, Mapping):
        return {key: _value(key, one) for key, one in sorted(value.items())}
    if isinstance(value, list):
        return [_value("", one) for one in value]
    return "T" if name == "time" else value


Scenario = Callable[[Player], None]
