"""From a line with ``<`` and an operation to all in which they differ. ORDERS is PL_ORDERS on the wire."""

# ruff: noqa: E501 (a table has one case a line)

from __future__ import annotations

import pytest

from plumbline.conformance.trace.language import Expect, ExpectClosed, ExpectSilence, Send, TimeWindow
from tests.conformance.trace.writing import captures, compare, differences, only_step, operation, scope, trace

STREAM = "given stream ORDERS subjects=ORDERS.>\ngiven consumer ORDERS DISPATCH\n"
NO_MESSAGES = b"HMSG _INBOX.PL.inbox 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n"
TIMEOUT = (
    b"HMSG _INBOX.PL.inbox 1  81 81\r\nNATS/1.0 408 Request Timeout\r\n"
    b"Nats-Pending-Messages: 5\r\nNats-Pending-Bytes: 0\r\n\r\n\r\n"
)
ACK = b"$JS.ACK.PL_ORDERS.PL_DISPATCH.2.7.9.1795245184902535564.3"
DELIVERY = b"MSG PL_ORDERS.new 1 " + ACK + b" 7\r\norder 4\r\n"
# ADR-15, "JS Ack", Token Version 2: domain and account hash before the stream, perhaps more after the count.
WITH_ACCOUNT = DELIVERY.replace(b"$JS.ACK.", b"$JS.ACK._.szMpdrwD.")
WITH_TAIL = DELIVERY.replace(b"$JS.ACK.", b"$JS.ACK.hub.szMpdrwD.").replace(b".3 7", b".3.random.more 7")


@pytest.mark.parametrize(
    ("line", "data"),
    [
        ("< PONG", b"PONG\r\n"),
        ("< +OK", b"+OK\r\n"),
        ("< -ERR", b"-ERR 'Stale Connection'\r\n"),
        ("< -ERR 'Stale Connection'", b"-ERR 'Stale Connection'\r\n"),
        ("< -ERR stale connection", b"-ERR 'Stale Connection'\r\n"),
        ("< -ERR '{:text} exceeded'", b"-ERR 'maximum connections exceeded'\r\n"),
        ("< INFO", b'INFO {"max_payload":1048576}\r\n'),
        ('< INFO {"max_payload":{:int}}', b'INFO {"max_payload":1048576,"headers":true}\r\n'),
        ("< MSG foo 1", b"MSG PL_foo 1 2\r\nhi\r\n"),
        ("< MSG  foo  1   2  |  hi", b"MSG PL_foo 1 2\r\nhi\r\n"),
        ("< MSG foo 1 2\nhi", b"MSG PL_foo 1 2\r\nhi\r\n"),
        ("< MSG foo 1 |", b"MSG PL_foo 1 0\r\n\r\n"),
        ("< MSG foo 1 0", b"MSG PL_foo 1 0\r\n\r\n"),
        ("< MSG $reply * |", b"MSG _INBOX.PL.reply 2  0\r\n\r\n"),
        ("< MSG *.* 1", b"MSG a.b 1 0\r\n\r\n"),
        (r"< MSG foo.\* 1", b"MSG PL_foo.* 1 0\r\n\r\n"),
        ("< MSG foo {:1|2}", b"MSG PL_foo 2 0\r\n\r\n"),
        (r"< MSG foo 1 | \x00\xff\r\n", b"MSG PL_foo 1 4\r\n\x00\xff\r\n\r\n"),
        ("< MSG foo 1 | order {:int} of {:text}", b"MSG PL_foo 1 15\r\norder 4 of five\r\n"),
        ("< MSG ORDERS.new 1 $JS.ACK.ORDERS.DISPATCH.*.7.{:int}.{:ns}.{left} 7 | order 4", DELIVERY),
        ("< MSG ORDERS.new 1 {ack}", DELIVERY),
        ("< MSG ORDERS.new 1 $JS.ACK.ORDERS.DISPATCH.*.7.{:int}.{:ns}.3 7", WITH_ACCOUNT),
        ("< MSG ORDERS.new 1 $JS.ACK.ORDERS.DISPATCH.2.7.9.{:ns}.3 7", WITH_TAIL),
        ("< MSG ORDERS.new 1 $JS.ACK._.*.ORDERS.DISPATCH.2.7.9.{:ns}.3 7", WITH_ACCOUNT),
        ("< HMSG $inbox 1 | NATS/1.0 404 No Messages", NO_MESSAGES),
        ("< HMSG $inbox 1  28 28\nNATS/1.0 404 No Messages", NO_MESSAGES),
        ("< HMSG $inbox 1 28 28", NO_MESSAGES),
        ("< HMSG $inbox 1 | NATS/1.0 {:404 No Messages|408 Request Timeout}", NO_MESSAGES),
        ("< HMSG $inbox 1 | NATS/1.0 408 {:text} | Nats-Pending-Messages: 5", TIMEOUT),
        ("< HMSG $inbox 1 | NATS/1.0 408 Request Timeout | Nats-Pending-Bytes: {:int} | Nats-Pending-Messages: {n} ||", TIMEOUT),
        ("< HMSG foo 1 | Bar: Baz || hi", b"HMSG PL_foo 1 22 24\r\nNATS/1.0\r\nBar: Baz\r\n\r\nhi\r\n"),
        ("< HMSG foo 1 | NATS/1.0 | A: {:absent} | Bar: Baz || hi", b"HMSG PL_foo 1 22 24\r\nNATS/1.0\r\nBar: Baz\r\n\r\nhi\r\n"),
        ("< HMSG foo 1 | A: 2 | A: 1", b"HMSG PL_foo 1 24 24\r\nNATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n\r\n"),
        ("< HMSG foo 1 12 12 | NATS/1.0 ||", b"HMSG PL_foo 1 12 12\r\nNATS/1.0\r\n\r\n\r\n"),
        ("< HMSG $inbox 1 | NATS/1.0 503 | Nats-Subject: ORDERS.x", b"HMSG _INBOX.PL.inbox 1 43 43\r\nNATS/1.0 503\r\nNats-Subject: PL_ORDERS.x\r\n\r\n\r\n"),
    ],
)  # fmt: skip
def test_an_operation_as_written_has_no_differences(line: str, data: bytes) -> None:
    assert differences(line, data, STREAM) == []


