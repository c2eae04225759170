"""Real servers as witnesses: what they take, refuse, say and mean is what the codecs say.

Where the codecs are stricter on purpose, ``STRICTER`` says so, and a test proves that it is still so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from plumbline.wire.errors import ErrorKind
from plumbline.wire.nats import Err, HMsg, HPub, Info, Msg, Ping, Pong, Pub, Sender, Sub
from plumbline.wire.nats.headers import Headers
from plumbline.wire.nats.jetstream import (
    PENDING_BYTES,
    PENDING_MESSAGES,
    REQUEST_TIMEOUT,
    Ack,
    AckKind,
    AckSubject,
    PubAck,
    PullRequest,
    StreamInfo,
    next_subject,
)
from tests.patience import HANGS_AFTER_S
from tests.wire.real import Conversation, JetStreamConversation
from tests.wire.strategies import WORDS, Outcome, outcome, refusal

SEGMENT = 1460  # the payload of an Ethernet frame

# What the server sends before it closes; silence for what its parser calls an argument error.
COMPLAINT = {
    ErrorKind.UNKNOWN_OPERATION: "Unknown Protocol Operation",
    ErrorKind.PAYLOAD_END: "Unknown Protocol Operation",
    ErrorKind.CONTROL_LINE: "maximum control line exceeded",
    ErrorKind.PAYLOAD_SIZE: "Maximum Payload Violation",
}
OPEN = {"Invalid Subject", "Invalid Publish Subject"}  # after these a server goes on

CASES = [
    b"\r\n", b" PING\r\n", b"\rPING\r\n", b"GET / HTTP/1.1\r\n", b"MSG a 1 0\r\n\r\n", b"\xff\r\n",
    b"PUB\r\n", b"SUB\r\n", b"UNSUB\r\n", b"HPUB\r\n", b"PUB \r\n", b"SUB \r\n", b"UNSUB \r\n",
    b"CONNECT\r\n", b"SUB a\r\n", b"SUB a q 1 2\r\n", b"UNSUB 1 2 3\r\n", b"PUB a\r\n",
    b"PUB a b c 1\r\nx\r\n", b"HPUB a 1\r\nx\r\n", b"PUB a -1\r\n", b"PUB a +1\r\nx\r\n", b"PUB a 1_0\r\n",
    "PUB a ٣\r\nxxx\r\n".encode(), b"PUB a 1\r\r\nx\r\n", b"PUB a 000000001\r\nx\r\n",
    b"PUB a 0000000001\r\nx\r\n", b"PUB a 10000000000\r\n", b"PUB a 999999999\r\n",
    b"PUB a 1048576\r\n" + b"x" * 1048576 + b"\r\n", b"PUB a 1048577\r\n", b"HPUB a 1 1048577\r\n",
    b"HPUB a x 1\r\n", b"HPUB a 2 1\r\nx\r\n", b"HPUB a -1 999999999\r\n", b"HPUB a 0 0\r\n\r\n",
    b"HPUB a 000000002 4\r\nabcd\r\n", b"PUB a 1\r\nxy", b"PUB a 1\r\nx\n", b"PUB a 1\r\nx\ry",
    b"PUB a 1\nx\r\n", b"PUB\ta\t \tr  1 \t\r\nx\r\n", b"pInG\r\n", b"PING \t\r\n", b"PING now\r\n",
    b"PONG now\n", b"PING\n", b"PUB\x0bfoo 1\r\n", b"PUB a\x0bb 1\r\nx\r\n", b"SUB a\x00\x0cb 1\r\n",
    b"SUB \xff 1\r\n", b"UNSUB 1 abc\r\n", b"UNSUB 1 -1\r\n", b"UNSUB 1 0000000002\r\n",
    b"PUB " + b"a" * 4094 + b" 1\r\nx\r\n", b"PUB " + b"a" * 4095 + b" 1\r\nx\r\n",
    b"PUB a 1" + b" " * 4093 + b"\r\nx\r\n", b"PUB a" + b" " * 4096 + b"1\r\nx\r\n",
    b"SUB " + b"a b c d " * 600 + b"\r\n", b"UNSUB " + b"s" * 4096 + b"\n", b"UNSUB " + b"s" * 4097 + b"\n",
    b"CONNECT {\r\n", b"CONNECT []\r\n", b"CONNECT {} x\r\n", b'CONNECT {"a":NaN}\r\n',
    b'CONNECT {"a":"\x01"}\r\n', b'CONNECT {"name":"\xe9"}\r\n', b'CONNECT {"a":1,\r "b":2}\r\n',
    b"CONNECT\t{}\r\n", b'CONNECT {"a":1,"a":2} \n',
]  # fmt: skip

# Servers take these; no document allows them, no client sends them, and a check must see the difference.
STRICTER = {
    b"PINGX\r\n": ErrorKind.UNKNOWN_OPERATION,
    b"+OK\r\n": ErrorKind.UNKNOWN_OPERATION,
    b"INFO {}\r\n": ErrorKind.UNKNOWN_OPERATION,
    b"CONNECT{}\r\n": ErrorKind.UNKNOWN_OPERATION,
    b"CONNECT null\r\n": ErrorKind.JSON,
    b'CONNECT {"a":1e999}\r\n': ErrorKind.JSON,
    b'CONNECT {"a":"\\ud800"}\r\n': ErrorKind.JSON,
    b'CONNECT {"a":' + b"[" * 1900 + b"]" * 1900 + b"}\r\n": ErrorKind.JSON,
    # A decoder counts the blanks behind a verb, since it holds them.
    b"PUB " + b" " * 4096 + b"a 1\r\nx\r\n": ErrorKind.CONTROL_LINE,
    b"PING" + b" " * 5000 + b"\r\n": ErrorKind.CONTROL_LINE,
    # A carriage return inside a line: servers cut SUB there, PUB not.
    b"SUB a\rb\r\n": ErrorKind.ARGUMENTS,
    # Servers take a line feed that follows nothing but blanks for the start of the first field.
    b"PUB \na 1\r\nx\r\n": ErrorKind.ARGUMENTS,
}


def answers(url: str, stream: bytes) -> tuple[int, str]:
    """How many PONGs a server gives to ``stream`` and a last PING, and with which -ERR it closes, if any."""
    with Conversation(url) as conversation:
        conversation.say(stream + Ping.make().raw)
        received = conversation.until_end()
    complaints = [operation.message for operation in received if isinstance(operation, Err)]
    fatal = [message for message in complaints if message not in OPEN]
    assert len(fatal) <= 1
    return sum(isinstance(operation, Pong) for operation in received), fatal[0] if fatal else ""


def expected_answers(found: Outcome) -> tuple[int, str]:
    """The same, if the server decodes as our decoder does."""
    pings = sum(isinstance(operation, Ping) for operation in found.operations)
    return pings, COMPLAINT.get(found.error, "") if found.error else ""


def decoded(stream: bytes) -> Outcome:
    return outcome([stream + Ping.make().raw], Sender.CLIENT)


def test_servers_take_and_refuse_what_the_decoder_does(nats_server: NatsServer) -> None:
    expected = {stream[:60]: expected_answers(decoded(stream)) for stream in CASES}
    assert {stream[:60]: answers(nats_server.url, stream) for stream in CASES} == expected


def test_servers_are_still_looser_where_the_decoder_is_strict_on_purpose(nats_server: NatsServer) -> None:
    assert {stream: decoded(stream).error for stream in STRICTER} == STRICTER
    pongs = {stream: answers(nats_server.url, stream)[0] for stream in STRICTER}
    assert pongs == {stream: 2 if stream.startswith(b"PING") else 1 for stream in STRICTER}


# At a stray carriage return and at null servers and decoder differ, see STRICTER; $JS needs permission.
_WORDS = [word for word in WORDS if b"\r" not in word and word != b"null" and not word.startswith(b"$JS")]
_VERBS = b"PUB HPUB SUB UNSUB PING PONG CONNECT pub Hpub sUB pinG".split()


@st.composite
def client_streams(draw: DrawFn) -> bytes:
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        verb = draw(st.sampled_from(_VERBS))
        if verb in (b"PING", b"PONG", b"pinG"):
            lines.append(verb + b"\r\n")
            continue
        words = draw(st.lists(st.sampled_from(_WORDS), max_size=5))
        separator = draw(st.sampled_from([b" ", b" ", b"\t", b"  "]))
        ends = [b"\r\n", b"\r\n", b" \r\n"] + [b"\n"] * any(word.strip() for word in words)  # see STRICTER
        end = draw(st.sampled_from(ends))
        payload = draw(st.sampled_from([b"", b"\r\n", b"\r\n", b"x\r\n", b"xy\r\n", b"x" * 60 + b"\r\n"]))
        lines.append(separator.join([verb, *words]) + end + payload)
    return b"".join(lines)


def test_decoder_agrees_with_servers_on_generated_lines(nats_server: NatsServer) -> None:
    @settings(max_examples=150, suppress_health_check=list(HealthCheck))
    @given(client_streams())
    def agree(stream: bytes) -> None:
        assert answers(nats_server.url, stream) == expected_answers(decoded(stream))

    agree()


def session(url: str) -> JetStreamConversation:
    """All that a server sends to an ordinary client: messages, headers, statuses, errors, big and empty."""
    talk = JetStreamConversation(url)
    talk.stream("ORDERS", messages=3)
    talk.consumer("ORDERS", "C", ack_policy="explicit")
    talk.say(Sub.make("_INBOX.pull", 2))
    talk.say(Sub.make("core.>", 3))
    talk.say(HPub.make("ORDERS", [("Nats-Msg-Id", "1"), ("A", "1"), ("A", "2")], b"\x00\xff\r\n"))
    talk.say(Pub.make(next_subject("ORDERS", "C"), b'{"batch":10,"expires":100000000}', "_INBOX.pull"))
    talk.say(Pub.make("core.big", b"x" * 1_000_000))
    talk.say(Pub.make("core.empty", b"", "a.reply"))
    talk.say(Pub.make("unused.home", b"", "_INBOX.api"))
    talk.say(Sub.make("bad..subject", 4))
    talk.until_pong()
    while len(talk.on("2")) < 5:
        assert talk.next() is not None
    return talk


def test_real_session_round_trips_and_nats_py_agrees(nats_server: NatsServer) -> None:
    witness = pytest.importorskip("tests.wire.nats_py_witness", reason="needs nats-py: pip install nats-py")
    with session(nats_server.url) as talk:
        heard, operations = talk.heard, talk.operations
    assert {type(operation) for operation in operations} == {Info, Msg, HMsg, Pong, Err}
    assert b"".join(operation.raw for operation in operations) == heard
    for size in (7, SEGMENT, len(heard)):
        chunks = [heard[start : start + size] for start in range(0, len(heard), size)]
        assert outcome(chunks, Sender.SERVER).operations == tuple(operations)
        assert witness.heard_by_nats_py(chunks) == [witness.as_event(op) for op in operations]


def test_replies_and_ack_subjects_of_a_real_server_are_read(nats_server: NatsServer) -> None:
    with session(nats_server.url) as talk:
        *delivered, last = talk.on("2")
        consumer = talk.info("ORDERS", "C")
        stream = StreamInfo.of(talk.api("STREAM.INFO", "ORDERS"))
        acknowledged = PubAck.parse(talk.request("ORDERS"))
    subjects = [AckSubject.parse(message.reply or "") for message in delivered]
    assert [str(subject) for subject in subjects] == [message.reply for message in delivered]
    assert [(ack.stream, ack.consumer, ack.stream_seq) for ack in subjects] == [
        ("ORDERS", "C", sequence) for sequence in (1, 2, 3, 4)
    ]
    assert last.headers == Headers(REQUEST_TIMEOUT, ((PENDING_MESSAGES, "6"), (PENDING_BYTES, "0")))
    assert (consumer.stream_name, consumer.name) == ("ORDERS", "C")
    assert (str(consumer.delivered), str(consumer.ack_floor)) == ("4/4", "0/0")
    assert (consumer.num_ack_pending, consumer.num_pending) == (4, 0)
    assert (stream.state.messages, stream.state.first_seq, stream.state.last_seq) == (4, 1, 4)
    assert acknowledged == PubAck("ORDERS", 5)


def settled(look: Callable[[], object], expected: object) -> object:
    """What ``look`` sees: asked again, a round trip each time, until it is as expected or time is up."""
    until = time.monotonic() + HANGS_AFTER_S
    while (seen := look()) != expected and time.monotonic() < until:
        pass
    return seen


BODIES = [
    b"", b"  \r\n", b"{}", b" 2\n", b"+2", b"0", b"-0", b"002", b"1_0", b"2.0", b"0x2", "٢".encode(), b"two",
    b"[2]", b'"2"', b"null", b"\xff", b"9223372036854775808", b"0" * 5000 + b"2", b'{"batch":0}',
    b'{"batch":2}', b'{"batch":null}', b'{"batch":2,"batch":3}', b'{"bogus":1,"batch":2}',
    b'{"x":"\xe9","batch":2}', b' {"batch": 2}\r\n', b'{"no_wait":null}',
    b'{"idle_heartbeat":null,"batch":2}', b'{"priority":0,"batch":2}', b"{", b"{b}", b"{} x",
    b'{"batch":"2"}', b'{"batch":2.0}', b'{"batch":2e0}',
    b'{"batch":true}', b'{"no_wait":1}', b'{"expires":"5s"}', b'{"batch":9223372036854775808}',
    b'{"batch":[]}', b'{"a":' * 500,
]  # fmt: skip


def test_servers_read_pull_requests_as_the_parser_does(nats_server: NatsServer) -> None:
    expected: dict[bytes, object] = {}
    looks: dict[bytes, Callable[[], object]] = {}

    def look(name: str) -> object:
        delivered = talk.info("S", name).delivered.consumer_seq
        refused = [message.headers for message in talk.on(f"_INBOX.pull.{name}")]
        return [headers.status.code for headers in refused if headers and headers.status] or delivered

    with JetStreamConversation(nats_server.url) as talk:
        talk.stream("S", messages=5)
        talk.say(Sub.make("_INBOX.pull.*", "pull"))
        for number, body in enumerate(BODIES):
            name = f"C{number}"
            talk.consumer("S", name, ack_policy="none")
            talk.say(Pub.make(next_subject("S", name), body, f"_INBOX.pull.{name}"))
            refused = refusal(partial(PullRequest.parse, body))
            expected[body] = [400] if refused else PullRequest.parse(body).batch
            looks[body] = partial(look, name)
            settled(looks[body], expected[body])
        # Once more at the end: no operation was received later.
        assert {body: look() for body, look in looks.items()} == expected


PAYLOADS = [
    b"", b"+ACK", b"+OK", b"+ACK ", b" +ACK", b"+ack", b"+ACKED", b"+OK ", b"ack", b"\x00",
    b"+WPI", b"+WPI ", b"+wpi", b"+TERM", b"+TERM ", b"+TERM no such order", b"+TERMINATED", b"-TERM",
    b"-NAK", b"-NAK ", b"-NAKED", b"-nak", b"-NAK soon", b"-NAK 5", b"-NAK 1h", b"-NAK30m", b"-NAK\t1.5h ",
    b'-NAK {"delay":3600000000000}', b'-NAK{"delay":3600000000000}', b"-NAK {}", b'-NAK {"delay":null}',
    b'-NAK {"delay":"1h"}', b'-NAK {"delay":3600000000000.5}', b'-NAK {"delay":36e11}', b"-NAK {",
    b"-NAK -1h",
    b"+NXT", b"+NXT ", b"+NXT 2", b"+NXT2", b'+NXT {"batch":2}', b'+NXT{"batch":2}', b"+NXT two", b"+nxt",
]  # fmt: skip

State = tuple[str, str, int]  # delivered, ack_floor, num_ack_pending
DELIVERED: State = ("1/1", "0/0", 1)
ACKNOWLEDGED: State = ("1/1", "1/1", 0)


def meaning(payload: bytes, version: tuple[int, ...]) -> State:
    """Where a consumer of 3 messages stands after one, this answer to it and, if a NAK, 3 more pulls."""
    ack = Ack.parse(payload)
    match ack.kind:
        case AckKind.TERM if payload != b"+TERM" and version < (2, 10, 4):
            return DELIVERED
        case AckKind.ACK | AckKind.TERM:
            return ACKNOWLEDGED
        case AckKind.NEXT:
            assert ack.next_request is not None
            batch = ack.next_request.batch
            return (f"{1 + batch}/{1 + batch}", "1/1", batch)
        case AckKind.NAK:
            redelivered = ack.delay is None or ack.delay <= 0
            return ("4/3", "0/0", 3) if redelivered else ("3/3", "0/0", 3)
        case _:
            return DELIVERED


def test_servers_read_acknowledgements_as_the_parser_does(
    nats_server: NatsServer, server_binary: ServerBinary
) -> None:
    version = tuple(int(part) for part in server_binary.version.split("."))
    expected = {payload: meaning(payload, version) for payload in PAYLOADS}
    looks: dict[bytes, Callable[[], object]] = {}

    def look(name: str) -> object:
        info = talk.info("S", name)
        return (str(info.delivered), str(info.ack_floor), info.num_ack_pending)

    with JetStreamConversation(nats_server.url) as talk:
        talk.stream("S", messages=3)
        talk.say(Sub.make("_INBOX.next", "next"))
        for number, payload in enumerate(PAYLOADS):
            name = f"C{number}"
            talk.consumer("S", name, ack_policy="explicit")
            talk.say(Sub.make(f"_INBOX.pull.{name}", name))
            pull = Pub.make(next_subject("S", name), b"", f"_INBOX.pull.{name}")
            talk.say(pull)
            while not talk.on(name):
                assert talk.next() is not None
            reply = talk.on(name)[0].reply
            assert reply is not None
            ack = Ack.parse(payload)
            if ack.kind is AckKind.NEXT:
                talk.say(Pub.make(reply, payload, "_INBOX.next"))
            else:
                assert talk.request(reply, payload) == b""
            if ack.kind is AckKind.NAK:
                talk.say(pull.raw * 3)
            looks[payload] = partial(look, name)
            settled(looks[payload], expected[payload])
        # Once more at the end: no operation was received later.
        assert {payload: look() for payload, look in looks.items()} == expected
