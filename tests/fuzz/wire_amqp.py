"""AMQP: the decoder of both sides, over frames and over any bytes; tables and properties by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from plumbline.wire.amqp import (
    PROTOCOL_HEADER,
    SHAPES,
    AmqpError,
    Decimal,
    Decoder,
    Float,
    Heartbeat,
    Integer,
    Limits,
    Method,
    Operation,
    Sender,
    Timestamp,
    decode_entries,
    decode_properties,
    encode_entries,
    encode_properties,
    encode_table,
    frame,
    header_payload,
)
from tests.fuzz.choices import Choices
from tests.fuzz.segmentation import same_however_cut
from tests.fuzz.target import Target
from tests.wire.amqp.amqp_strategies import TIGHT, Outcome, outcome

EXAMPLES: tuple[dict[str, Any], ...] = ({}, {"headers": {"a": [{}]}}, {"priority": 1, "type": "t"})
SENDERS = (Sender.CLIENT, Sender.SERVER)
LIMITS = (Limits(), TIGHT)
KINDS = (1, 1, 1, 2, 2, 3, 3, 8, 0, 4)
METHODS = tuple(SHAPES.values())
HEAD_BYTES = 8  # of a frame, without its payload
EXAMPLE: dict[str, Any] = {
    "a": 1,
    "b": [True, None, {"c": 2.5}],
    "d": "text",
    "e": b"bytes",
    "f": Integer(-5, "b"),
    "g": Float(0.5),
    "h": Decimal(2, 314),
    "i": Timestamp(1_700_000_000),
    "j": 2**40,
    "k": Integer(7, "u"),
}


def codec(data: bytes) -> None:
    """The first byte chooses side, limits, and whether the rest is bytes or decisions about frames."""
    chosen, rest = (data[0], data[1:]) if data else (0, b"")
    sender, limits = SENDERS[chosen & 1], LIMITS[chosen >> 1 & 1]
    stream = _frames(Choices(rest)) if chosen & 4 else rest

    def read(chunks: Iterable[bytes]) -> Outcome:
        return outcome(chunks, sender, limits)

    whole = same_however_cut(stream, read)
    size = sum(len(operation.raw) for operation in whole.operations)
    assert whole.offset <= len(stream)
    if whole.error is None:
        assert size + whole.held == len(stream), "bytes were lost or made up"
    else:
        assert not whole.held, "a refused connection holds nothing"
        assert size <= whole.offset
    for operation in whole.operations:
        _check_operation(operation, sender, limits)


def _frames(choices: Choices) -> bytes:
    """Frames that are mostly whole, for methods that exist, in an order that is mostly wrong."""
    stream = PROTOCOL_HEADER if choices.flag() else b""
    while choices:
        channel = choices.number(4)
        match choices.number(6):
            case 0:
                stream += frame(choices.one_of(KINDS), channel, choices.data(60))
            case 1:
                stream += frame(1, channel, choices.one_of(METHODS).ids + choices.data(60))
            case 2:
                stream += frame(1, channel, choices.one_of(METHODS).encode({}))
            case 3:
                properties = choices.one_of(EXAMPLES)
                stream += frame(2, channel, header_payload(encode_properties(properties), choices.number(40)))
            case 4:
                stream += frame(3, channel, choices.data(40))
            case _:
                stream += frame(2, channel, header_payload(choices.data(40), choices.number(40)))
        if not choices.number(16):
            stream = stream[: -1 - choices.number(4)] + choices.data(3)
    return stream


def _check_operation(operation: Operation, sender: Sender, limits: Limits) -> None:
    assert str(operation).isprintable()
    if not isinstance(operation, Method):
        return
    assert (
        b"".join(frame(kind, operation.channel, body) for kind, body in operation.frames()) == operation.raw
    )
    if operation.shape.has_content and operation.properties is None:
        return  # on channel 0: without its content
    (alone,) = _decoder(sender, limits).feed(operation.raw)
    assert repr(alone) == repr(operation)
    made = Method.make(
        operation.method,
        operation.channel,
        properties=operation.properties,
        body=operation.body,
        **operation.arguments,
    )
    (again,) = _decoder(sender, Limits()).feed(made.raw)
    assert isinstance(again, Method)
    assert _values(again) == _values(operation)
    if operation.properties is not None:
        assert decode_properties(operation.raw_properties) is not None


def _decoder(sender: Sender, limits: Limits) -> Decoder:
    """One that is past the protocol header."""
    decoder = Decoder(sender, limits)
    if sender is Sender.CLIENT:
        decoder.feed(PROTOCOL_HEADER)
    return decoder


def _values(method: Method) -> str:
    """As text, in which a number that is not one (NaN) equals itself."""
    return repr((method.method, method.channel, method.arguments, method.properties, method.body))


def fields(data: bytes) -> None:
    """A table without its length, then properties, from the same bytes."""
    try:
        table = decode_entries(data)
    except AmqpError:
        pass
    else:
        written = encode_entries(table)
        assert repr(decode_entries(written)) == repr(table)
        assert encode_entries(decode_entries(written)) == written
        assert len(written) <= len(data), "what is written is never longer: a name that came twice is one"
    try:
        properties = decode_properties(data)
    except AmqpError:
        return
    again = encode_properties(properties)
    assert repr(decode_properties(again)) == repr(properties)


def _streams() -> list[bytes]:
    publish = Method.make(
        "basic.publish",
        1,
        routing_key="q",
        body=b"hello" * 9,
        properties={"headers": EXAMPLE, "priority": 5},
        max_frame=30,
    )
    client = PROTOCOL_HEADER + b"".join(
        one.raw
        for one in (
            Method.make(
                "connection.start-ok", 0, mechanism="PLAIN", response="\0u\0p", client_properties=EXAMPLE
            ),
            Method.make("queue.declare", 1, queue="q", arguments={"x-max-length": 2}),
            publish,
            Heartbeat.make(),
            Method.make("basic.ack", 1, delivery_tag=2**40, multiple=True),
        )
    )
    server = b"".join(
        one.raw
        for one in (
            Method.make(
                "connection.start", 0, server_properties=EXAMPLE, mechanisms="PLAIN", locales="en_US"
            ),
            Method.make("basic.deliver", 1, consumer_tag="c", delivery_tag=1, body=b"x"),
            Method.make("channel.close", 1, reply_code=404, reply_text="no"),
        )
    )
    decisions = [
        bytes((4 + side, 0, 1, 2, place, 9, 1, 3, 5, 3, 1, 4, 5)) + b"abcde"
        for side in (0, 1, 2, 3)
        for place in range(0, len(METHODS), 5)
    ]
    raw = [bytes((side,)) + stream for stream in (client, server) for side in range(4)]
    return raw + decisions


SIZES = (*(0, 1, 10, 40, 300, 5000) * 20, 150_000)  # of bodies: the last does not fit one frame
LONG_BYTES = (2_000, 20_000, 200_000)


def _long(random: Random) -> bytes:
    """Many methods of one side, with the default limits; every third stream fits the tight ones."""
    chosen = random.choice((0, 1, 0, 1, 2, 3))
    is_tight = bool(chosen & 2)
    name = ("basic.publish", "basic.deliver")[chosen & 1]
    sizes = [size for size in SIZES if size <= TIGHT.max_body // 2] if is_tight else SIZES
    stream = bytearray((chosen,)) + (b"" if chosen & 1 else PROTOCOL_HEADER)
    least = random.choice(LONG_BYTES)
    while len(stream) < least:
        channel = random.randrange(1, 4)
        if random.randrange(3):
            body = random.randbytes(random.choice(sizes))
            properties = {} if is_tight else random.choice(EXAMPLES)
            limit = TIGHT.frame_max if is_tight else Limits().frame_max
            stream += Method.make(
                name, channel, body=body, properties=properties, routing_key="q", max_frame=limit
            ).raw
        else:
            shape = random.choice([shape for shape in METHODS if not shape.has_content])
            stream += frame(1, 0 if shape.name.startswith("connection.") else channel, shape.encode({}))
    return bytes(stream)


WORDS = (
    PROTOCOL_HEADER,
    b"\xce",
    b"\xce\x01\x00\x01",
    b"\x00\x3c\x00\x28",
    Heartbeat.make().raw,
    *(shape.ids for shape in METHODS),
    *(code.encode() for code in "tbBsuIilfdDTSxAFV"),
    encode_table({"a": {}}),
)
TARGETS = [
    Target("amqp-codec", codec, _streams, WORDS, 1500, _long),
    Target(
        "amqp-fields",
        fields,
        lambda: [
            encode_entries(EXAMPLE),
            encode_properties({"headers": EXAMPLE, "timestamp": Timestamp(5)}),
            encode_properties({"content_type": "a", "priority": 3, "cluster_id": "c"}),
        ],
        WORDS,
        6000,
    ),
]
