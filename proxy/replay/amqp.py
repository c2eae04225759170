"""Replays an AMQP client: translates the names and tags that the server chose.

A queue that was declared without a name, a consumer without a tag, and the delivery tags of what is delivered
are bound by their place: the third message of a consumer now is the third of that consumer then. Confirms are
counted by the messages that they confirm, since one may confirm several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from plumbline.captures.amqp.confirms import ConfirmedMessages
from plumbline.captures.amqp.dialect import LIMITS
from plumbline.captures.redaction import MASK
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.replay.client import ReplayClient, ReplayCredentials, UnplayableCaptureError
from plumbline.proxy.replay.renaming import renamed
from plumbline.wire.amqp import (
    DEFAULT_FRAME_MAX,
    Decoder,
    Heartbeat,
    Method,
    Operation,
    ProtocolHeader,
    Sender,
)

GUEST = ReplayCredentials("guest", "guest")
CONFIRMS = frozenset({"basic.ack", "basic.nack"})
NAMED_BY_SERVER = {"queue.declare-ok": "queue", "basic.consume-ok": "consumer_tag"}
WITH_TAG = frozenset({"basic.ack", "basic.nack", "basic.reject"})
_BEHIND_START = ("channel_max", "frame_max", "heartbeat")


class ServerReferences:
    """What a server sent on one connection, then or now, as far as a client refers to it."""

    def __init__(self) -> None:
        self.names: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        self.tags: defaultdict[tuple[int, str], list[int]] = defaultdict(list)  # by channel and consumer
        self.operations = 0
        self._confirmed: defaultdict[int, ConfirmedMessages] = defaultdict(ConfirmedMessages)

    @property
    def count(self) -> int:
        """Operations, a confirm of several messages being several."""
        return self.operations + sum(channel.count for channel in self._confirmed.values())

    def add(self, operation: Operation) -> None:
        """The server says this."""
        if not isinstance(operation, Method):
            return
        arguments, channel = operation.arguments, operation.channel
        if operation.method in CONFIRMS:
            self._confirmed[channel].settle(arguments["delivery_tag"], multiple=arguments["multiple"])
            return
        self.operations += 1
        if operation.method in NAMED_BY_SERVER:
            name = NAMED_BY_SERVER[operation.method]
            self.names[channel, operation.method].append(arguments[name])
        elif operation.method in ("basic.deliver", "basic.get-ok"):
            self.tags[channel, arguments.get("consumer_tag", "")].append(arguments["delivery_tag"])
            reply_to = (operation.properties or {}).get("reply_to")
            self.names[channel, "reply_to"].append(str(reply_to or ""))


class AmqpClient(ReplayClient):
    """See ``ReplayClient``. ``names`` is shared by all connections: then -> now."""

    greeting = "connection.start"
    heartbeat = Heartbeat.make().raw

    def __init__(
        self, server: Endpoint, login: ReplayCredentials, opening: Operation, names: dict[str, str]
    ) -> None:
        if not isinstance(opening, ProtocolHeader):
            raise UnplayableCaptureError("the beginning of the connection is not in the capture")
        super().__init__(server, Decoder(Sender.SERVER, LIMITS))
        self._login = login
        self._names = names
        self._then, self._now = ServerReferences(), ServerReferences()
        self._tuned: Mapping[str, int] = {}
        self.send(opening.raw)

    def recorded(self, operation: Operation) -> None:
        self._then.add(operation)
        self.expected = self._then.count

    def take(self, operation: Operation) -> None:
        self.is_greeted = True
        self._now.add(operation)
        self.received_count = self._now.count
        if operation.method == "connection.tune" and isinstance(operation, Method):
            self._tuned = operation.arguments

    def translated(self, operation: Operation) -> bytes | None:
        if not isinstance(operation, Method):
            return None  # heartbeats have their own time, and the header was sent
        self._match_references()
        arguments = {name: renamed(value, self._names) for name, value in operation.arguments.items()}
        properties = operation.properties and renamed(operation.properties, self._names)
        match operation.method:
            case "connection.start-ok":
                arguments |= self._authenticated(arguments)
            case "connection.tune-ok":
                arguments |= {name: self._negotiated(name, arguments[name]) for name in _BEHIND_START}
                self.heartbeat_s = arguments["heartbeat"]
            case "connection.open" if self._login.virtual_host is not None:
                arguments["virtual_host"] = self._login.virtual_host
            case method if method in WITH_TAG:
                arguments["delivery_tag"] = self._tag(operation.channel, arguments["delivery_tag"])
        frame_max = self._tuned.get("frame_max") or DEFAULT_FRAME_MAX
        is_same = arguments == operation.arguments and properties == operation.properties
        if is_same and len(operation.raw) <= frame_max:
            return operation.raw
        return Method.make(
            operation.method,
            operation.channel,
            properties=properties,
            body=operation.body,
            max_frame=frame_max,
            **arguments,
        ).raw

    # -- bound to what is now ----------------------------------------------------------------

    def _match_references(self) -> None:
        for place, then in self._then.names.items():
            for old, new in zip(then, self._now.names[place], strict=False):
                if old and old != new:
                    self._names[old] = new

    def _tag(self, channel: int, tag: int) -> int:
        """The tag now of what was delivered with ``tag``; a tag of nothing stays as it is."""
        for (number, consumer), tags in self._then.tags.items():
            if number == channel and tag in tags:
                at = tags.index(tag)
                now = self._now.tags[channel, self._names.get(consumer, consumer)]
                return now[at] if at < len(now) else tag
        return tag

    def _negotiated(self, name: str, value: int) -> int:
        """No more than the server offers; 0 is no limit."""
        offered = self._tuned.get(name, 0)
        return min(value, offered) if value and offered else value or (0 if name == "heartbeat" else offered)

    def _authenticated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        response = arguments["response"]
        response_bytes = (
            response.encode("utf-8", "surrogateescape") if isinstance(response, str) else bytes(response)
        )
        is_masked = not set(response_bytes) - {MASK, 0}
        login = self._login if self._login.user else GUEST
        if not is_masked and not self._login.user:
            return {}
        return {"mechanism": "PLAIN", "response": f"\0{login.user}\0{login.password or ''}"}
