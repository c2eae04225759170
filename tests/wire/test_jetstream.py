"""JetStream texts: requests, acknowledgements, statuses and replies, as servers read and write them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import (
    Ack,
    AckKind,
    AckSubject,
    ApiError,
    ConsumerInfo,
    PubAck,
    PullRequest,
    Reply,
    SequencePair,
    StreamInfo,
    api_subject,
    bad_request,
    exceeded_max_request_batch,
    exceeded_max_request_expires,
    exceeded_max_request_max_bytes,
    next_subject,
)
from plumbline.wire.nats.jetstream.acks import without_account
from tests.wire.strategies import json_objects, json_values, refusal

int64 = st.integers(-(2**63), 2**63 - 1)
uint64 = st.integers(0, 2**64 - 1)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=". "), min_size=1, max_size=8)


def test_subjects_of_the_api() -> None:
    assert api_subject("INFO") == "$JS.API.INFO"
    assert next_subject("ORDERS", "DISPATCH") == "$JS.API.CONSUMER.MSG.NEXT.ORDERS.DISPATCH"


pull_requests = st.builds(
    PullRequest,
    batch=int64.filter(bool),
    expires=int64,
    no_wait=st.booleans(),
    max_bytes=int64,
    idle_heartbeat=int64,
    group=st.text(max_size=5),
    min_pending=int64,
    min_ack_pending=int64,
    id=st.text(max_size=5),
    priority=int64,
)


@given(pull_requests)
def test_a_pull_request_is_read_as_written(request: PullRequest) -> None:
    assert PullRequest.parse(request.encode()) == request


@given(int64.filter(bool))
def test_a_bare_integer_is_the_batch(batch: int) -> None:
    assert PullRequest.parse(str(batch).encode()) == PullRequest(batch=batch)


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        (b"", 1), (b"  \r\n", 1), (b"{}", 1), (b" 5\n", 5), (b"+7", 7), (b"-1", -1), (b"0", 1), (b"-0", 1),
        (b"007", 7), (b"0" * 5000 + b"9", 9), (b"9223372036854775807", 2**63 - 1),
        (b"9223372036854775808", 1), (b"9" * 5000, 1), (b"1_0", 1), (b"1.0", 1), (b"0x10", 1),
        ("٣".encode(), 1), (b"five", 1), (b"[5]", 1),
        (b'"5"', 1), (b"null", 1), (b"\xff", 1), (b'{"batch":0}', 1), (b'{"batch":-1}', -1),
        (b'{"batch":null}', 1), (b'{"batch":2,"batch":3}', 3), (b'{"bogus":1,"batch":2}', 2),
        (b'{"x":"\xe9","batch":2}', 2), (b' {"batch": 2}\r\n', 2),
    ],
)  # fmt: skip
def test_the_batch_that_servers_read(body: bytes, batch: int) -> None:
    assert PullRequest.parse(body).batch == batch


@pytest.mark.parametrize(
    "body",
    [b"{", b"{b}", b"{} x", b'{"batch":"5"}', b'{"batch":1.0}', b'{"batch":1e2}', b'{"batch":true}',
     b'{"no_wait":1}', b'{"expires":"5s"}', b'{"batch":9223372036854775808}', b'{"group":5}', b'{"batch":[]}',
     b'{"a":' * 5000],
)  # fmt: skip
def test_an_object_that_is_no_pull_request_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        PullRequest.parse(body)
    assert caught.value.kind is ErrorKind.JSON


ack_subjects = st.one_of(
    st.builds(AckSubject, names, names, uint64, uint64, uint64, uint64, uint64),
    st.builds(
        AckSubject, names, names, uint64, uint64, uint64, uint64, uint64,
        domain=st.none() | names.filter(lambda name: name != "_"),
        account_hash=names,
        random=st.none() | names | st.lists(names, min_size=2, max_size=3).map(".".join),
    ),
)  # fmt: skip


@given(ack_subjects)
def test_an_ack_subject_is_read_as_written(subject: AckSubject) -> None:
    assert AckSubject.parse(str(subject)) == subject
    assert str(AckSubject.parse(str(subject))) == str(subject)


NINE = AckSubject("ORDERS", "DISPATCH", 2, 3, 4, 1795245217069268390, 5)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("$JS.ACK.ORDERS.DISPATCH.2.3.4.1795245217069268390.5", NINE),
        (
            "$JS.ACK._.ACCHASH.ORDERS.DISPATCH.2.3.4.1795245217069268390.5",
            msgspec.structs.replace(NINE, account_hash="ACCHASH"),
        ),
        (
            "$JS.ACK.hub.ACCHASH.ORDERS.DISPATCH.2.3.4.1795245217069268390.5.rnd",
            msgspec.structs.replace(NINE, domain="hub", account_hash="ACCHASH", random="rnd"),
        ),
        # ADR-15: "There may be additional tokens added in the future."
        (
            "$JS.ACK.hub.ACCHASH.ORDERS.DISPATCH.2.3.4.1795245217069268390.5.rnd.new",
            msgspec.structs.replace(NINE, domain="hub", account_hash="ACCHASH", random="rnd.new"),
        ),
    ],
)
def test_both_layouts_of_an_ack_subject(subject: str, expected: AckSubject) -> None:
    assert AckSubject.parse(subject) == expected
    assert str(expected) == subject


@pytest.mark.parametrize(
    "subject",
    [
        "", "$JS.ACK", "$JS.ACK.S.C.1.1.1.1", "$JS.ACK.S.C.1.1.1.1.0.x", "$js.ack.S.C.1.1.1.1.0",
        "$JS.NAK.S.C.1.1.1.1.0", "$JS.ACK..C.1.1.1.1.0", "$JS.ACK.S..1.1.1.1.0", "$JS.ACK.S.C.1.1.1..0",
        "$JS.ACK.S.C.-1.1.1.1.0", "$JS.ACK.S.C.+1.1.1.1.0", "$JS.ACK.S.C.x.1.1.1.0",
        "$JS.ACK.S.C.\u0661.1.1.1.0",
        "$JS.ACK.S.C.18446744073709551616.1.1.1.0", "$JS.ACK.S.C." + "1" * 5000 + ".1.1.1.0",
        "$JS.ACK._..S.C.1.1.1.1.0",
    ],
)  # fmt: skip
def test_invalid_ack_subject_is_rejected(subject: str) -> None:
    with pytest.raises(ProtocolError, match="ack subject") as caught:
        AckSubject.parse(subject)
    assert caught.value.kind is ErrorKind.ARGUMENTS


@pytest.mark.parametrize(
    ("payload", "ack"),
    [
        (b"", Ack(AckKind.ACK)),
        (b"+ACK", Ack(AckKind.ACK)),
        (b"+OK", Ack(AckKind.ACK)),
        (b"-NAK", Ack(AckKind.NAK)),
        (b"-NAK 500ms", Ack(AckKind.NAK, b"500ms")),
        (b"-NAK500ms", Ack(AckKind.NAK, b"500ms")),
        (b'-NAK \t{"delay":5} ', Ack(AckKind.NAK, b'{"delay":5}')),
        (b"+WPI", Ack(AckKind.PROGRESS)),
        (b"+NXT", Ack(AckKind.NEXT)),
        (b"+NXT 5", Ack(AckKind.NEXT, b"5")),
        (b'+NXT{"batch":5}', Ack(AckKind.NEXT, b'{"batch":5}')),
        (b"+TERM", Ack(AckKind.TERM)),
        (b"+TERM no such order", Ack(AckKind.TERM, b"no such order")),
        # Servers take none of these for an acknowledgement.
        (b"+ACK ", Ack(AckKind.UNKNOWN, b"+ACK ")),
        (b"+WPI ", Ack(AckKind.UNKNOWN, b"+WPI ")),
        (b"+ack", Ack(AckKind.UNKNOWN, b"+ack")),
        (b" +ACK", Ack(AckKind.UNKNOWN, b" +ACK")),
        (b"+ACKED", Ack(AckKind.UNKNOWN, b"+ACKED")),
        (b"\x00", Ack(AckKind.UNKNOWN, b"\x00")),
    ],
)
def test_the_payloads_of_an_ack(payload: bytes, ack: Ack) -> None:
    assert Ack.parse(payload) == ack


@given(
    st.builds(Ack, st.sampled_from([AckKind.ACK, AckKind.PROGRESS]))
    | st.builds(
        Ack,
        st.sampled_from([AckKind.NAK, AckKind.NEXT, AckKind.TERM]),
        st.binary(max_size=20).map(bytes.strip),
    )
)
def test_an_ack_is_read_as_written(ack: Ack) -> None:
    assert Ack.parse(ack.encode()) == ack


@pytest.mark.parametrize(
    ("payload", "nanoseconds"),
    [
        (b"-NAK", None),
        (b"-NAK 500ms", 500_000_000),
        (b'-NAK {"delay":500000000}', 500_000_000),
        (b'-NAK {"delay":-1}', -1),
        (b"-NAK {}", 0),
        (b'-NAK {"delay":null}', 0),
        (b'-NAK {"delay":"5s"}', None),
        (b'-NAK {"delay":1.5}', None),
        (b'-NAK {"delay":true}', None),
        (b'-NAK {"delay":9223372036854775808}', None),
        (b"-NAK {", None),
        (b"-NAK soon", None),
        (b"-NAK 5", None),
        (b"-NAK \xff", None),
        (b"+TERM 500ms", None),
    ],
)
def test_the_delay_of_a_nak(payload: bytes, nanoseconds: int | None) -> None:
    assert Ack.parse(payload).delay == nanoseconds


@pytest.mark.parametrize(
    ("subject", "short"),
    [
        ("$JS.ACK.hub.HASH.S.C.1.2.3.4.5.RND", "$JS.ACK.S.C.1.2.3.4.5"),
        ("$JS.ACK._.HASH.S.C.1.2.3.4.5", "$JS.ACK.S.C.1.2.3.4.5"),
        ("$JS.ACK.S.C.1.2.3.4.5", "$JS.ACK.S.C.1.2.3.4.5"),
        ("$JS.ACK.S.C.1.2.3.4.5.6", "$JS.ACK.S.C.1.2.3.4.5.6"),  # ten tokens are neither layout
        ("orders.a.b.c.d.e.f.g.h.i.j", "orders.a.b.c.d.e.f.g.h.i.j"),
    ],
)
def test_an_ack_subject_has_one_meaning_in_both_layouts(subject: str, short: str) -> None:
    assert without_account(subject) == short


def test_next_argument_is_a_pull_request() -> None:
    assert Ack.parse(b"+NXT").next_request == PullRequest()
    assert Ack.parse(b"+NXT 10").next_request == PullRequest(batch=10)
    assert Ack.parse(b'+NXT {"no_wait":true}').next_request == PullRequest(no_wait=True)
    assert Ack.parse(b"+ACK").next_request is None
    with pytest.raises(ProtocolError):
        _ = Ack.parse(b"+NXT {").next_request


def test_the_reason_of_a_term() -> None:
    assert Ack.parse(b"+TERM  no such order \n").reason == "no such order"
    assert Ack.parse(b"+TERM").reason is None
    assert Ack.parse(b"-NAK because").reason is None


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (bad_request("heartbeat value too large"), "400 Bad Request - heartbeat value too large"),
        (exceeded_max_request_batch(5), "409 Exceeded MaxRequestBatch of 5"),
        (exceeded_max_request_expires(1_000_000_000), "409 Exceeded MaxRequestExpires of 1s"),
        (exceeded_max_request_expires(90_000_000_000), "409 Exceeded MaxRequestExpires of 1m30s"),
        (exceeded_max_request_max_bytes(100), "409 Exceeded MaxRequestMaxBytes of 100"),
    ],
)
def test_statuses_that_name_a_limit(status: Status, text: str) -> None:
    assert str(status) == text


def test_a_pub_ack_is_read_whatever_its_spacing_and_its_other_keys() -> None:
    assert PubAck.parse(b'{"stream":"S", "seq":1,"duplicate": true,"new":{}}') == PubAck(
        "S", 1, duplicate=True
    )


def test_consumer_info_has_its_pairs() -> None:
    info = ConsumerInfo.parse(
        b'{"type":"io.nats.jetstream.api.v1.consumer_info_response","stream_name":"S","name":"C",'
        b'"created":"2026-11-21T09:00:00.123456789Z","config":{"durable_name":"C","ack_wait":30000000000},'
        b'"delivered":{"consumer_seq":4,"stream_seq":2,"last_active":"2026-11-21T09:00:00.123456789Z"},'
        b'"ack_floor":{"consumer_seq":1,"stream_seq":1},"num_ack_pending":1,"num_redelivered":1,'
        b'"num_waiting":0,"num_pending":18446744073709551615,"ts":"2026-11-21T09:00:00Z"}'
    )
    assert (str(info.delivered), str(info.ack_floor)) == ("4/2", "1/1")
    assert info.delivered.last_active == "2026-11-21T09:00:00.123456789Z"
    assert info.ack_floor == SequencePair(1, 1)
    assert (info.num_ack_pending, info.num_pending) == (1, 2**64 - 1)


def test_stream_info_has_its_state() -> None:
    state = {
        "messages": 1, "bytes": 53, "first_seq": 1, "first_ts": "2026-11-21T09:00:00Z", "last_seq": 1,
        "last_ts": "2026-11-21T09:00:00Z", "num_subjects": 1, "consumer_count": 1,
    }  # fmt: skip
    info = StreamInfo.of({"config": {"name": "S"}, "created": "", "state": state, "ts": ""})
    assert (info.state.messages, info.state.bytes, info.state.last_seq) == (1, 53, 1)


def test_missing_reply_key_is_named() -> None:
    with pytest.raises(ProtocolError, match=r"PubAck: .*`seq`") as caught:
        PubAck.parse(b'{"stream":"S"}')
    assert caught.value.kind is ErrorKind.JSON


def test_an_api_error_is_the_error_object_or_none() -> None:
    error = ApiError.of({"error": {"code": 404, "err_code": 10014, "description": "consumer not found"}})
    assert error == ApiError(404, 10014, "consumer not found")
    assert str(error) == "404 consumer not found (10014)"
    assert ApiError.of({"stream": "S"}) is None
    assert ApiError.of({"error": None}) is None
    with pytest.raises(ProtocolError, match="error object"):
        ApiError.of({"error": "no"})


KEYS = ("error", "stream", "seq", "batch", "expires", "delay", "no_wait", "delivered", "state")
jsonish = (
    st.binary()
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, json_values)).map(
        lambda value: json.dumps(value).encode()
    )
)


@given(jsonish)
@pytest.mark.parametrize("prefix", [b"", b" ", b"+NXT", b"-NAK ", b"+TERM", b"{"])
def test_no_body_makes_a_parser_raise_anything_but_a_protocol_error(prefix: bytes, body: bytes) -> None:
    for parse in (PullRequest.parse, PubAck.parse, ConsumerInfo.parse, StreamInfo.parse):
        assert refusal(partial(parse, prefix + body)) in (None, ErrorKind.JSON)
    ack = Ack.parse(prefix + body)
    assert refusal(lambda: ack.next_request) in (None, ErrorKind.JSON)
    assert refusal(lambda: (ack.delay, ack.reason)) is None


@given(
    st.text() | st.lists(st.sampled_from(["$JS", "ACK", "1", "", "S", "-1", "²"]), max_size=13).map(".".join)
)
def test_no_subject_makes_the_parser_raise_anything_but_a_protocol_error(subject: str) -> None:
    assert refusal(lambda: AckSubject.parse(subject)) in (None, ErrorKind.ARGUMENTS)


@given(json_objects | json_values.map(lambda value: {"error": value}))
@pytest.mark.parametrize("kind", [ApiError, PubAck, ConsumerInfo, StreamInfo])
def test_no_reply_makes_it_raise_anything_but_a_protocol_error(
    kind: type[ApiError] | type[Reply], reply: dict[str, Any]
) -> None:
    assert refusal(lambda: kind.of(reply)) in (None, ErrorKind.JSON)
