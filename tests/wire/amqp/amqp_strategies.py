"""What may be on an AMQP wire, and what may not: Hypothesis strategies, and one way to look at a decoder.

``Outcome`` is all that a decoder reports of some bytes; two decoders agree if their outcomes are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from plumbline.wire.amqp import (
    PROPERTIES,
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
    ProtocolHeader,
    Sender,
    Timestamp,
    frame,
)

# So small that generated input meets every one of them.
TIGHT = Limits(frame_max=90, max_body=100, table_depth=2)


@dataclass(frozen=True)
class Outcome:
    """What a decoder made of a stream: operations, then perhaps an error, else what it still holds."""

    operations: tuple[Operation, ...]
    error: str | None
    offset: int
    held: int


def outcome(chunks: Iterable[bytes], sender: Sender, limits: Limits | None = None) -> Outcome:
    """Feeds ``chunks`` one after the other until they end or one is refused."""
    decoder = Decoder(sender, limits)
    operations: list[Operation] = []
    try:
        for chunk in chunks:
            operations += decoder.feed(chunk)
    except AmqpError as error:
        operations += error.operations
        place = f"{error.channel} {error.class_id}.{error.method_id}"
        error_text = f"{error.reply_code} {error.kind} {error.message} {place}"
        return Outcome(tuple(operations), error_text, error.offset, decoder.held)
    return Outcome(tuple(operations), None, decoder.offset, decoder.held)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
shorts = texts | st.just("x" * 255)
_INTEGERS = {"b": 8, "s": 16, "l": 32}  # a 64-bit number is an Integer only where I would hold it


def _integers() -> SearchStrategy[int]:
    signed = [
        st.builds(Integer, st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), st.just(code))
        for code, bits in _INTEGERS.items()
    ]
    unsigned = [
        st.builds(Integer, st.integers(0, 2**bits - 1), st.just(code))
        for code, bits in {"B": 8, "u": 16, "i": 32}.items()
    ]
    return st.one_of(st.integers(-(2**63), 2**63 - 1), *signed, *unsigned)


field_values: SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        _integers(),
        st.floats(allow_nan=False),
        st.floats(allow_nan=False, width=32).map(Float),
        st.builds(Decimal, st.integers(0, 255), st.integers(0, 2**32 - 1)),
        st.integers(0, 2**64 - 1).map(Timestamp),
        texts,
        st.binary(max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
        st.binary(max_size=12),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
tables: SearchStrategy[dict[str, Any]] = st.dictionaries(texts, field_values, max_size=4)

_VALUES: dict[str, SearchStrategy[Any]] = {
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "bit": st.booleans(),
    "shortstr": shorts,
    "longstr": texts,
    "table": tables,
    "timestamp": st.integers(0, 2**64 - 1).map(Timestamp),
}
properties: SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {}, optional={name: _VALUES[kind] for name, kind in PROPERTIES.items()}
)
channels = st.integers(1, 4)
bodies = st.binary(max_size=60) | st.sampled_from([b"", b"\xce", b"\x01\x00\x01", b"x" * 300])


CONTENT_METHODS = tuple(name for name, shape in SHAPES.items() if shape.has_content)


@st.composite
def methods(draw: DrawFn, names: Sequence[str] = tuple(SHAPES)) -> Method:
    """Any of these methods, with a content if it carries one."""
    name = draw(st.sampled_from(names))
    shape = SHAPES[name]
    arguments = {argument: draw(_VALUES[kind]) for argument, kind in shape.arguments.items()}
    if not shape.has_content:
        return Method.make(name, draw(st.integers(0, 4)), **arguments)
    max_frame = draw(st.sampled_from([9, 20, 131072]))
    return Method.make(
        name,
        draw(channels),
        properties=draw(properties),
        body=draw(bodies),
        max_frame=max_frame,
        **arguments,
    )


operations: SearchStrategy[Operation] = st.builds(Heartbeat.make) | methods()
senders = st.sampled_from(Sender)


@st.composite
def valid_streams(draw: DrawFn, sender: Sender) -> tuple[list[Operation], bytes]:
    """Operations one after the other, and their bytes."""
    found = draw(st.lists(operations, max_size=5))
    if sender is Sender.CLIENT or draw(st.booleans()):
        found.insert(0, ProtocolHeader.make())
    return found, b"".join(operation.raw for operation in found)


@st.composite
def interleaved(draw: DrawFn) -> tuple[list[Operation], bytes]:
    """Several channels, frames of one between frames of another; operations in the order of their ends."""
    waiting: dict[int, list[tuple[Operation, list[bytes]]]] = {}
    for channel in range(4):
        mine = draw(st.lists(methods().filter(lambda method: method.channel > 0), max_size=3))
        moved = [_on(channel + 1, method) for method in mine]
        waiting[channel + 1] = [(method, _frames(method)) for method in moved]
    order: list[Operation] = []
    stream = b""
    while any(waiting.values()):
        channel = draw(st.sampled_from([number for number, queue in waiting.items() if queue]))
        operation, frames = waiting[channel][0]
        stream += frames.pop(0)
        if not frames:
            order.append(operation)
            waiting[channel].pop(0)
        if draw(st.integers(0, 5)) == 0:
            order.append(Heartbeat.make())
            stream += order[-1].raw
    return order, stream


def _on(channel: int, method: Method) -> Method:
    properties, body = method.properties, method.body
    return Method.make(method.method, channel, properties=properties, body=body, **method.arguments)


def _frames(method: Method) -> list[bytes]:
    return [frame(kind, method.channel, payload) for kind, payload in method.frames()]


_PIECES = [
    b"", b"\x00", b"\xce", b"\x01\x00\x01", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", PROTOCOL_HEADER,
    Heartbeat.make().raw, frame(8, 1, b""), frame(8, 0, b"x"), frame(9, 0, b"abcd"), frame(4, 0, b""),
    frame(1, 1, b"\x00\x3c"), frame(1, 1, b"\x00\x63\x00\x01"), frame(2, 1, b"\x00\x3c\x00\x00"),
    frame(3, 1, b"x"), frame(1, 1, b"\x00\x3c\x00\x50\x00\x00"), b"HTTP/1.1",
    frame(1, 1, b"\x00\x14\x00\x29", end=b"\x00"),
    Method.make("basic.publish", 1, routing_key="q", body=b"hello").raw,
    Method.make("basic.publish", 1, routing_key="q", body=b"hello", properties={"headers": {"a": [{}]}}).raw,
    Method.make("queue.declare", 1, queue="q", arguments={"x-max-length": 2, "a": {"b": {"c": {}}}}).raw,
]  # fmt: skip


@st.composite
def broken_streams(draw: DrawFn, sender: Sender) -> bytes:
    """A valid stream with some of its bytes changed, left out, doubled or replaced."""
    _, stream = draw(valid_streams(sender))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(stream)))
        until = draw(st.integers(at, min(len(stream), at + 4)))
        piece = draw(st.sampled_from([*_PIECES, stream[at:until] * 2]) | st.binary(max_size=3))
        stream = stream[:at] + piece + stream[until:]
    return stream


def streams(sender: Sender) -> SearchStrategy[bytes]:
    """Anything: valid, nearly valid, pieces of the protocol in no order, noise."""
    start = PROTOCOL_HEADER if sender is Sender.CLIENT else b""
    return st.one_of(
        valid_streams(sender).map(lambda drawn: drawn[1]),
        broken_streams(sender),
        interleaved().map(lambda drawn: start + drawn[1]),
        st.lists(st.sampled_from(_PIECES), max_size=8).map(lambda pieces: start + b"".join(pieces)),
        st.binary(max_size=60),
    )
