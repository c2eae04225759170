"""The adapter protocol as values: what ``PROTOCOL.md`` says in words. Lines in, lines out; no processes here.

A command is a plain object with ``id`` and ``do``; its fields are in the tables of ``PROTOCOL.md``. What an
adapter writes is one of ``Hello``, ``Answer`` and ``Told`` (an event).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

VERSION = "plumbline.adapter/1"

# What adapters may say they can do, by protocol. ``PROTOCOL.md`` says which command needs which.
FEATURES: Mapping[str, frozenset[str]] = {
    "nats": frozenset(
        {
            "publish",
            "request",
            "subscribe",
            "unsubscribe.after",
            "js.create",
            "js.publish",
            "fetch",
            "fetch.no_wait",
            "fetch.heartbeat",
            "consume",
            "push",
            "ack",
            "ack.nak",
            "ack.nak.delay",
            "ack.progress",
            "ack.term",
            "ack.term.reason",
            "ack.next",
            "ack.next.batch",
            "ack.sync",
        }
    ),
    "amqp": frozenset(
        {
            "declare",
            "publish",
            "publish.mandatory",
            "publish.async",
            "publish.message_id",
            "reconnect",
            "confirm",
            "consume",
            "get",
            "ack",
            "ack.multiple",
            "nack",
            "reject",
            "qos",
            "tx",
        }
    ),
}

EVENTS = frozenset(
    {
        "message",
        "error",
        "ended",
        "disconnected",
        "reconnected",
        "closed",
        "confirmed",
        "returned",
        "channel-closed",
    }
)


class Nonsense(ValueError):
    """A line that is not of the protocol; the text says what is wrong with it."""


class Hello(Struct, frozen=True):
    """The first line of an adapter."""

    hello: str
    protocol: str
    library: str
    version: str
    features: frozenset[str]
    language: str = ""


class Trouble(Struct, frozen=True):
    """An error as the library told it."""

    text: str = ""
    type: str = ""
    code: int | None = None

    def __str__(self) -> str:
        code = "" if self.code is None else f" (code {self.code})"
        return f"{self.type}: {self.text}{code}" if self.type else f"{self.text}{code}"


class Message(Struct, frozen=True):
    """A message as the library handed it over."""

    ref: int
    data: str = ""
    subject: str = ""
    reply: str = ""
    headers: dict[str, list[str]] = {}
    exchange: str = ""
    routing_key: str = ""
    delivery_tag: int | None = None
    redelivered: bool | None = None


class Ok(Struct, frozen=True):
    """What answers may carry."""

    message: Message | None = None
    messages: tuple[Message, ...] = ()
    stream: str = ""
    seq: int | None = None
    duplicate: bool | None = None
    queue: str = ""


class Answer(Struct, frozen=True):
    """The answer to the command with that ``id``: ``ok``, ``error`` or both."""

    id: int
    ok: Ok | None = None
    error: Trouble | None = None


class Told(Struct, frozen=True):
    """An event: what the library told its user by itself."""

    event: str
    subscription: str = ""
    message: Message | None = None
    text: str = ""
    type: str = ""
    code: int | None = None
    publish: int | None = None
    ack: bool | None = None
    routing_key: str = ""
    data: str = ""
    channel: int | None = None


def command(number: int, do: str, fields: Mapping[str, Any]) -> bytes:
    """One line for an adapter's stdin."""
    return msgspec.json.encode({"id": number, "do": do, **fields}) + b"\n"


def line(data: bytes) -> Hello | Answer | Told:
    """What one line of an adapter's stdout says. Raises ``Nonsense``."""
    try:
        fields = msgspec.json.decode(data)
        if not isinstance(fields, dict):
            raise Nonsense("a line must be a JSON object")
        if "hello" in fields:
            return _hello(msgspec.convert(fields, Hello))
        if "event" in fields:
            return _told(msgspec.convert(fields, Told))
        if "id" in fields:
            return _answer(msgspec.convert(fields, Answer))
    except msgspec.MsgspecError as error:
        raise Nonsense(str(error)) from None
    except UnicodeDecodeError as error:
        raise Nonsense(f"not UTF-8: {error}") from None
    raise Nonsense("a line must have 'hello', 'id' or 'event'")


def _hello(said: Hello) -> Hello:
    if said.hello != VERSION:
        raise Nonsense(f"hello is {said.hello!r}; this Plumbline speaks {VERSION!r}")
    if said.protocol not in FEATURES:
        raise Nonsense(f"protocol is {said.protocol!r}; write one of {', '.join(FEATURES)}")
    if unknown := sorted(said.features - FEATURES[said.protocol]):
        raise Nonsense(f"unknown features {', '.join(unknown)}; see PROTOCOL.md")
    return said


def _told(said: Told) -> Told:
    if said.event not in EVENTS:
        raise Nonsense(f"event is {said.event!r}; write one of {', '.join(sorted(EVENTS))}")
    if said.event == "message" and (said.message is None or not said.subscription):
        raise Nonsense("a message event needs 'subscription' and 'message'")
    if said.event == "confirmed" and (said.publish is None or said.ack is None):
        raise Nonsense("a confirmed event needs 'publish' and 'ack'")
    return said


def _answer(said: Answer) -> Answer:
    if said.ok is None and said.error is None:
        raise Nonsense(f"the answer to {said.id} has neither 'ok' nor 'error'")
    return said
