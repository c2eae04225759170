"""What may be on a NATS wire, and what may not: Hypothesis strategies, and one way to look at a decoder.

``Outcome`` is all that a decoder reports of some bytes; two decoders agree if their outcomes are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.nats import (
    Connect,
    Decoder,
    Err,
    HMsg,
    HPub,
    Info,
    Limits,
    Msg,
    Ok,
    Operation,
    Ping,
    Pong,
    Pub,
    Sender,
    Sub,
    Unsub,
)

# So small that generated input meets every one of them.
TIGHT = Limits(max_control_line=40, max_payload=60, max_server_line=70)


@dataclass(frozen=True)
class Outcome:
    """What a decoder made of a stream: operations, then perhaps an error, else what it still holds."""

    operations: tuple[Operation, ...]
    error: ErrorKind | None
    offset: int
    held: bytes


def outcome(chunks: Iterable[bytes], sender: Sender, limits: Limits | None = None) -> Outcome:
    """Feeds ``chunks`` one after the other until they end or one is refused."""
    decoder = Decoder(sender, limits)
    operations: list[Operation] = []
    try:
        for chunk in chunks:
            operations += decoder.feed(chunk)
    except ProtocolError as error:
        operations += error.operations
        return Outcome(tuple(operations), error.kind, error.offset, decoder.unfinished)
    return Outcome(tuple(operations), None, decoder.offset, decoder.unfinished)


def refusal(read: Callable[[], object]) -> ErrorKind | None:
    """The kind of the ``ProtocolError`` that ``read`` raises, or None; any other exception goes through."""
    try:
        read()
    except ProtocolError as error:
        return error.kind
    return None


def _is_field(text: str) -> bool:
    return not set(text) & set(" \t\r\n")


# Subjects and sids as servers take them: any bytes but blanks and line ends, even what is no UTF-8.
fields: SearchStrategy[str] = (
    st.from_regex(r"[A-Za-z0-9$_*>-]{1,8}(\.[A-Za-z0-9_-]{1,8}){0,2}", fullmatch=True)
    | st.text(min_size=1, max_size=8).filter(_is_field)
    | st.binary(min_size=1, max_size=8)
    .map(lambda raw: raw.decode("utf-8", "surrogateescape"))
    .filter(_is_field)
)
payloads = st.binary(max_size=40) | st.sampled_from([b"", b"\r\n", b"\nPING\r\n", b"\x0b\x0c\r", b"x" * 50])
replies = st.none() | fields
json_values: SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
json_objects: SearchStrategy[dict[str, Any]] = st.dictionaries(st.text(max_size=6), json_values, max_size=4)

_visible = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":")
header_names = st.text(_visible, min_size=1, max_size=8)
header_values = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=10)
    | st.binary(max_size=8)
    .filter(lambda raw: not set(raw) & set(b"\r\n"))
    .map(lambda raw: raw.decode("utf-8", "surrogateescape"))
).map(lambda text: text.strip(" \t"))
header_fields = st.lists(st.tuples(header_names, header_values), max_size=3)
header_blocks = st.binary(max_size=20) | st.just(b"NATS/1.0 404 No Messages\r\n\r\n")

line_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20)
client_operations: SearchStrategy[Operation] = st.one_of(
    st.builds(Ping.make),
    st.builds(Pong.make),
    st.builds(Connect.make, json_objects),
    st.builds(Sub.make, fields, fields, replies),
    st.builds(Unsub.make, fields, st.none() | st.integers(0, 10**9 - 1)),
    st.builds(Pub.make, fields, payloads, replies),
    st.builds(HPub.make, fields, header_fields | header_blocks, payloads, replies),
)
server_operations: SearchStrategy[Operation] = st.one_of(
    st.builds(Ping.make),
    st.builds(Pong.make),
    st.builds(Ok.make),
    st.builds(Info.make, json_objects),
    st.builds(Err.make, line_text),
    st.builds(Msg.make, fields, fields, payloads, replies),
    st.builds(HMsg.make, fields, fields, header_fields | header_blocks, payloads, replies),
)
OPERATIONS = {Sender.CLIENT: client_operations, Sender.SERVER: server_operations}
senders = st.sampled_from(Sender)


@st.composite
def valid_streams(draw: DrawFn, sender: Sender) -> tuple[list[Operation], bytes]:
    """Operations one after the other, and their bytes."""
    operations = draw(st.lists(OPERATIONS[sender], max_size=6))
    return operations, b"".join(operation.raw for operation in operations)


VERBS = b"PUB HPUB SUB UNSUB MSG HMSG PING PONG CONNECT INFO +OK -ERR pub Hpub sUB pinG c i + - P".split()
WORDS = [
    *(b"0 1 2 5 007 12 60 61 999999999 1000000000 99999999999999999999 -1 +1 1_0 x foo foo.bar > *".split()),
    *(b"$JS.ACK.S.C.1.1.1.1.0 {} {\"a\":1} {\"a\": [ ] null 'no' \x0b \x0c a\rb \x00 \xff".split(b" ")),
    b" " * 36, b"a" * 41, b"b" * 35,
]  # fmt: skip
FRAGMENTS = [
    *VERBS, *WORDS, b"\r\n", b"\n", b"\r", b" ", b"\t", b"NATS/1.0\r\n\r\n",
    b"PUB a 2\r\nxy\r\n", b"HPUB a 2 4\r\nabcd\r\n", b"MSG a 1 2\r\nxy\r\n", b"HMSG a 1 2 4\r\nabcd\r\n",
]  # fmt: skip


@st.composite
def nearly_operations(draw: DrawFn) -> bytes:
    """A verb, some words, a line end and perhaps a payload: often legal, often only just not."""
    words = draw(st.lists(st.sampled_from(WORDS), max_size=5))
    separator = draw(st.sampled_from([b" ", b" ", b" ", b"\t", b"  "]))
    line = separator.join([draw(st.sampled_from(VERBS)), *words])
    payload = draw(st.sampled_from([b"", b"\r\n", b"x\r\n", b"xy\r\n", b"x" * 60 + b"\r\n"]))
    return line + draw(st.sampled_from([b"\r\n", b"\r\n", b"\n", b" \r\n", b""])) + payload


@st.composite
def broken_streams(draw: DrawFn, sender: Sender) -> bytes:
    """A valid stream with some of its bytes changed, left out, doubled or replaced."""
    _, stream = draw(valid_streams(sender))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(stream)))
        until = draw(st.integers(at, min(len(stream), at + 4)))
        piece = draw(st.sampled_from([*FRAGMENTS, b"", stream[at:until] * 2]) | st.binary(max_size=3))
        stream = stream[:at] + piece + stream[until:]
    return stream


def streams(sender: Sender) -> SearchStrategy[bytes]:
    """Anything: valid, nearly valid, words of the protocol in no order, noise."""
    valid = valid_streams(sender).map(lambda drawn: drawn[1])
    return st.one_of(
        valid,
        broken_streams(sender),
        st.tuples(valid, nearly_operations()).map(b"".join),
        st.lists(nearly_operations(), max_size=4).map(b"".join),
        st.lists(st.sampled_from(FRAGMENTS), max_size=16).map(b"".join),
        st.binary(max_size=60),
    )
