"""A real RabbitMQ: all its bytes are decoded, and it refuses what the codec refuses."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.wire.amqp import (
    PROTOCOL_HEADER,
    AmqpError,
    Decimal,
    Decoder,
    Float,
    Integer,
    Method,
    Operation,
    Sender,
    Timestamp,
    frame,
    header_payload,
)
from tests.patience import HANGS_AFTER_S


class Conversation:
    """A raw client on one channel."""

    def __init__(self, url: str, frame_max: int = 131072) -> None:
        self.decoder = Decoder(Sender.SERVER)
        self.heard = b""
        self.operations: list[Operation] = []
        self.read = 0
        host, _, port = url.removeprefix("amqp://guest:guest@").removesuffix("/%2f").partition(":")
        self.link = socket.create_connection((host, int(port)), timeout=HANGS_AFTER_S)
        self.frame_max = frame_max

    def open(self) -> None:
        """Handshake, channel 1, a queue of its own."""
        self.link.sendall(PROTOCOL_HEADER)
        self.expect("connection.start")
        self.say("connection.start-ok", 0, mechanism="PLAIN", response="\0guest\0guest", locale="en_US")
        self.expect("connection.tune")
        self.say("connection.tune-ok", 0, channel_max=10, frame_max=self.frame_max)
        self.say("connection.open", 0, virtual_host="/")
        self.expect("connection.open-ok")
        self.say("channel.open")
        self.expect("channel.open-ok")
        self.say("queue.declare", exclusive=True)
        self.queue = self.expect("queue.declare-ok").arguments["queue"]

    def say(self, method: str, channel: int = 1, **arguments: Any) -> None:
        self.link.sendall(Method.make(method, channel, **arguments).raw)

    def next(self) -> Method | None:
        """The next operation, or None at the end of the connection."""
        while len(self.operations) == self.read:
            try:
                data = self.link.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self.heard += data
            self.operations += self.decoder.feed(data)
        self.read += 1
        found = self.operations[self.read - 1]
        assert isinstance(found, Method)
        return found

    def expect(self, method: str) -> Method:
        found = self.next()
        assert found is not None
        assert found.method == method, str(found)
        return found


@contextlib.contextmanager
def conversation(rabbitmq: RabbitMQ, frame_max: int = 131072) -> Iterator[Conversation]:
    talk = Conversation(rabbitmq.url, frame_max)
    try:
        talk.open()
        yield talk
    finally:
        talk.link.close()


PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": {
        "t": True, "b": Integer(-1, "b"), "B": Integer(255, "B"), "s": Integer(-2, "s"),
        "u": Integer(65535, "u"),
        "I": -5, "i": Integer(2**32 - 1, "i"), "l": -(2**40), "l5": Integer(5, "l"),
        "f": Float(1.5), "d": 2.5,
        "D": Decimal(2, 314), "S": "é", "x": b"\x00\xff", "A": [1, None, {"n": []}],
        "T": Timestamp(1795245889),
        "F": {"deep": {"er": "x"}}, "V": None, "": "no name",
    },
    "delivery_mode": 2,
    "priority": 9,
    "correlation_id": "c",
    "reply_to": "r",
    "message_id": "m",
    "timestamp": Timestamp(1795245889),
    "type": "y",
    "user_id": "guest",
    "app_id": "a",
    "cluster_id": "k",
}  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 10_000])
def test_a_message_of_every_type_comes_back_byte_for_byte(rabbitmq: RabbitMQ, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    with conversation(rabbitmq, frame_max=4096) as talk:
        sent = Method.make(
            "basic.publish",
            1,
            routing_key=talk.queue,
            properties=PROPERTIES,
            body=body[:size],
            max_frame=4096,
        )
        talk.link.sendall(sent.raw)
        talk.say("basic.get", queue=talk.queue, no_ack=True)
        found = talk.expect("basic.get-ok")
        assert found.properties == PROPERTIES
        assert (found.raw_properties, found.body) == (sent.raw_properties, sent.body)
        assert all(len(payload) + 8 <= 4096 for _, payload in found.frames())
        assert b"".join(operation.raw for operation in talk.operations) == talk.heard
        again = Decoder(Sender.SERVER)
        assert [op for byte in talk.heard for op in again.feed(bytes((byte,)))] == talk.operations


PUBLISH = frame(
    1, 1, Method.make("basic.publish", 1, routing_key="nowhere").shape.encode({"routing_key": "q"})
)
# What both refuse, and with which code. None: RabbitMQ closes the socket without a word.
REFUSED: dict[str, tuple[bytes, int | None]] = {
    "frame end": (frame(1, 1, b"\x00\x3c\x00\x0a", end=b"\x00"), 501),
    "frame type": (frame(9, 1, b"abcd"), 501),
    "size": (frame(3, 1, b"", size=0x7FFFFFFF), 501),
    "heartbeat on a channel": (frame(8, 1, b""), 505),
    "heartbeat with payload": (frame(8, 0, b"xx"), 501),
    "arguments cut": (frame(1, 1, b"\x00\x32\x00\x0a\x00\x00"), 501),
    "arguments and more": (frame(1, 1, b"\x00\x55\x00\x0a\x00\x00"), 501),
    "unknown class": (frame(1, 1, b"\x00\x63\x00\x01"), None),
    "unknown method": (frame(1, 1, b"\x00\x3c\x03\xe7"), None),
    "unknown value type": (
        frame(1, 1, b"\x00\x32\x00\x0a\x00\x00\x01q\x00\x00\x00\x00\x03\x01aQ"), None,
    ),
    "name that is no UTF-8": (frame(1, 1, b"\x00\x3c\x00\x46\x00\x00\x01\xff\x00"), 501),
    "body without method": (frame(3, 1, b"x"), 505),
    "method for header": (PUBLISH + PUBLISH, 505),
    "class of header": (PUBLISH + frame(2, 1, header_payload(b"\0\0", 0, class_id=90)), 505),
    "weight of header": (PUBLISH + frame(2, 1, header_payload(b"\0\0", 0, weight=1)), 505),
    # RabbitMQ notices with the frame that follows.
    "body too long": (PUBLISH + frame(2, 1, header_payload(b"\0\0", 1)) + frame(3, 1, b"xx") + PUBLISH, 505),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_rabbitmq_rejects_with_same_reply_code(rabbitmq: RabbitMQ, name: str) -> None:
    wrong, code = REFUSED[name]
    with pytest.raises(AmqpError) as caught:
        Decoder(Sender.CLIENT).feed(PROTOCOL_HEADER + wrong)
    with conversation(rabbitmq) as talk:
        talk.link.sendall(wrong)
        found = talk.next()
        if code is None:
            assert found is None
            return
        assert found is not None
        assert (found.method, found.arguments["reply_code"]) == ("connection.close", caught.value.reply_code)
        assert caught.value.reply_code == code
