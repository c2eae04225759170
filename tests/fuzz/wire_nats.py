"""NATS: the decoder of both sides, and the readers of what JetStream puts into payloads and subjects."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.json_text import json_object
from plumbline.wire.nats import (
    Connect,
    Decoder,
    Err,
    HeaderPayload,
    HMsg,
    HPub,
    Info,
    JsonOperation,
    Limits,
    Msg,
    Operation,
    Payload,
    Ping,
    Pong,
    Pub,
    Sender,
    Sub,
    Unsub,
)
from plumbline.wire.nats.headers import Headers
from plumbline.wire.nats.jetstream.acks import Ack, AckSubject
from plumbline.wire.nats.jetstream.replies import ApiError, ConsumerInfo, PubAck, StreamInfo
from plumbline.wire.nats.jetstream.requests import PullRequest
from plumbline.wire.nats.subjects import collide, covers, is_literal, is_valid
from plumbline.wire.units import format_duration, parse_duration, read_duration, read_size
from tests.fuzz.segmentation import same_however_cut
from tests.fuzz.target import Target
from tests.wire.strategies import FRAGMENTS, TIGHT, Outcome, outcome

SENDERS = (Sender.CLIENT, Sender.SERVER)
LIMITS = (Limits(), TIGHT)
LONGEST_START = 20  # of a line: verb, blanks and the two bytes of its end
HEADERS = b"NATS/1.0 404 No Messages\r\nNats-Msg-Id: 1\r\nA:b\r\n\r\n"
CLIENT = (
    b'CONNECT {"verbose":false}\r\nPING\r\nSUB a.> q 1\r\nUNSUB 1 5\r\nPUB a.b r 5\r\nhello\r\n'
    + b"HPUB a.b r %d %d\r\n" % (len(HEADERS), len(HEADERS) + 2)
    + HEADERS
    + b"hi\r\n"
)
SERVER = (
    b"INFO {\"max_payload\":100}\r\nPONG\r\n+OK\r\n-ERR 'Stale Connection'\r\nMSG a 1 r 5\r\nhello\r\n"
    + b"HMSG a 1 %d %d\r\n" % (len(HEADERS), len(HEADERS) + 2)
    + HEADERS
    + b"hi\r\n"
)


def codec(data: bytes) -> None:
    """The first byte chooses side and limits."""
    chosen, stream = (data[0], data[1:]) if data else (0, b"")
    sender, limits = SENDERS[chosen & 1], LIMITS[chosen >> 1 & 1]

    def read(chunks: object) -> Outcome:
        return outcome(chunks, sender, limits)  # type: ignore[arg-type]

    whole = same_however_cut(stream, read)
    raws = b"".join(operation.raw for operation in whole.operations)
    assert raws == stream[: whole.offset], "bytes were lost or made up"
    if whole.error is None:
        assert raws + whole.held == stream
        line = limits.max_control_line if sender is Sender.CLIENT else limits.max_server_line
        assert len(whole.held) <= 2 * LONGEST_START + line + limits.max_payload
    for operation in whole.operations:
        _check_operation(operation, sender, limits)


def _check_operation(operation: Operation, sender: Sender, limits: Limits) -> None:
    assert Decoder(sender, limits).feed(operation.raw) == [operation]
    assert str(operation).isprintable()
    made = _made_again(operation)
    if made is not None:
        (again,) = Decoder(sender).feed(made.raw)
        assert _values(again) == _values(operation) == _values(made)
    if isinstance(operation, HeaderPayload):
        _check_headers(operation.header_block)


def _made_again(operation: Operation) -> Operation | None:
    """The same in the canonical spelling; None for what has no values."""
    match operation:
        case HPub():
            return HPub.make(operation.subject, operation.header_block, operation.payload, operation.reply)
        case Pub():
            return Pub.make(operation.subject, operation.payload, operation.reply)
        case HMsg():
            return HMsg.make(
                operation.subject, operation.sid, operation.header_block, operation.payload, operation.reply
            )
        case Msg():
            return Msg.make(operation.subject, operation.sid, operation.payload, operation.reply)
        case Sub():
            return Sub.make(operation.subject, operation.sid, operation.queue)
        case Unsub():
            return Unsub.make(operation.sid, operation.max_msgs)
        case Info():
            return Info.make(operation.fields)
        case Connect():
            return Connect.make(operation.fields)
    return None


def _values(operation: Operation) -> object:
    match operation:
        case Payload():
            sid = operation.sid if isinstance(operation, Msg | HMsg) else ""
            return (
                type(operation),
                operation.subject,
                sid,
                operation.reply,
                operation.header_block,
                (operation.payload),
            )
        case Sub():
            return operation.subject, operation.sid, operation.queue
        case Unsub():
            return operation.sid, operation.max_msgs
        case JsonOperation():
            return repr(operation.fields)
        case Err():
            return operation.message
    return type(operation)


def _check_headers(block: bytes) -> None:
    try:
        headers = Headers.parse(block)
    except ProtocolError as error:
        kind = error.kind
    else:
        assert Headers.parse(headers.encode()) == headers
        return
    assert kind is ErrorKind.HEADERS


def jetstream(data: bytes) -> None:
    """Acknowledgements, requests, replies, headers, subjects and durations, all from the same bytes."""
    text = data.decode("utf-8", "surrogateescape")
    subject = _read(lambda: AckSubject.parse(text))
    if subject is not None:
        assert AckSubject.parse(str(subject)) == subject
    ack = Ack.parse(data)
    assert Ack.parse(ack.encode()) == ack or ack.argument.startswith((b"+", b"-")) or ack.kind.value == ""
    assert ack.delay is None or -(2**63) <= ack.delay < 2**63
    assert ack.reason is None or ack.reason
    _read(lambda: ack.next_request)
    _read(lambda: PullRequest.parse(data))
    for reply in (PubAck, ConsumerInfo, StreamInfo):
        _read(lambda reply=reply: reply.parse(data))  # type: ignore[misc]
    _read(lambda: ApiError.of(json_object(data)))
    _check_headers(data)
    _check_subjects(data)
    _check_units(text)


def _read(read: Callable[[], object]) -> object:
    """What is read, or None if it is refused as it should be."""
    try:
        return read()
    except ProtocolError:
        return None


def _check_subjects(data: bytes) -> None:
    first, _, second = data.partition(b" ")
    assert covers(first, first)
    if is_valid(first) and is_valid(second) and is_literal(second):
        assert collide(first, second) == covers(first, second)
    assert collide(first, second) == collide(second, first)
    text = covers(first.decode("latin-1"), second.decode("latin-1"))
    assert text == covers(first, second)


def _check_units(text: str) -> None:
    duration = parse_duration(text)
    if duration is not None:
        assert parse_duration(format_duration(duration)) == duration
    for read in (read_duration, read_size):
        number = read(text)
        assert number is None or number >= 0


SIZES = (0, 1, 5, 30, 200, 1000, 5000)  # of payloads
LONG_BYTES = (2_000, 20_000, 200_000)


def _long(random: Random) -> bytes:
    """Many operations of one side, with the default limits; every third stream fits the tight ones."""
    chosen = random.choice((0, 1, 0, 1, 2, 3))
    sizes = [size for size in SIZES if size <= TIGHT.max_payload // 2] if chosen & 2 else SIZES
    make = (_client_operation, _server_operation)[chosen & 1]
    least, stream = random.choice(LONG_BYTES), bytearray((chosen,))
    while len(stream) < least:
        stream += make(random, random.randbytes(random.choice(sizes))).raw
    return bytes(stream)


def _client_operation(random: Random, payload: bytes) -> Operation:
    subject, reply = random.choice(("a", "a.b", "$JS.API.X")), random.choice((None, "r"))
    match random.randrange(6):
        case 0:
            return Sub.make(subject, random.randrange(99), random.choice((None, "q")))
        case 1:
            return Unsub.make(random.randrange(99), random.choice((None, 5)))
        case 2:
            return HPub.make(subject, b"NATS/1.0\r\nA: %d\r\n\r\n" % len(payload), payload, reply)
        case 3:
            return Ping.make()
        case _:
            return Pub.make(subject, payload, reply)


def _server_operation(random: Random, payload: bytes) -> Operation:
    subject, reply = random.choice(("a", "a.b", "_INBOX.x")), random.choice((None, "r"))
    sid = random.randrange(99)
    match random.randrange(6):
        case 0:
            return Info.make({"max_payload": random.randrange(99)})
        case 1:
            return Err.make("Stale Connection")
        case 2:
            return HMsg.make(subject, sid, b"NATS/1.0 404\r\n\r\n", payload, reply)
        case 3:
            return Pong.make()
        case _:
            return Msg.make(subject, sid, payload, reply)


TARGETS = [
    Target(
        "nats-codec",
        codec,
        lambda: [bytes((chosen,)) + stream for stream in (CLIENT, SERVER) for chosen in range(4)],
        tuple(FRAGMENTS),
        2000,
        _long,
    ),
    Target(
        "nats-jetstream",
        jetstream,
        lambda: [
            b"$JS.ACK.S.C.1.2.3.1700000000000000000.4",
            b"$JS.ACK._.hash.S.C.1.2.3.1700000000000000000.4.random",
            b'-NAK {"delay": 500000000}',
            b"-NAK 1h2m3.5s",
            b"+TERM why",
            b'+NXT {"batch":5,"no_wait":true}',
            b'{"batch":5,"expires":1000000000,"max_bytes":100,"idle_heartbeat":1}',
            b'{"stream":"S","seq":5,"duplicate":true}',
            b'{"error":{"code":404,"err_code":1,"description":"d"}}',
            b'{"config":{},"created":"x","state":{"messages":1,"bytes":2,"first_seq":1,"last_seq":2,"consumer_count":0}}',
            HEADERS,
            b"a.*.c.> a.b.c.d",
            b"1.5 MiB",
            b"3d",
        ],
        (
            b"$JS.ACK.",
            b".",
            b"*",
            b">",
            b"+ACK",
            b"-NAK ",
            b"+NXT ",
            b"+TERM ",
            b'{"delay":',
            b"}",
            b"null",
            b"ns",
            b"ms",
            b"18446744073709551616",
            b"NATS/1.0",
            b"\r\n",
            b": ",
            b"503",
            b"\xc2\xb2",
            b"1e400",
        ),
        2000,
    ),
]
