"""Planted defects: what a relay in front of a correct server changes, so that one rule is broken.

Each is a function without arguments that makes a ``relay.Rewrite`` for one connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from plumbline.wire import amqp, nats
from plumbline.wire.amqp import FrameType, frame
from tests.zoo.relay import Rewrite

GIVES_MESSAGE = ("basic.deliver", "basic.get-ok")
HOUR_NS = 3600 * 10**9
_NINE_TOKENS = 9  # of an acknowledgement subject without domain and account hash
_MORE_TOKENS = 2  # of one with them


# -- NATS ---------------------------------------------------------------------------------------------------


def status_is(wrong: bytes, right: bytes) -> Callable[[], Rewrite]:
    """A status line has another code."""

    def rewrite(operation: nats.Operation) -> bytes:
        if not isinstance(operation, nats.HMsg):
            return operation.raw
        block = operation.header_block
        if not block.startswith(b"NATS/1.0 " + right):
            return operation.raw
        return _hmsg(operation, block.replace(right, wrong, 1))

    return lambda: rewrite


def headers_are(change: Callable[[bytes], bytes]) -> Callable[[], Rewrite]:
    """The header blocks of messages are changed."""

    def rewrite(operation: nats.Operation) -> bytes:
        if not isinstance(operation, nats.HMsg):
            return operation.raw
        return _hmsg(operation, change(operation.header_block))

    return lambda: rewrite


def json_is(change: Callable[[dict[str, Any]], object]) -> Callable[[], Rewrite]:
    """The JSON answers of JetStream are changed, in place."""

    def rewrite(operation: nats.Operation) -> bytes:
        if not isinstance(operation, nats.Msg) or not operation.payload.startswith(b"{"):
            return operation.raw
        try:
            body = json.loads(operation.payload)
        except ValueError:
            return operation.raw
        before = json.dumps(body)
        change(body)
        after = json.dumps(body)
        if after == before:
            return operation.raw
        return nats.Msg.make(operation.subject, operation.sid, after.encode(), operation.reply).raw

    return lambda: rewrite


def ack_token_is(position: int, change: Callable[[int], int]) -> Callable[[], Rewrite]:
    """A number in the acknowledgement subject is changed; ``position`` as in the layout of nine tokens."""

    def rewrite(operation: nats.Operation) -> bytes:
        reply = operation.reply if isinstance(operation, nats.Msg) else None
        if not isinstance(operation, nats.Msg) or reply is None or not reply.startswith("$JS.ACK."):
            return operation.raw
        tokens = reply.split(".")
        place = position if len(tokens) == _NINE_TOKENS else position + _MORE_TOKENS
        tokens[place] = str(change(int(tokens[place])))
        return nats.Msg.make(operation.subject, operation.sid, operation.payload, ".".join(tokens)).raw

    return lambda: rewrite


def _pub_ack_is_doubled() -> Rewrite:
    def rewrite(operation: nats.Operation) -> bytes:
        is_pub_ack = isinstance(operation, nats.Msg) and operation.payload.startswith(b'{"stream":')
        return operation.raw * 2 if is_pub_ack else operation.raw

    return rewrite


def _without_fields(block: bytes) -> bytes:
    """A status keeps its fields, a message loses them."""
    return block if block.startswith(b"NATS/1.0 ") else b"NATS/1.0\r\n\r\n"


def _without_last_consumer(block: bytes) -> bytes:
    lines = block.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.startswith(b"Nats-Last-Consumer"))


def _with_larger_size(block: bytes) -> bytes:
    return block.replace(b"Nats-Msg-Size: ", b"Nats-Msg-Size: 1")


def _hmsg(operation: nats.HMsg, block: bytes) -> bytes:
    made = nats.HMsg.make(operation.subject, operation.sid, block, operation.payload, operation.reply)
    return made.raw


def _error(body: dict[str, Any], wrong: int, right: int) -> None:
    if body.get("error", {}).get("err_code") == right:
        body["error"]["err_code"] = wrong


def _no_duplicate(body: dict[str, Any]) -> None:
    if body.get("duplicate"):
        body["duplicate"] = False


def _nothing_purged(body: dict[str, Any]) -> None:
    if "purged" in body:
        body["purged"] = 0


def _limits_are_text(body: dict[str, Any]) -> None:
    if "limits" in body:
        body["limits"]["max_streams"] = str(body["limits"]["max_streams"])


# -- AMQP ---------------------------------------------------------------------------------------------------


def method_has(names: str, **changed: Callable[[Any], Any]) -> Callable[[], Rewrite]:
    """Arguments of the methods ``names`` are changed."""
    methods = names.split()

    def rewrite(operation: amqp.Operation) -> bytes:
        if not isinstance(operation, amqp.Method) or operation.method not in methods:
            return operation.raw
        values = {name: change(operation.arguments[name]) for name, change in changed.items()}
        encoded = operation.shape.encode({**operation.arguments, **values})
        return frame(FrameType.METHOD, operation.channel, encoded) + operation.raw[operation.head :]

    return lambda: rewrite


def _first_confirm_is_lost() -> Rewrite:
    """Of each connection."""
    is_lost = False

    def rewrite(operation: amqp.Operation) -> bytes:
        nonlocal is_lost
        if is_lost or operation.method != "basic.ack":
            return operation.raw
        is_lost = True
        return b""

    return rewrite


def _delivery_tags_fall() -> Rewrite:
    """Those of all channels of the connection."""
    tag = 1 << 20

    def rewrite(operation: amqp.Operation) -> bytes:
        nonlocal tag
        if operation.method != "basic.deliver":
            return operation.raw
        tag -= 1
        return method_has("basic.deliver", delivery_tag=lambda _: tag)()(operation)

    return rewrite


def _returns_follow_their_ack() -> Rewrite:
    held = b""

    def rewrite(operation: amqp.Operation) -> bytes:
        nonlocal held
        if operation.method == "basic.return":
            held += operation.raw
            return b""
        if operation.method == "basic.ack":
            late, held = held, b""
            return operation.raw + late
        return bytes(operation.raw)

    return rewrite


def _properties_are_lost() -> Rewrite:
    """Of deliveries and of what basic.get takes."""

    def rewrite(operation: amqp.Operation) -> bytes:
        if not isinstance(operation, amqp.Method) or operation.method not in (
            "basic.deliver",
            "basic.get-ok",
        ):
            return operation.raw
        content = amqp.content_frames(operation.channel, b"\0\0", operation.body, frame_max=4096)
        return operation.raw[: operation.head] + content

    return rewrite


DEFECTS: Mapping[str, Callable[[], Rewrite]] = {
    "no-messages-is-408": status_is(b"408", b"404"),
    "no-responders-is-404": status_is(b"404", b"503"),
    "consumer-deleted-is-408": status_is(b"408", b"409"),
    "message-headers-are-lost": headers_are(_without_fields),
    "heartbeats-lack-last-consumer": headers_are(_without_last_consumer),
    "message-size-is-wrong": headers_are(
        lambda block: block.replace(b"Nats-Msg-Size: ", b"Nats-Msg-Size: 1")
    ),
    "pub-ack-is-doubled": _pub_ack_is_doubled,
    "delivery-count-stays-1": ack_token_is(4, lambda _: 1),
    "stream-sequence-is-one-more": ack_token_is(5, lambda number: number + 1),
    "time-is-an-hour-late": ack_token_is(7, lambda number: number + HOUR_NS),
    "pending-is-one-more": ack_token_is(8, lambda number: number + 1),
    "other-config-has-another-err-code": json_is(lambda body: _error(body, 10059, 10058)),
    "duplicate-is-not-marked": json_is(_no_duplicate),
    "nothing-is-purged": json_is(_nothing_purged),
    "limits-are-text": json_is(_limits_are_text),
    "redelivered-is-lost": method_has("basic.deliver basic.get-ok", redelivered=lambda _: False),
    "redelivered-at-first": method_has("basic.deliver basic.get-ok", redelivered=lambda _: True),
    "one-more-message-is-left": method_has("basic.get-ok", message_count=lambda count: count + 1),
    "returned-with-313": method_has("basic.return", reply_code=lambda _: 313),
    "close-names-another-method": method_has("channel.close", method_id=lambda number: number + 1),
    "nothing-is-counted-as-deleted": method_has("queue.purge-ok queue.delete-ok", message_count=lambda _: 0),
    "first-confirm-is-lost": _first_confirm_is_lost,
    "delivery-tags-fall": _delivery_tags_fall,
    "returns-follow-their-ack": _returns_follow_their_ack,
    "properties-are-lost": _properties_are_lost,
}