@pytest.mark.parametrize(
    ("line", "data", "found"),
    [
        ("< PONG", b"PING\r\n", ["operation: expected PONG, got PING"]),
        ("< MSG $inbox 1", NO_MESSAGES, ["operation: expected MSG, got HMSG"]),
        ("< -ERR 'Invalid Subject'", b"-ERR 'Stale Connection'\r\n", ["message: expected Invalid Subject, got Stale Connection"]),
        ('< INFO {"headers":true}', b'INFO {"headers":false}\r\n', ["INFO.headers: expected true, got false"]),
        ("< HMSG $inbox 1 | NATS/1.0 404 No Messages", TIMEOUT, ["status: expected 404 No Messages, got 408 Request Timeout"]),
        ("< HMSG $inbox 1 | Bar: Baz", NO_MESSAGES, ["status: expected none, got 404 No Messages", "header Bar: expected Baz, got no such header"]),
        ("< HMSG $inbox 1 | NATS/1.0 408 {:text} | Nats-Pending-Messages: 4", TIMEOUT, ["header Nats-Pending-Messages: expected 4, got 5"]),
        ("< HMSG $inbox 1 | NATS/1.0 408 {:text} | nats-pending-messages: 5", TIMEOUT, ["header nats-pending-messages: expected 5, got no such header"]),
        ("< HMSG $inbox 1 | NATS/1.0 408 | Nats-Pending-Bytes: {:absent}", TIMEOUT, ["header Nats-Pending-Bytes: expected no such header, got 0"]),
        ("< HMSG $inbox 1 28 28", TIMEOUT, ["header size: expected 28, got 81", "total size: expected 28, got 81"]),
        ("< MSG ORDERS.new 2 | order 5", DELIVERY, ["sid: expected 2, got 1", f"reply: expected none, got {ACK.decode()}", "payload: expected order 5, got order 4"]),
        ("< MSG ORDERS.new 1 $JS.ACK.ORDERS.DISPATCH.1.7.9.*.3", DELIVERY, [f"reply: expected $JS.ACK.PL_ORDERS.PL_DISPATCH.1.7.9.*.3, got {ACK.decode()} (token 5: 2, not 1)"]),
        ("< MSG foo 1 {ack}", b"MSG PL_foo 1 0\r\n\r\n", ["reply: expected {ack}, got none"]),
        ("< MSG foo.bar 1", b"MSG PL_foo.baz 1 0\r\n\r\n", ["subject: expected PL_foo.bar, got PL_foo.baz"]),
        ("< MSG foo.* 1", b"MSG PL_foo.a.b 1 0\r\n\r\n", ["subject: expected PL_foo.*, got PL_foo.a.b"]),
        ("< MSG foo 1 |", b"MSG PL_foo 1 2\r\nhi\r\n", ["payload: expected nothing, got hi"]),
        ("< MSG foo 1 | hi", b"MSG PL_foo 1 0\r\n\r\n", ["payload: expected hi, got nothing"]),
        ("< MSG foo 1 3", b"MSG PL_foo 1 2\r\nhi\r\n", ["size: expected 3, got 2"]),
        ("< MSG foo 1 | {:int}", b"MSG PL_foo 1 2\r\nhi\r\n", ["payload: expected {:int}, got hi"]),
        ("< HMSG foo 1 | A: 1", b"HMSG PL_foo 1 4 6\r\nabcdhi\r\n", ["headers: expected a header block, got malformed headers: a header block starts with NATS/1.0 and ends with an empty line (byte 0: b'abcd')"]),
    ],
)  # fmt: skip
def test_every_difference_is_named(line: str, data: bytes, found: list[str]) -> None:
    assert differences(line, data, STREAM) == found


