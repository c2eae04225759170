"""The adapter protocol as types; ``PROTOCOL.md`` describes it. Lines in, lines out; no processes here.

A command is a plain object with ``id`` and ``do``; its fields are in the tables of ``PROTOCOL.md``. What an
adapter writes is one of ``AdapterHello``, ``AdapterAnswer`` and ``AdapterEvent`` (an event).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.untrusted import BadInputError, parse_json

VERSION = "plumbline.adapter/1"

RESET = "reset"  # an adapter of any protocol may have it: one process plays several scenarios
RECONNECT = "reconnect"  # the library connects again by itself
TLS = "tls"  # and this one: it connects to tls:// or amqps:// and trusts the authority of tls_ca

# What adapters may say they can do, by protocol. ``PROTOCOL.md`` says which command needs which.
FEATURES: Mapping[str, frozenset[str]] = {
    "nats": frozenset(
        {
            RESET,
            TLS,
            "publish",
            "publish.flush",
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
            RECONNECT,
            "reconnect.buffer",
            "ping",
            "lame-duck",
            "drain",
            "ordered",
            "kv",
            "kv.watch",
            "obj",
            "obj.create",
            "obj.link",
            "obj.list",
            "obj.seal",
            "obj.update",
            "obj.watch",
            "service",
            "service.no_queue",
            "service.reset",
        }
    ),
    "amqp": frozenset(
        {
            RESET,
            TLS,
            "declare",
            "publish",
            "publish.mandatory",
            "publish.async",
            "publish.message_id",
            "bind",
            "blocked",
            RECONNECT,
            "reconnect.topology",
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
        "lame-duck",
        "confirmed",
        "returned",
        "channel-closed",
        "blocked",
        "unblocked",
        "up-to-date",
    }
)


class AdapterProtocolError(ValueError):
    """A line that is not of the protocol; the text says what is wrong with it."""


class AdapterHello(Struct, frozen=True):
    """The first line of an adapter."""

    hello: str
    protocol: str
    library: str
    version: str
    features: frozenset[str]
    language: str = ""


class ErrorReport(Struct, frozen=True):
    """An error as the library reports it."""

    text: str = ""
    type: str = ""
    code: int | None = None

    def __str__(self) -> str:
        code = "" if self.code is None else f" (code {self.code})"
        return f"{self.type}: {self.text}{code}" if self.type else f"{self.text}{code}"


class AdapterMessage(Struct, frozen=True):
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


class AnswerFields(Struct, frozen=True):
    """What answers may carry."""

    message: AdapterMessage | None = None
    messages: tuple[AdapterMessage, ...] = ()
    stream: str = ""
    seq: int | None = None
    duplicate: bool | None = None
    queue: str = ""


class AdapterAnswer(Struct, frozen=True):
    """The answer to the command with that ``id``: ``ok``, ``error`` or both."""

    id: int
    ok: AnswerFields | None = None
    error: ErrorReport | None = None


class AdapterEvent(Struct, frozen=True):
    """An adapter event: something that the library reported without being asked."""

    event: str
    subscription: str = ""
    message: AdapterMessage | None = None
    text: str = ""
    type: str = ""
    code: int | None = None
    publish: int | None = None
    ack: bool | None = None
    routing_key: str = ""
    data: str = ""
    channel: int | None = None


def encode_command(number: int, do: str, fields: Mapping[str, Any]) -> bytes:
    """One line for an adapter's stdin."""
    return msgspec.json.encode({"id": number, "do": do, **fields}) + b"\n"


def parse_line(data: bytes) -> AdapterHello | AdapterAnswer | AdapterEvent:
    """What one line of an adapter's stdout says. Raises ``AdapterProtocolError``."""
    try:
        fields = parse_json(data, object)
        if not isinstance(fields, dict):
            raise AdapterProtocolError("a line must be a JSON object")
        if "hello" in fields:
            return _parse_hello(msgspec.convert(fields, AdapterHello))
        if "event" in fields:
            return _parse_event(msgspec.convert(fields, AdapterEvent))
        if "id" in fields:
            return _parse_answer(msgspec.convert(fields, AdapterAnswer))
    except (msgspec.ValidationError, BadInputError) as error:
        raise AdapterProtocolError(str(error)) from None
    raise AdapterProtocolError("a line must have 'hello', 'id' or 'event'")


def _parse_hello(fields: AdapterHello) -> AdapterHello:
    if fields.hello != VERSION:
        raise AdapterProtocolError(f"hello is {fields.hello!r}; this Plumbline supports {VERSION!r}")
    if fields.protocol not in FEATURES:
        raise AdapterProtocolError(f"protocol is {fields.protocol!r}; write one of {', '.join(FEATURES)}")
    if unknown := sorted(fields.features - FEATURES[fields.protocol]):
        raise AdapterProtocolError(f"unknown features {', '.join(unknown)}; see PROTOCOL.md")
    return fields


def _parse_event(fields: AdapterEvent) -> AdapterEvent:
    if fields.event not in EVENTS:
        raise AdapterProtocolError(f"event is {fields.event!r}; write one of {', '.join(sorted(EVENTS))}")
    if fields.event == "message" and (fields.message is None or not fields.subscription):
        raise AdapterProtocolError("a message event needs 'subscription' and 'message'")
    if fields.event == "confirmed" and (fields.publish is None or fields.ack is None):
        raise AdapterProtocolError("a confirmed event needs 'publish' and 'ack'")
    return fields


def _parse_answer(fields: AdapterAnswer) -> AdapterAnswer:
    if fields.ok is None and fields.error is None:
        raise AdapterProtocolError(f"the answer to {fields.id} has neither 'ok' nor 'error'")
    return fields
