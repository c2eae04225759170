"""What captures show of an operation is what an observation of it shows, however large its payload."""

from __future__ import annotations

import random
from typing import Any

import pytest

from plumbline.captures.observation import PREFIX_CHARACTERS, CaptureObservation
from plumbline.monitors import Observation
from plumbline.wire import amqp, nats
from plumbline.wire.sender import Sender

SIZES = (0, PREFIX_CHARACTERS, 2 * PREFIX_CHARACTERS, 400, 1000, 1001, 5000)
NOISE = random.Random(6).randbytes(SIZES[-1])
PAYLOADS = {
    "noise": NOISE,
    "text": b"0123456789" * 500,
    "three bytes a character": "\u20ac".encode() * 2000,
    "four bytes a character": "\U0001f600".encode() * 2000,
    "quotation marks": b'\xff"' * 2500,
    "noise after text": b"a" * 100 + NOISE,
    "text after noise": NOISE[:20] + b"a" * 5000,
}


def shown(kind: type[Observation], operation: Any) -> str:
    return kind(operation, Sender.CLIENT, "1", 1, 1).place.text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_the_line_is_that_of_an_observation(payload: bytes, size: int) -> None:
    body = payload[:size]
    for operation in (
        nats.Pub.make("a.b", body, "reply"),
        nats.HPub.make("a.b", b"NATS/1.0\r\nA: \xff\r\n\r\n", body),
        amqp.Method.make("basic.publish", 1, routing_key="q", body=body, properties={"message_id": "7"}),
        amqp.Method.make("basic.publish", 1, routing_key="q" * 255, body=body, max_frame=300),
        amqp.Method.make("queue.declare", 1, queue="\u20ac" * 80),
    ):
        assert shown(CaptureObservation, operation) == shown(Observation, operation)


@pytest.mark.parametrize("subject", ["a" * size for size in range(1, 12)])
def test_text_prefix_is_independent_of_payload_cut(subject: str) -> None:
    for escaped in range(PREFIX_CHARACTERS):
        body = b"\xff" * escaped + "\u20ac".encode() * PREFIX_CHARACTERS
        for operation in (
            nats.Pub.make(subject, body),
            amqp.Method.make("basic.publish", 1, routing_key=subject, body=body),
        ):
            assert shown(CaptureObservation, operation) == shown(Observation, operation)
