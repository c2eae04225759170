"""From a line with ``>`` to bytes on the wire. ORDERS is PL_ORDERS there."""

# ruff: noqa: E501 (a table has one case a line)

from __future__ import annotations

import pytest

from plumbline.conformance.trace.language import SendBytes
from plumbline.conformance.trace.template import as_bytes, fill
from tests.conformance.trace.writing import only_step, scope, sent, trace

STREAM = "given stream ORDERS subjects=ORDERS.>\ngiven consumer ORDERS DISPATCH\n"


@pytest.mark.parametrize(
    ("line", "data"),
    [
        ("> PING", b"PING\r\n"),
        ("> PONG", b"PONG\r\n"),
        ("> SUB foo.* 1", b"SUB PL_foo.* 1\r\n"),
        ("> SUB  foo.>   workers\t7", b"SUB PL_foo.> PL_workers 7\r\n"),
        ("> SUB $inbox.* 2", b"SUB _INBOX.PL.inbox.* 2\r\n"),
        ("> SUB _INBOX.miOJj.* 2", b"SUB _INBOX.PL.miOJj.* 2\r\n"),
        ("> UNSUB 1", b"UNSUB 1\r\n"),
        ("> UNSUB 1 6", b"UNSUB 1 6\r\n"),
        ("> PUB foo", b"PUB PL_foo 0\r\n\r\n"),
        ("> PUB foo.bar | hello", b"PUB PL_foo.bar 5\r\nhello\r\n"),
        ("> PUB foo $reply 5 | hello", b"PUB PL_foo _INBOX.PL.reply 5\r\nhello\r\n"),
        ("> PUB foo | a b  c", b"PUB PL_foo 6\r\na b  c\r\n"),
        (r"> PUB foo | \x20a\r\n\x00\xff\{x\}\x20", b"PUB PL_foo 10\r\n a\r\n\x00\xff{x} \r\n"),
        ("> PUB foo | \u00e9\\xc3\\xa9", b"PUB PL_foo 4\r\n\xc3\xa9\xc3\xa9\r\n"),
        ('> PUB foo | -NAK {"delay": 5}', b'PUB PL_foo 17\r\n-NAK {"delay": 5}\r\n'),
        ('> PUB foo {"a": 1}', b'PUB PL_foo 8\r\n{"a": 1}\r\n'),
        ('> PUB foo | {"a":1}', b'PUB PL_foo 7\r\n{"a":1}\r\n'),
        ("> PUB foo || a|b", b"PUB PL_foo 3\r\na|b\r\n"),
        ("> PUB foo | a || b", b"PUB PL_foo 6\r\na || b\r\n"),
        ("> HPUB foo | Bar: Baz || hello", b"HPUB PL_foo 22 27\r\nNATS/1.0\r\nBar: Baz\r\n\r\nhello\r\n"),
        ("> HPUB foo $reply | A:1 | a: 2", b"HPUB PL_foo _INBOX.PL.reply 23 23\r\nNATS/1.0\r\nA:1\r\na: 2\r\n\r\n\r\n"),
        ("> HPUB foo | NATS/1.0 503 | A: 1", b"HPUB PL_foo 22 22\r\nNATS/1.0 503\r\nA: 1\r\n\r\n\r\n"),
        ("> HPUB foo || hi", b"HPUB PL_foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
        ('> CONNECT {"verbose": true}', b'CONNECT {"verbose": true}\r\n'),
    ],
)  # fmt: skip
def test_send_line_gives_exact_bytes(line: str, data: bytes) -> None:
    assert sent(line) == data


@pytest.mark.parametrize(
    ("line", "data"),
    [
        ("> PUB foo 5\nhello", b"PUB PL_foo 5\r\nhello\r\n"),
        ("> PUB foo 7\nab\ncdef", b"PUB PL_foo 7\r\nab\ncdef\r\n"),
        ('> PUB foo 10\n{"batch":5}', b'PUB PL_foo 10\r\n{"batch":5}\r\n'),
        ('> PUB foo\n{\n "a": 1\n}', b'PUB PL_foo 11\r\n{\n "a": 1\n}\r\n'),
        ("> HPUB foo 22 22\nNATS/1.0\nBar: Baz", b"HPUB PL_foo 22 22\r\nNATS/1.0\r\nBar: Baz\r\n\r\n\r\n"),
        ("> HPUB foo 22 27\nNATS/1.0\nBar: Baz\n\nhello", b"HPUB PL_foo 22 27\r\nNATS/1.0\r\nBar: Baz\r\n\r\nhello\r\n"),
    ],
)  # fmt: skip
def test_payload_may_be_on_next_line(line: str, data: bytes) -> None:
    assert sent(line) == data


@pytest.mark.parametrize(
    ("line", "head"),
    [
        ("> PUB foo 3 | hello", b"PUB PL_foo 3\r\nhello\r\n"),
        ("> PUB foo -1 | hello", b"PUB PL_foo -1\r\nhello\r\n"),
        ("> PUB foo 5 |", b"PUB PL_foo 5\r\n\r\n"),
        ("> PUB foo 05 | hello", b"PUB PL_foo 05\r\nhello\r\n"),
        (
            "> HPUB foo 30 27 | Bar: Baz || hello",
            b"HPUB PL_foo 30 27\r\nNATS/1.0\r\nBar: Baz\r\n\r\nhello\r\n",
        ),
    ],
)
def test_a_wrong_size_is_sent_as_written(line: str, head: bytes) -> None:
    assert sent(line) == head


def test_correct_size_is_adjusted_for_rewritten_names() -> None:
    line = '> PUB $JS.API.CONSUMER.CREATE.ORDERS $inbox 24\n{"stream_name":"ORDERS"}'
    payload = b'{"stream_name":"PL_ORDERS"}'
    assert (
        sent(line, STREAM)
        == b"PUB $JS.API.CONSUMER.CREATE.PL_ORDERS _INBOX.PL.inbox 27\r\n" + payload + b"\r\n"
    )


@pytest.mark.parametrize(
    ("written", "on_the_wire"),
    [
        ("$JS.API.CONSUMER.MSG.NEXT.ORDERS.DISPATCH", "$JS.API.CONSUMER.MSG.NEXT.PL_ORDERS.PL_DISPATCH"),
        ("$JS.ACK.ORDERS.DISPATCH.1.2.3.4.0", "$JS.ACK.PL_ORDERS.PL_DISPATCH.1.2.3.4.0"),
        ("$JS.API.CONSUMER.INFO.ORDERS.NOPE", "$JS.API.CONSUMER.INFO.PL_ORDERS.NOPE"),
        ("ORDERS.ORDERS.DISPATCH", "PL_ORDERS.ORDERS.DISPATCH"),
        ("other.ORDERS", "PL_other.ORDERS"),
        ("$SYS.x", "$SYS.x"),
        ("$reply.1", "_INBOX.PL.reply.1"),
        (".foo", ".foo"),
        ("foo.", "PL_foo."),
        ("a..b", "PL_a..b"),
    ],
)
def test_names_are_rewritten_where_they_are_names(written: str, on_the_wire: str) -> None:
    assert sent(f"> SUB {written} 1", STREAM) == f"SUB {on_the_wire} 1\r\n".encode()


@pytest.mark.parametrize(
    ("written", "on_the_wire"),
    [
        ('{"durable_name":"DISPATCH"}', '{"durable_name":"PL_DISPATCH"}'),
        ('{"subjects": ["ORDERS.new",  "x"]}', '{"subjects": ["PL_ORDERS.new",  "x"]}'),
        ('{"deliver_subject":"$inbox"}', '{"deliver_subject":"_INBOX.PL.inbox"}'),
        ('{"s":"$JS.ACK.ORDERS.DISPATCH"}', '{"s":"$JS.ACK.PL_ORDERS.PL_DISPATCH"}'),
        ('{"description":"ORDERS"}', '{"description":"ORDERS"}'),
        ('{"s":"ORDERS are many"}', '{"s":"ORDERS are many"}'),
        ('{"ORDERS":"\\u00e9\\"\u00e9"}', '{"ORDERS":"\\u00e9\\"\u00e9"}'),
        ("[]", "[]"),
        ("{}", "{}"),
    ],
)
def test_names_are_rewritten_in_json_strings_and_all_else_keeps_its_bytes(
    written: str, on_the_wire: str
) -> None:
    data = on_the_wire.encode()
    assert sent(f"> PUB foo {written}", STREAM) == b"PUB PL_foo %d\r\n%b\r\n" % (len(data), data)


def test_a_policy_is_no_name_even_if_a_subject_is_called_like_it() -> None:
    assert b'{"ack_policy":"all","filter_subject":"PL_all"}' in sent(
        '> PUB foo {"ack_policy":"all","filter_subject":"all"}', "given stream S subjects=all\n"
    )


def test_names_are_rewritten_in_header_values() -> None:
    assert b"Nats-Expected-Stream: PL_ORDERS\r\n" in sent("> HPUB foo | Nats-Expected-Stream: ORDERS", STREAM)


def test_literal_names_stay_as_they_are() -> None:
    assert sent("> SUB foo.> 1", "names literal\n") == b"SUB foo.> 1\r\n"


def test_declared_names_are_rewritten() -> None:
    line = "> PUB $JS.API.STREAM.INFO.NOPE $inbox"
    assert sent(line, "names NOPE\n").startswith(b"PUB $JS.API.STREAM.INFO.PL_NOPE ")


def test_captures_are_filled_in() -> None:
    read = trace(
        "< MSG foo {sid} {ack} | {seq}\n"
        '> PUB {ack} | {seq}\n> PUB $JS.ACK.{seq+1}.x | a{seq-2}\n> UNSUB {sid} {seq+sid}\n> PUB foo {"a":{seq},"b":"{ack}"}\n'
    )
    played = scope(read, sid="7", ack="$JS.ACK.x", seq="40")
    raw = [step.outgoing.operation(played).raw for step in read.steps[1:]]  # type: ignore[union-attr]
    assert raw == [
        b"PUB $JS.ACK.x 2\r\n40\r\n",
        b"PUB $JS.ACK.41.x 3\r\na38\r\n",
        b"UNSUB 7 47\r\n",
        b'PUB PL_foo 24\r\n{"a":40,"b":"$JS.ACK.x"}\r\n',
    ]


@pytest.mark.parametrize(
    ("written", "data"),
    [
        (r'"PUB foo abc\r\n"', b"PUB foo abc\r\n"),
        (r'"\x00\xff{"a"}\t\""', b'\x00\xff{"a"}\t"'),
        (r'"SUB {subject foo.bar} 1\r\n"', b"SUB PL_foo.bar 1\r\n"),
        (r'"SUB {subject $inbox} 1\r\n"', b"SUB _INBOX.PL.inbox 1\r\n"),
    ],
)
def test_raw_sends_exactly_these_bytes(written: str, data: bytes) -> None:
    read = trace(f"> raw {written}\n< closed\n")
    step = read.steps[0]
    assert isinstance(step, SendBytes)
    assert as_bytes(fill(step.template, scope(read))) == data


def test_connection_name_precedes_mark() -> None:
    step, _ = only_step("worker> PING\n  worker< PONG\n")
    assert step.connection == "worker"  # type: ignore[union-attr]