def test_status_has_no_payload_unless_the_trace_has_one() -> None:
    data = b"HMSG _INBOX.PL.inbox 1 28 30\r\nNATS/1.0 404 No Messages\r\n\r\nhi\r\n"
    assert differences("< HMSG $inbox 1 | NATS/1.0 404 No Messages", data) == [
        "payload: expected nothing, got hi"
    ]
    assert differences("< HMSG $inbox 1 | NATS/1.0 404 No Messages || hi", data) == []


JSON = b'{"stream":"PL_ORDERS","seq":12,"ok":true,"none":null,"list":[1,2,3],"in":{"x":1.5,"t":"2026-11-21T07:13:10.9Z"}}'


def message(payload: bytes) -> bytes:
    return b"MSG PL_foo 1 %d\r\n%b\r\n" % (len(payload), payload)


@pytest.mark.parametrize(
    "pattern",
    [
        "{}",
        '{"stream":"ORDERS"}',
        '{"seq":12.0,"ok":true,"none":null}',
        '{"list":[1,2,3],"in":{"x":1.5}}',
        '{"list":[1,...]}',
        '{"list":[...]}',
        '{"seq":{:int},"ok":{:true|false},"none":{:any},"nope":{:absent},"not":{:absent|true},"ok":{:absent|true},"in":{"t":{:time},"x":{:any}}}',
        '{"in":{"t":"2026-{:text}"},"stream":"{s}"}',
        '{"in":{"t":{:text}}}',
        '| {"seq":12}',
    ],
)
def test_json_is_matched_by_the_fields_given(pattern: str) -> None:
    assert differences(f"< MSG foo 1 {pattern}", message(JSON), STREAM) == []


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ('{"seq":13}', "payload.seq: expected 13, got 12"),
        ('{"seq":"12"}', 'payload.seq: expected "12", got 12'),
        ('{"ok":1}', "payload.ok: expected 1, got true"),
        ('{"seq":true}', "payload.seq: expected true, got 12"),
        ('{"none":{"x":1}}', "payload.none: expected an object, got null"),
        ('{"nope":1}', "payload.nope: expected 1, got no such field"),
        ('{"nope":{"x":1}}', "payload.nope: expected it, got no such field"),
        ('{"nope":{:any}}', "payload.nope: expected {:any}, got no such field"),
        ('{"ok":{:absent}}', "payload.ok: expected no such field, got true"),
        ('{"ok":{:absent|false}}', "payload.ok: expected no such field or false, got true"),
        ('{"list":[1,2]}', "payload.list: expected 2 elements, got 3: [1, 2, 3]"),
        ('{"list":[1,2,3,4,...]}', "payload.list: expected 4 elements or more, got 3: [1, 2, 3]"),
        ('{"list":[1,5,...]}', "payload.list[1]: expected 5, got 2"),
        ('{"seq":[]}', "payload.seq: expected an array, got 12"),
        ('{"stream":"DISPATCH"}', 'payload.stream: expected "PL_DISPATCH", got "PL_ORDERS"'),
        ('{"stream":{:int}}', 'payload.stream: expected {:int}, got "PL_ORDERS"'),
        ('{"seq":{:ns}}', "payload.seq: expected {:ns}, got 12"),
        ('{"seq":{:text}}', "payload.seq: expected {:text}, got 12"),
        ('{"ok":{:int}}', "payload.ok: expected {:int}, got true"),
        ('{"seq":{:1|2}}', "payload.seq: expected {:1|2}, got 12"),
        ("[]", 'payload: expected an array, got {"stream": "PL_ORDERS", "seq": 12, "ok": true, "none": null, "list": [1, 2, 3], "in": {"x": 1.5, "t": "2026-11-21T07:13:10.9Z"}}'),
    ],
)  # fmt: skip
def test_json_differences_have_their_path(pattern: str, found: str) -> None:
    assert differences(f"< MSG foo 1 {pattern}", message(JSON), STREAM) == [found]


@pytest.mark.parametrize("payload", [b"", b"hello", b"{", b"[" * 5000, b"\xff"])
def test_a_payload_that_is_no_json_is_a_difference(payload: bytes) -> None:
    (found,) = differences('< MSG foo 1 {"a":1}', message(payload))
    assert found.startswith('payload: expected JSON {"a":1}, got ')


