"""The decoder: the grammar of both sides, exact bytes, and the same answer however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.errors import EXCERPT_BYTES, ErrorKind, ProtocolError
from plumbline.wire.nats import (
    Decoder,
    HMsg,
    HPub,
    Info,
    JsonOperation,
    Limits,
    Msg,
    Operation,
    Ping,
    Pub,
    Sender,
    Sub,
)
from tests.wire.segments import byte_by_byte, cuts
from tests.wire.strategies import OPERATIONS, TIGHT, outcome, senders, streams, valid_streams

UNKNOWN, ARGUMENTS, SIZE = ErrorKind.UNKNOWN_OPERATION, ErrorKind.ARGUMENTS, ErrorKind.SIZE
PAYLOAD_SIZE, PAYLOAD_END, JSON = ErrorKind.PAYLOAD_SIZE, ErrorKind.PAYLOAD_END, ErrorKind.JSON
CONTROL_LINE = ErrorKind.CONTROL_LINE


@given(st.data(), senders)
def test_a_stream_gives_its_operations_and_every_byte_back(data: st.DataObject, sender: Sender) -> None:
    operations, stream = data.draw(valid_streams(sender))
    decoder = Decoder(sender)
    found = decoder.feed(stream)
    assert found == operations
    assert b"".join(operation.raw for operation in found) == stream
    assert (decoder.offset, decoder.held) == (len(stream), 0)
    decoder.finish()


@given(st.data(), senders, st.sampled_from([Limits(), TIGHT]))
def test_decoding_is_independent_of_segmentation(data: st.DataObject, sender: Sender, limits: Limits) -> None:
    stream = data.draw(streams(sender))
    whole = outcome([stream], sender, limits)
    assert outcome(byte_by_byte(stream), sender, limits) == whole
    assert outcome(data.draw(cuts(stream)), sender, limits) == whole


@given(st.data(), senders, st.sampled_from([Limits(), TIGHT]))
def test_operations_before_an_error_are_all_there_with_their_bytes(
    data: st.DataObject, sender: Sender, limits: Limits
) -> None:
    stream = data.draw(streams(sender))
    whole = outcome([stream], sender, limits)
    taken = b"".join(operation.raw for operation in whole.operations)
    assert stream.startswith(taken)
    assert whole.offset == len(taken)
    assert whole.held == (b"" if whole.error else stream[len(taken) :])


blanks = st.text(st.sampled_from(" \t"), min_size=1, max_size=3).map(str.encode)
line_ends = st.sampled_from([b"\r\n", b"\n"])


@given(st.data(), senders, line_ends)
def test_case_blanks_and_a_bare_line_feed_change_nothing_but_the_bytes(
    data: st.DataObject, sender: Sender, line_end: bytes
) -> None:
    operation = data.draw(OPERATIONS[sender])
    verb = operation.verb.encode()
    cases = data.draw(st.lists(st.booleans(), min_size=len(verb), max_size=len(verb)))
    pieces = [bytes(byte | 0x20 if lower else byte for byte, lower in zip(verb, cases, strict=True))]
    # A blank inside a JSON string is no separator.
    fields = [b" ".join(operation.args)] if isinstance(operation, JsonOperation) else operation.args
    for field in fields:
        pieces += [data.draw(blanks), field]
    trailing = data.draw(st.just(b"") | blanks) if operation.args else b""
    line = b"".join(pieces) + trailing + line_end
    spelled = line + operation.raw[operation.head :]
    [found] = Decoder(sender).feed(spelled)
    assert (type(found), found.raw, found.args) == (type(operation), spelled, operation.args)
    assert (found.head, found.body) == (len(line), operation.body)


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (b"\r\n", UNKNOWN),
        (b" PING\r\n", UNKNOWN),
        (b"\rPING\r\n", UNKNOWN),
        (b"\x0bPING\r\n", UNKNOWN),
        (b"PUB\x0bfoo 1\r\n", UNKNOWN),
        (b"PINGX\r\n", UNKNOWN),
        (b"GET / HTTP/1.1\r\n", UNKNOWN),
        (b"+OK\r\n", UNKNOWN),
        (b"INFO {}\r\n", UNKNOWN),
        (b"MSG a 1 0\r\n\r\n", UNKNOWN),
        # Servers distinguish a verb without a blank after it from a verb without fields.
        (b"PUB\r\n", UNKNOWN),
        (b"SUB\r\n", UNKNOWN),
        (b"UNSUB\n", UNKNOWN),
        (b"SUB \r\n", ARGUMENTS),
        (b"CONNECT\r\n", ARGUMENTS),
        (b"SUB a\r\n", ARGUMENTS),
        (b"SUB a q 1 2\r\n", ARGUMENTS),
        (b"UNSUB 1 2 3\r\n", ARGUMENTS),
        (b"PUB a\r\n", ARGUMENTS),
        (b"PUB a b c 1\r\n", ARGUMENTS),
        (b"HPUB a 1\r\n", ARGUMENTS),
        (b"PUB a -1\r\n", SIZE),
        (b"PUB a +1\r\n", SIZE),
        (b"PUB a 1_0\r\n", SIZE),
        ("PUB a ٣\r\n".encode(), SIZE),
        (b"PUB a 1\r\r\n", SIZE),
        (b"PUB a 0000000001\r\nx\r\n", SIZE),
        (b"PUB a 99999999999999999999999999\r\n", SIZE),
        (b"HPUB a x 1\r\n", SIZE),
        (b"HPUB a 2 1\r\n", SIZE),
        (b"HPUB a 0000000001 1\r\n", SIZE),
        (b"HPUB a -1 999999999\r\n", SIZE),
        (b"PUB a 999999999\r\n", PAYLOAD_SIZE),
        (b"PUB a 1048577\r\n", PAYLOAD_SIZE),
        (b"HPUB a 1 1048577\r\n", PAYLOAD_SIZE),
        (b"PUB a 1\r\nxy", PAYLOAD_END),
        (b"PUB a 1\r\nx\n", PAYLOAD_END),
        (b"PUB a 1\r\nx\ry", PAYLOAD_END),
        (b"CONNECT {\r\n", JSON),
        (b"CONNECT []\r\n", JSON),
        (b"CONNECT {} x\r\n", JSON),
        (b'CONNECT {"a":NaN}\r\n', JSON),
        (b'CONNECT {"a":"\x01"}\r\n', JSON),
        (b"PUB " + b"a" * 4095 + b" 1\r\nx\r\n", CONTROL_LINE),
        (b"PUB a" + b" " * 4096 + b"1\r\nx\r\n", CONTROL_LINE),
        (b"PING" + b" " * 4098 + b"\r\n", CONTROL_LINE),
    ],
)
def test_operations_clients_may_not_send(stream: bytes, kind: ErrorKind) -> None:
    prefix = b"PUB a 2\r\nhi\r\n"
    found = outcome([prefix + stream], Sender.CLIENT)
    assert (found.error, found.offset, len(found.operations)) == (kind, len(prefix), 1)
    assert outcome(byte_by_byte(prefix + stream), Sender.CLIENT) == found


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (b"PUB a 0\r\n\r\n", UNKNOWN),
        (b"HTTP/1.1 400 Bad Request\r\n", UNKNOWN),
        (b"+OKAY\r\n", UNKNOWN),
        (b"MSG\r\n", UNKNOWN),
        (b"MSG a 1\r\n", ARGUMENTS),
        (b"MSG a 1 r 2 0\r\n", ARGUMENTS),
        (b"HMSG a 1 0\r\n", ARGUMENTS),
        (b"+OK fine\r\n", ARGUMENTS),
        (b"PING now\r\n", ARGUMENTS),
        (b"INFO\r\n", ARGUMENTS),
        (b"MSG a 1 x\r\n", SIZE),
        (b"HMSG a 1 3 2\r\n", SIZE),
        (b"MSG a 1 1\r\nxx", PAYLOAD_END),
        (b"INFO {\r\n", JSON),
        (b"INFO " + b"[" * 60_000 + b"\r\n", JSON),
        (b"INFO " + b" " * 65_537 + b"{}\r\n", CONTROL_LINE),
    ],
)
def test_operations_servers_may_not_send(stream: bytes, kind: ErrorKind) -> None:
    found = outcome([b"+OK\r\n" + stream], Sender.SERVER)
    assert (found.error, found.offset, len(found.operations)) == (kind, 5, 1)
    assert outcome(byte_by_byte(b"+OK\r\n" + stream), Sender.SERVER) == found


@pytest.mark.parametrize(
    ("stream", "args"),
    [
        (b"PUB a 000000001\r\nx\r\n", [b"a", b"000000001"]),
        (b"PUB\ta\t \tr  1 \t\nx\r\n", [b"a", b"r", b"1"]),
        (b"PUB a\x0bb 1\r\nx\r\n", [b"a\x0bb", b"1"]),
        (b"PUB a\rb 1\r\nx\r\n", [b"a\rb", b"1"]),
        (b"PUB " + b"a" * 4094 + b" 1\r\nx\r\n", [b"a" * 4094, b"1"]),
        (b"PUB a 1" + b" " * 4093 + b"\nx\r\n", [b"a", b"1"]),
        (b"UNSUB " + b"s" * 4096 + b"\r\n", [b"s" * 4096]),
        (b"ping or pong?\r\n", [b"or", b"pong?"]),
        (b"HPUB a 0 0\r\n\r\n", [b"a", b"0", b"0"]),
        (b'CONNECT {"name":"\xe9"}\r\n', [b'{"name":"\xe9"}']),
        (b'CONNECT {"a":1,\r "b":2}\r\n', [b'{"a":1,\r', b'"b":2}']),
    ],
)
def test_operations_servers_accept(stream: bytes, args: list[bytes]) -> None:
    found = outcome([stream], Sender.CLIENT)
    assert found.error is None
    assert [operation.raw for operation in found.operations] == [stream]
    assert found.operations[0].args == args
    assert outcome(byte_by_byte(stream), Sender.CLIENT) == found


def test_a_server_line_may_carry_all_of_a_pub_line_and_a_sid() -> None:
    msg = Msg.make("a" * 3000, "9" * 1000, b"x", "r" * 1000)
    assert Decoder(Sender.SERVER).feed(msg.raw) == [msg]


def test_double_space_is_one_separator() -> None:
    raw = b"HMSG _INBOX.x 2  28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n"
    [hmsg] = Decoder(Sender.SERVER).feed(raw)
    assert isinstance(hmsg, HMsg)
    assert (hmsg.sid, hmsg.reply, hmsg.raw) == ("2", None, raw)
    assert hmsg.headers is not None
    assert str(hmsg.headers.status) == "404 No Messages"


@pytest.mark.parametrize(
    ("so_far", "next_byte"),
    [
        (b"", b"\r"),
        (b"", b"M"),
        (b"H", b"T"),
        (b"PIN", b"S"),
        (b"CONNECT", b"E"),
        (b"PUB a 1\r\nx", b"y"),
        (b"PUB a 1\r\nx\r", b"y"),
    ],
)
def test_malformed_input_is_rejected_at_first_wrong_byte(so_far: bytes, next_byte: bytes) -> None:
    decoder = Decoder(Sender.CLIENT)
    assert decoder.feed(so_far) == []
    with pytest.raises(ProtocolError):
        decoder.feed(next_byte)


def test_error_has_kind_offset_and_operation_count() -> None:
    decoder = Decoder(Sender.CLIENT)
    first = decoder.feed(b"PING\r\nSUB a 1\r\nPU")
    with pytest.raises(ProtocolError) as caught:
        decoder.feed(b"B a 1\r\nx\r\nPUB a x" + b"y" * 100 + b"\r\nPING\r\n")
    error = caught.value
    assert [type(operation) for operation in first] == [Ping, Sub]
    assert [type(operation) for operation in error.operations] == [Pub]
    assert (error.kind, error.offset) == (SIZE, len(b"PING\r\nSUB a 1\r\nPUB a 1\r\nx\r\n"))
    assert error.excerpt == (b"PUB a x" + b"y" * 100)[:EXCERPT_BYTES]
    assert str(error).startswith("bad size: PUB size b'xyy")


def test_after_an_error_every_feed_raises_it_again_without_operations() -> None:
    decoder = Decoder(Sender.CLIENT)
    for data in (b"PING\r\nnonsense\r\n", b"PING\r\n", b""):
        with pytest.raises(ProtocolError) as caught:
            decoder.feed(data)
        assert (caught.value.kind, caught.value.offset) == (UNKNOWN, 6)
        assert len(caught.value.operations) == (1 if data.startswith(b"PING\r\nn") else 0)
    assert decoder.held == 0


@pytest.mark.parametrize(
    "unfinished", [b"P", b"PUB a", b"PUB a 5\r\n", b"PUB a 5\r\nhello", b"PUB a 5\r\nhello\r"]
)
def test_the_end_inside_an_operation_is_truncation(unfinished: bytes) -> None:
    decoder = Decoder(Sender.CLIENT)
    assert [type(operation) for operation in decoder.feed(b"PING\r\n" + unfinished)] == [Ping]
    assert (decoder.unfinished, decoder.held) == (unfinished, len(unfinished))
    with pytest.raises(ProtocolError) as caught:
        decoder.finish()
    assert (caught.value.kind, caught.value.offset) == (ErrorKind.TRUNCATED, 6)
    assert caught.value.excerpt == unfinished
    assert decoder.held == 0


def test_limits_may_be_raised_to_those_of_info() -> None:
    decoder = Decoder(Sender.SERVER, Limits(max_payload=4))
    [info] = decoder.feed(b'INFO {"max_payload":8}\r\n')
    assert isinstance(info, Info)
    decoder.limits = Limits(max_payload=info.fields["max_payload"])
    operations: list[Operation] = decoder.feed(b"MSG a 1 8\r\n12345678\r\n")
    assert [type(operation) for operation in operations] == [Msg]


def test_headers_count_against_the_payload_limit() -> None:
    limits = Limits(max_payload=4)
    assert outcome([HPub.make("a", b"12", b"34").raw], Sender.CLIENT, limits).error is None
    assert outcome([HPub.make("a", b"12", b"345").raw], Sender.CLIENT, limits).error == PAYLOAD_SIZE
