"""Mutated sessions: whatever comes, a codec answers with operations or a ``ProtocolError``, and soon.

Runs for a fixed time, from a fixed seed. For longer: PLUMBLINE_FUZZ_SECONDS=600 PLUMBLINE_FUZZ_SEED=7.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from functools import partial
from random import Random

import pytest

from plumbline.wire.errors import ErrorKind
from plumbline.wire.nats import (
    Connect,
    Err,
    HMsg,
    HPub,
    Info,
    JsonOperation,
    Limits,
    Msg,
    Ok,
    Operation,
    Payload,
    Ping,
    Pong,
    Pub,
    Sender,
    Sub,
    Unsub,
)
from plumbline.wire.nats.headers import Headers, Status, encode_headers
from plumbline.wire.nats.jetstream import (
    Ack,
    AckSubject,
    ConsumerInfo,
    PubAck,
    PullRequest,
    StreamInfo,
    next_subject,
)
from tests.wire.segments import byte_by_byte, cut
from tests.wire.strategies import FRAGMENTS, TIGHT, Outcome, outcome, refusal

pytestmark = pytest.mark.slow  # make test-all runs it

SECONDS = float(os.environ.get("PLUMBLINE_FUZZ_SECONDS", "2"))
FEWEST = 2000  # sessions, however slow the machine
SEED = int(os.environ.get("PLUMBLINE_FUZZ_SEED", "1"))

LIMITS = [Limits(), TIGHT, Limits(max_control_line=160, max_payload=20, max_server_line=160)]

ACK_SUBJECT = "$JS.ACK.ORDERS.DISPATCH.1.1.1.1795245217069268390.4"
CONNECT = {
    "verbose": True,
    "pedantic": False,
    "headers": True,
    "no_responders": True,
    "name": "héllo",
    "lang": "x",
}
PAIR = b'{"consumer_seq":2,"stream_seq":2}'
CONSUMER = (
    b'{"type":"io.nats.jetstream.api.v1.consumer_info_response","stream_name":"ORDERS","name":"DISPATCH",'
    b'"config":{"ack_wait":30000000000},"delivered":'
    + PAIR
    + b',"ack_floor":'
    + PAIR
    + b',"num_ack_pending":0,'
    b'"num_redelivered":0,"num_waiting":1,"num_pending":4}'
)
# What clients and servers say to each other in a pull, an acknowledgement, a request without an answer.
CORPUS: dict[Sender, list[bytes]] = {
    Sender.CLIENT: [
        Connect.make(CONNECT).raw + Ping.make().raw + Pong.make().raw,
        Sub.make("_INBOX.x", 1).raw
        + Pub.make(next_subject("ORDERS", "DISPATCH"), b'{"batch":5,"no_wait":true}', "_INBOX.x").raw
        + Unsub.make(1, 6).raw,
        Pub.make(ACK_SUBJECT).raw
        + Pub.make(ACK_SUBJECT, b"+ACK", "_INBOX.x").raw
        + Pub.make(ACK_SUBJECT, b'-NAK {"delay":500000000}').raw
        + Pub.make(ACK_SUBJECT, b"-NAK 1m30.5s").raw
        + Pub.make(ACK_SUBJECT, b"+NXT 10", "_INBOX.x").raw
        + Pub.make(ACK_SUBJECT, b"+TERM no such order").raw,
        HPub.make("orders.new", [("Nats-Msg-Id", "1"), ("X", "é")], b"hello", "_INBOX.x").raw * 3,
        Sub.make("orders.*", "sid", "queue").raw + b"pub\torders.new\t 2 \nhi\r\nPING\n",
    ],
    Sender.SERVER: [
        Info.make({"server_id": "N" * 56, "version": "2.9.10", "headers": True, "max_payload": 1048576}).raw
        + Ok.make().raw
        + Pong.make().raw
        + Ping.make().raw,
        Msg.make("orders.new", 1, b"order 4", ACK_SUBJECT).raw * 2 + Msg.make("_INBOX.x", 2).raw,
        b"HMSG _INBOX.x 2  28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n"
        + HMsg.make("_INBOX.x", 2, encode_headers(status=Status(503))).raw,
        HMsg.make(
            "orders.new", 1, [("Nats-Msg-Id", "1"), ("a", ""), ("a", "2")], b"hello\r\n", ACK_SUBJECT
        ).raw,
        Msg.make("_INBOX.x", 3, b'{"stream":"ORDERS", "seq":1,"duplicate": true}').raw
        + Msg.make(
            "_INBOX.x", 3, b'{"error":{"code":404,"err_code":10014,"description":"consumer not found"}}'
        ).raw
        + Msg.make("_INBOX.x", 3, CONSUMER).raw,
        Err.make("Unknown Protocol Operation").raw + Err.make('Permissions Violation for Publish to "a"').raw,
    ],
}
NUMBERS = [
    b"0",
    b"1",
    b"-1",
    b"60",
    b"61",
    b"999999999",
    b"1000000000",
    b"18446744073709551616",
    b"1e9",
    b"007",
]


def mutated(random: Random, sender: Sender) -> bytes:
    """A session, or two joined somewhere, with a few wounds."""
    data = random.choice(CORPUS[sender])
    if random.random() < 0.3:
        other = random.choice(CORPUS[random.choice(list(Sender))])
        data = data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other)) :]
    for _ in range(random.choice((0, 1, 1, 2, 3, 6))):
        at = random.randrange(len(data) + 1)
        until = min(len(data), at + random.choice((0, 1, 1, 2, 5, 20)))
        match random.randrange(6):
            case 0:
                piece = bytes([random.randrange(256)])
            case 1:
                piece = random.choice(FRAGMENTS)
            case 2:
                piece = data[at:until] * random.choice((2, 3, 50))
            case 3:
                piece = random.choice(NUMBERS)
            case 4:
                piece = random.randbytes(random.randrange(8))
            case _:
                piece = b""
        data = data[:at] + piece + data[until:]
    return data


def look_at_everything(operation: Operation) -> None:
    """Reads every attribute and method of an operation; the only possible error is ``ProtocolError``."""
    assert str(operation).isprintable()
    assert operation.raw.startswith(operation.line.encode("utf-8", "surrogateescape"))
    match operation:
        case JsonOperation():
            assert isinstance(operation.fields, dict)
        case Payload():
            assert operation.header_block + operation.payload == operation.body
            assert refusal(lambda: operation.headers) in (None, ErrorKind.HEADERS)
            assert refusal(lambda: Headers.parse(operation.payload)) in (None, ErrorKind.HEADERS)
            for subject in (operation.subject, operation.reply or ""):
                assert refusal(partial(AckSubject.parse, subject)) in (
                    None,
                    ErrorKind.ARGUMENTS,
                )
            ack = Ack.parse(operation.payload)
            assert refusal(lambda: (ack.delay, ack.reason, ack.encode())) is None
            assert refusal(lambda: ack.next_request) in (None, ErrorKind.JSON)
            for parse in (PullRequest.parse, PubAck.parse, ConsumerInfo.parse, StreamInfo.parse):
                assert refusal(partial(parse, operation.payload)) in (None, ErrorKind.JSON)
        case Sub() | Unsub():
            assert operation.sid
        case Err():
            assert operation.message in operation.line


@pytest.mark.parametrize("sender", Sender)
def test_no_mutated_session_confuses_a_decoder(sender: Sender) -> None:
    random = Random(SEED)
    seen: Counter[ErrorKind | None] = Counter()
    until = time.monotonic() + SECONDS / len(Sender)
    while sum(seen.values()) < FEWEST or time.monotonic() < until:
        data = mutated(random, sender)
        limits = random.choice(LIMITS)
        whole = outcome([data], sender, limits)
        assert outcome(cut(random, data), sender, limits) == whole
        if len(data) < 400:
            assert outcome(byte_by_byte(data), sender, limits) == whole
        check(data, whole)
        seen[whole.error] += 1
    # What the fuzzing is worth: it met every kind of error, and streams without one.
    assert set(seen) == {
        None,
        ErrorKind.UNKNOWN_OPERATION,
        ErrorKind.ARGUMENTS,
        ErrorKind.SIZE,
        ErrorKind.CONTROL_LINE,
        ErrorKind.PAYLOAD_SIZE,
        ErrorKind.PAYLOAD_END,
        ErrorKind.JSON,
    }


def check(data: bytes, whole: Outcome) -> None:
    taken = b"".join(operation.raw for operation in whole.operations)
    assert data.startswith(taken)
    assert whole.offset == len(taken)
    for operation in whole.operations:
        look_at_everything(operation)
