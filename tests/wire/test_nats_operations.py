"""Operations: what is written is what is read, in both directions, right and wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.nats import (
    Connect,
    Decoder,
    Err,
    HMsg,
    HPub,
    Info,
    JsonOperation,
    Msg,
    Ok,
    Operation,
    Payload,
    Ping,
    Pong,
    Pub,
    Raw,
    Sender,
    Sub,
    Unsub,
)
from plumbline.wire.nats.headers import Headers, Status, encode_headers
from tests.wire.strategies import (
    OPERATIONS,
    fields,
    header_blocks,
    header_fields,
    json_objects,
    line_text,
    outcome,
    payloads,
    replies,
    senders,
)


def decoded(operation: Operation, sender: Sender) -> Operation:
    operations = Decoder(sender).feed(operation.raw)
    assert len(operations) == 1
    return operations[0]


@given(st.data(), senders)
def test_make_decode_round_trip(data: st.DataObject, sender: Sender) -> None:
    operation = data.draw(OPERATIONS[sender])
    assert decoded(operation, sender) == operation


@pytest.mark.parametrize(("kind", "raw"), [(Ping, b"PING\r\n"), (Pong, b"PONG\r\n"), (Ok, b"+OK\r\n")])
def test_operations_without_fields(kind: type[Ping] | type[Pong] | type[Ok], raw: bytes) -> None:
    assert kind.make().raw == raw
    assert decoded(kind.make(), Sender.SERVER).args == []


@given(fields, fields, replies)
def test_sub_keeps_subject_queue_and_sid(subject: str, sid: str, queue: str | None) -> None:
    sub = decoded(Sub.make(subject, sid, queue), Sender.CLIENT)
    assert isinstance(sub, Sub)
    assert (sub.subject, sub.sid, sub.queue) == (subject, sid, queue)


@given(fields, st.none() | st.integers(0, 10**9 - 1))
def test_unsub_keeps_sid_and_maximum(sid: str, max_msgs: int | None) -> None:
    unsub = decoded(Unsub.make(sid, max_msgs), Sender.CLIENT)
    assert isinstance(unsub, Unsub)
    assert (unsub.sid, unsub.max_msgs) == (sid, max_msgs)


@pytest.mark.parametrize("maximum", ["-1", "x", "+2", "0000000002"])
def test_a_maximum_that_servers_do_not_read_is_none(maximum: str) -> None:
    unsub = decoded(Unsub.make(1, maximum), Sender.CLIENT)
    assert isinstance(unsub, Unsub)
    assert unsub.max_msgs is None
    assert unsub.args == [b"1", maximum.encode()]


@given(fields, payloads, replies)
def test_pub_keeps_subject_reply_and_payload(subject: str, payload: bytes, reply: str | None) -> None:
    pub = decoded(Pub.make(subject, payload, reply), Sender.CLIENT)
    assert isinstance(pub, Pub)
    assert (pub.subject, pub.reply, pub.payload, pub.headers) == (subject, reply, payload, None)


@given(fields, fields, payloads, replies)
def test_msg_keeps_subject_sid_reply_and_payload(
    subject: str, sid: str, payload: bytes, reply: str | None
) -> None:
    msg = decoded(Msg.make(subject, sid, payload, reply), Sender.SERVER)
    assert isinstance(msg, Msg)
    assert (msg.subject, msg.sid, msg.reply, msg.payload) == (subject, sid, reply, payload)


@given(fields, header_fields, payloads, replies)
def test_hpub_keeps_headers_and_payload(
    subject: str, headers: list[tuple[str, str]], payload: bytes, reply: str | None
) -> None:
    hpub = decoded(HPub.make(subject, headers, payload, reply), Sender.CLIENT)
    assert isinstance(hpub, HPub)
    assert (hpub.subject, hpub.reply, hpub.payload) == (subject, reply, payload)
    assert hpub.header_block == encode_headers(headers)
    assert hpub.headers == Headers(None, tuple(headers))


@given(fields, fields, header_blocks, payloads, replies)
def test_hmsg_keeps_header_block_bytes(
    subject: str, sid: str, block: bytes, payload: bytes, reply: str | None
) -> None:
    hmsg = decoded(HMsg.make(subject, sid, block, payload, reply), Sender.SERVER)
    assert isinstance(hmsg, HMsg)
    assert (hmsg.subject, hmsg.sid, hmsg.reply) == (subject, sid, reply)
    assert (hmsg.header_block, hmsg.payload) == (block, payload)


@given(json_objects)
@pytest.mark.parametrize(("kind", "sender"), [(Info, Sender.SERVER), (Connect, Sender.CLIENT)])
def test_json_round_trip_keeps_values(
    kind: type[Info] | type[Connect], sender: Sender, values: dict[str, Any]
) -> None:
    operation = decoded(kind.make(values), sender)
    assert isinstance(operation, JsonOperation)
    assert operation.fields == values


@given(line_text)
def test_err_keeps_its_message(message: str) -> None:
    err = decoded(Err.make(message), Sender.SERVER)
    assert isinstance(err, Err)
    assert err.message == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"-ERR 'Unknown Protocol Operation'\r\n", "Unknown Protocol Operation"),
        (
            b"-ERR 'Permissions Violation for Publish to \"no.way\"'\r\n",
            'Permissions Violation for Publish to "no.way"',
        ),
        (b"-ERR \t 'two  blanks' \n", "two  blanks"),
        (b"-ERR no quotes\r\n", "no quotes"),
        (b"-ERR '\r\n", "'"),
        (b"-ERR\r\n", ""),
    ],
)
def test_err_message_is_text_between_quotes(line: bytes, message: str) -> None:
    [err] = Decoder(Sender.SERVER).feed(line)
    assert isinstance(err, Err)
    assert err.message == message


def test_bytes_that_are_no_utf_8_survive_in_text() -> None:
    [pub] = Decoder(Sender.CLIENT).feed(b"PUB a\xff\x00\x0bb 0\r\n\r\n")
    assert isinstance(pub, Pub)
    assert Pub.make(pub.subject).raw == pub.raw


@pytest.mark.parametrize(
    ("operation", "raw", "kind"),
    [
        (Pub.make("a", b"hello", size=4), b"PUB a 4\r\nhello\r\n", ErrorKind.PAYLOAD_END),
        (Pub.make("a", b"hello", "r", size=-1), b"PUB a r -1\r\nhello\r\n", ErrorKind.SIZE),
        (Pub.make("a", b"hello", size="x"), b"PUB a x\r\nhello\r\n", ErrorKind.SIZE),
        (Pub.make("a b", b"", "r"), b"PUB a b r 0\r\n\r\n", ErrorKind.ARGUMENTS),
        (
            HPub.make("a", b"h", b"p", header_size=3, size=2),
            b"HPUB a 3 2\r\nhp\r\n",
            ErrorKind.SIZE,
        ),
        (HPub.make("a", b"h", b"p", header_size="h"), b"HPUB a h 2\r\nhp\r\n", ErrorKind.SIZE),
        (Connect.make(b'{"verbose":'), b'CONNECT {"verbose":\r\n', ErrorKind.JSON),
        (Sub.make("a", "1 2", "q"), b"SUB a q 1 2\r\n", ErrorKind.ARGUMENTS),
        (Unsub.make("1 2 3"), b"UNSUB 1 2 3\r\n", ErrorKind.ARGUMENTS),
        (Raw.make(b"GET / HTTP/1.1\r\n"), b"GET / HTTP/1.1\r\n", ErrorKind.UNKNOWN_OPERATION),
    ],
)
def test_a_client_can_write_what_is_malformed(operation: Operation, raw: bytes, kind: ErrorKind) -> None:
    assert operation.raw == raw
    assert outcome([raw], Sender.CLIENT).error == kind


@pytest.mark.parametrize(
    ("operation", "raw", "kind"),
    [
        (Msg.make("a", 1, b"hello", size=4), b"MSG a 1 4\r\nhello\r\n", ErrorKind.PAYLOAD_END),
        (
            HMsg.make("a", 1, b"h", b"p", "r", header_size=9),
            b"HMSG a 1 r 9 2\r\nhp\r\n",
            ErrorKind.SIZE,
        ),
        (Info.make(b"[]"), b"INFO []\r\n", ErrorKind.JSON),
    ],
)
def test_a_server_can_write_what_is_malformed(operation: Operation, raw: bytes, kind: ErrorKind) -> None:
    assert operation.raw == raw
    assert outcome([raw], Sender.SERVER).error == kind


def test_error_for_headers_of_malformed_operation_names_the_field() -> None:
    with pytest.raises(ProtocolError, match="HPUB header size b'x'") as caught:
        _ = HPub.make("a", b"NATS/1.0\r\n\r\n", header_size="x").payload
    assert caught.value.kind is ErrorKind.SIZE


def test_every_operation_with_a_payload_has_a_reply_or_none() -> None:
    with_reply = [Pub.make("s", b"", "r"), HPub.make("s", [], b"", "r"), Msg.make("s", 1, b"", "r")]
    without: list[Payload] = [Pub.make("s"), HPub.make("s", []), Msg.make("s", 1), HMsg.make("s", 1, [])]
    assert [operation.reply for operation in with_reply] == ["r"] * 3
    assert HMsg.make("s", 1, [], b"", "r").reply == "r"
    assert [operation.reply for operation in without] == [None] * 4


def test_equal_operations_have_equal_hashes() -> None:
    assert {Pub.make("a", b"x"), Pub.make("a", b"x"), Pub.make("b", b"x")} == {
        Pub.make("a", b"x"),
        Pub.make("b", b"x"),
    }


@pytest.mark.parametrize(
    ("operation", "shown"),
    [
        (Sub.make("orders.>", 1, "q"), "SUB orders.> q 1"),
        (Pub.make("a", b"hello"), "PUB a 5 | hello"),
        (Pub.make("a"), "PUB a 0"),
        (Pub.make("a", "café".encode()), "PUB a 5 | café"),
        (Pub.make("a", b"\x1b[31m\x00\xff\\"), r"PUB a 8 | \x1b[31m\x00\xff\\"),
        (Pub.make("\x1b[31m"), r"PUB \x1b[31m 0"),
        (Pub.make("a", b"x" * 1200), f"PUB a 1200 | {'x' * 1000}... (1200 bytes)"),
        (
            HMsg.make("a", 1, encode_headers(status=Status(404, "No Messages"))),
            r"HMSG a 1 28 28 | NATS/1.0 404 No Messages\r\n\r\n",
        ),
        (Raw.make(b"no such thing\r\n"), r"no such thing\r\n"),
        (Raw.make(b"x" * 1200), f"{'x' * 1000}... (1200 bytes)"),
    ],
)
def test_str_is_one_printable_line_for_logs(operation: Operation, shown: str) -> None:
    assert str(operation) == shown