def test_captures_are_taken_and_compared() -> None:
    line = "< MSG ORDERS.new {sid} $JS.ACK.ORDERS.DISPATCH.2.{seq:int}.{cseq}.{ts:ns}.{left} | order {n:int}"
    assert captures(line, DELIVERY, STREAM) == {
        "sid": "1", "seq": "7", "cseq": "9", "ts": "1795245184902535564", "left": "3", "n": "4",
    }  # fmt: skip
    assert captures('< MSG foo 1 {"seq":{n:int},"ok":{ok:any},"stream":"{s}"}', message(JSON)) == {
        "n": "12", "ok": "true", "s": "PL_ORDERS",
    }  # fmt: skip


def test_a_capture_taken_before_must_be_equal() -> None:
    line = "< MSG foo 1 | {a} and {a}"
    assert differences(line, message(b"x and x")) == []
    assert differences(line, message(b"x and y")) == ["payload: expected {a} and {a}, got x and y"]


@pytest.mark.parametrize(("pattern", "fits"), [("{n}", "7"), ("{n+1}", "8"), ("{n-1}", "6"), ("{n+n}", "14")])
def test_known_captures_are_calculated_with(pattern: str, fits: str) -> None:
    header = "< MSG foo {n}\n"
    for payload in ("6", "7", "8", "14"):
        found, _ = compare(f"< MSG foo 1 | {pattern}", message(payload.encode()), header, n="7")
        assert (not found) == (payload == fits)


def test_a_known_capture_is_compared_in_json_too() -> None:
    header = "< MSG foo {n}\n"
    line = '< MSG foo 1 {"seq":{n+1}}'
    assert compare(line, message(b'{"seq":8}'), header, n="7")[0] == []
    assert [str(found) for found in compare(line, message(b'{"seq":7}'), header, n="7")[0]] == [
        "payload.seq: expected 8, got 7"
    ]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("< MSG ORDERS.new 1 {ack}   | order 4   within 1s", "MSG PL_ORDERS.new 1 {ack} | order 4"),
        ("< HMSG $inbox 1 | NATS/1.0 404 No Messages", "HMSG _INBOX.PL.inbox 1 | NATS/1.0 404 No Messages"),
        ("< HMSG foo 1 | A: {x:int} || hi", "HMSG PL_foo 1 | A: {x:int} || hi"),
        ("< HMSG foo 1 28 28", "HMSG PL_foo 1 28 28"),
        ('< MSG foo 1 {"s":"ORDERS"}', 'MSG PL_foo 1 {"s":"PL_ORDERS"}'),
        ("< MSG foo 1 |", "MSG PL_foo 1 |"),
        (r"< MSG foo 1 | a\r\nb", r"MSG PL_foo 1 | a\r\nb"),
        ("< -ERR 'x'", "-ERR 'x'"),
    ],
)
def test_a_pattern_is_shown_as_resolved(line: str, shown: str) -> None:
    step, read = only_step(f"{line}\n", STREAM)
    assert isinstance(step, Expect)
    assert step.pattern.show(scope(read)) == shown


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("", TimeWindow(0, 1.0)),
        ("within 200ms", TimeWindow(0, 0.2, since_send=True)),
        ("after 1.5s", TimeWindow(1.5, 2.5, since_send=True)),
        ("between 400ms and 2s", TimeWindow(0.4, 2.0, since_send=True)),
    ],
)
def test_time_window_ends_expectation_line(written: str, window: TimeWindow) -> None:
    for line in ("PONG", "MSG foo 1 | order 4", '| {"a":1}'.join(["MSG foo 1 ", ""])):
        step, _ = only_step(f"< {line}    {written}\n")
        assert isinstance(step, Expect)
        assert step.window == window


def test_nothing_and_closed_are_expectations() -> None:
    assert only_step("< nothing for 200ms\n")[0] == ExpectSilence(4, "client", 0.2)
    assert only_step("raw< closed within 2s\n")[0] == ExpectClosed(
        4, "raw", TimeWindow(0, 2.0, since_send=True)
    )


def test_an_ack_goes_to_the_subject_that_was_received() -> None:
    ack = "$JS.ACK.ORDERS.DISPATCH.2.7.9.1795245184902535564.3"
    read = trace(f"{STREAM}< MSG ORDERS.new 1 {ack}\n> PUB {ack} | +ACK\n< PONG\n")
    expect, send = read.steps[-3:-1]
    assert isinstance(expect, Expect)
    assert isinstance(send, Send)
    for delivery, subject in ((DELIVERY, ACK), (WITH_TAIL, WITH_TAIL.split()[3])):
        played = scope(read)
        # In a group of lines a pattern is tried with a fork of the captures.
        assert expect.pattern.differences(operation(delivery), played.fork()) == []
        assert send.outgoing.operation(played).raw == b"PUB " + subject + b" 4\r\n+ACK\r\n"
