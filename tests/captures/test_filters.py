"""The filter language: what its words mean, and its errors."""

from __future__ import annotations

import pytest

from plumbline.captures.filters import FilterError, parse

MESSAGE = {
    "op": "MSG", "subject": "ORDERS.new.eu", "sid": "7", "size": 30, "connection": 3, "sender": "server",
    "header.Nats-Msg-Id": "a", "payload": 'say "hi" 42', "status": 404, "redelivered": True,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "",
        "op = MSG",
        "op == msg",
        "op in (PUB, msg)",
        'subject ~ "ORDERS.>"',
        'subject ~ "ORDERS.*.eu"',
        'subject ~ "#"',
        'subject ~ "ORDERS.new.eu.#"',
        'subject ~ "ORDERS.n*.eu"',
        "payload ~ /\\d{2}$/",
        'payload ~ "say*"',
        'payload = "say \\"hi\\" 42"',
        "size > 29 and size <= 30",
        "size = 30 and sid = 7",
        "status = 404",
        "header.Nats-Msg-Id = a",
        "header.Nats-Msg-Id",
        "not reply",
        "not (op = PUB or connection != 3)",
        "op = PUB or op = MSG and sender = server",
        "redelivered = true",
        'subject !~ "OTHER.>"',
    ],
)
def test_matches(text: str) -> None:
    assert parse(text)(MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "op = PUB",
        'subject ~ "ORDERS.*"',
        'subject ~ "ORDERS"',
        'subject ~ "ORDERS.new.eu.>"',
        'subject ~ "ORDERSxnew.eu"',
        "reply = x",
        "reply != x",
        'reply !~ "x"',
        "size < 30",
        "payload > 3",
        "(op = PUB or op = MSG) and sender = client",
        "not op = MSG",
        "not not op = PUB",
    ],
)
def test_does_not_match(text: str) -> None:
    assert not parse(text)(MESSAGE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("op =", "expected a value\n  op =\n      ^"),
        ("op = a b", "expected and, or, or the end\n  op = a b\n         ^"),
        ("(op = a", "expected )\n"),
        ("and", "expected the name of a field\n"),
        ("op in a", "expected (\n"),
        ("size > x", "size > x: expected a number"),
        ("a ~ /(/", "expected a regular expression"),
        ("a = /(/", "expected a regular expression"),
        ("a in (b, /(/)", "expected a regular expression"),
        ("a != /a{99999999999}/", "expected a regular expression"),
        ("(" * 5000 + "a", "expected fewer parentheses"),
        ("not " * 5000 + "a", "expected fewer parentheses"),
        ("a ? 1", "expected a name, a number"),
    ],
)
def test_errors_point_at_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(FilterError) as error:
        parse(text)
    assert str(error.value).startswith(message)
