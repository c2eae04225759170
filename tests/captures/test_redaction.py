"""No secret of a CONNECT survives, nothing else changes, however the bytes are cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plumbline.captures.nats.redaction import NatsRedactor
from plumbline.wire.nats import Connect, Decoder, Ping, Pub, Sender
from plumbline.wire.nats.secrets import SECRETS


def masked(data: bytes, cuts: tuple[int, ...] | list[int] = ()) -> bytes:
    redactor = NatsRedactor()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return b"".join(redactor.feed(data[start:end]) for start, end in pairwise(places))


# Those that nats-server reads (ClientOpts): the list of the masks is compared with them.
@pytest.mark.parametrize("name", ["auth_token", "jwt", "nkey", "pass", "proxy_sig", "sig"])
def test_each_secret_is_masked_at_equal_length_and_the_rest_stays(name: str) -> None:
    line = Connect.make({"user": "ann", name: "s3cr3t", "verbose": False}).raw
    assert masked(line) == line.replace(b"s3cr3t", b"******")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'CONNECT {"pass":"a\\"b\\\\"}\r\n', b'CONNECT {"pass":"******"}\r\n'),
        (b'connect\t{"PASS" : "abc"}\r\n', b'connect\t{"PASS" : "***"}\r\n'),
        (b'CONNECT\r{"pass":"abc"}\r\n', b'CONNECT\r{"pass":"***"}\r\n'),
        (b'CONNECT \t\r {"pass":"abc"}\r\n', b'CONNECT \t\r {"pass":"***"}\r\n'),
        (b'CONNECT\x0b\x0c\0{"pass":"abc"}\r\n', b'CONNECT\x0b\x0c\0{"pass":"***"}\r\n'),
        (b'CONNECT{"pass":"abc"}\r\n', b'CONNECT{"pass":"***"}\r\n'),
        (b'CONNECT {"\\u0070ass":"abc"}\r\n', b'CONNECT {"\\u0070ass":"***"}\r\n'),
        (b'CONNECT {"pass":-12.5,"a":7}\r\n', b'CONNECT {"pass":11111,"a":7}\r\n'),
        (
            b'CONNECT {"pass":["ab",{"x":"cd"}],"b":"c"}\r\n',
            b'CONNECT {"pass":["**",{"x":"**"}],"b":"c"}\r\n',
        ),
        (b'CONNECT {"o":{"jwt":"ab"},"b":"c"}\r\n', b'CONNECT {"o":{"jwt":"**"},"b":"c"}\r\n'),
        (b'CONNECT {"pass":"abc\r\nPING\r\n', b'CONNECT {"pass":"***\r\nPING\r\n'),
        (b"CONNECT {pass:'abc'}\r\n", b"CONNECT {***********\r\n"),
        (b'CONNECT {"a":1} "abc"\r\n', b'CONNECT {"a":1} *****\r\n'),
        ('CONNECT {"pass":"zoë"}\r\n'.encode(), b'CONNECT {"pass":"****"}\r\n'),
    ],
)
def test_spellings_that_servers_take_or_refuse(line: bytes, expected: bytes) -> None:
    assert masked(line) == expected


def test_a_later_connect_is_masked_too() -> None:
    later = Ping.make().raw + Connect.make({"pass": "abc"}).raw
    assert masked(Connect.make({}).raw + later, [18]) == Connect.make({}).raw + later.replace(b"abc", b"***")


@pytest.mark.parametrize(
    "payload", [b"Connection: close", b"connect to me", b"x\r\nCONNECTED", b'{"pass":"a"}']
)
def test_payloads_stay(payload: bytes) -> None:
    operation = Pub.make("a", payload).raw
    assert masked(operation) == operation


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)


@given(
    st.dictionaries(st.sampled_from([*sorted(SECRETS), "user", "name", "lang"]), TEXT),
    st.lists(st.integers(0, 300), max_size=20),
    st.binary(max_size=30),
)
@example({"pass": "secret"}, [1, 3, 9, 14, 15, 18, 20], b"\nC")
def test_any_connect_in_any_segments(fields: dict[str, str], cuts: list[int], payload: bytes) -> None:
    data = Connect.make(fields).raw + Pub.make("a.b", payload).raw
    shown = masked(data, cuts)
    assert len(shown) == len(data)
    connect, publish = Decoder(Sender.CLIENT).feed(shown)
    assert publish.raw == Pub.make("a.b", payload).raw
    assert isinstance(connect, Connect)
    for name, value in fields.items():
        encoded = json.dumps(value, ensure_ascii=False)
        if name in SECRETS:
            assert set(connect.fields[name]) <= {"*"}
        else:
            assert connect.fields[name] == json.loads(encoded)
