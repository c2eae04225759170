"""Header blocks: read and written alike, kept as sent, refused only as ``HEADERS``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.nats.headers import (
    Headers,
    Status,
    append_headers,
    encode_headers,
    remove_headers,
    replace_header,
)
from tests.wire.strategies import header_fields, refusal

descriptions = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20).map(
    lambda text: text.strip()
)
statuses = st.none() | st.builds(Status, st.integers(0, 999), descriptions)


@given(statuses, header_fields)
def test_header_block_round_trip(status: Status | None, fields: list[tuple[str, str]]) -> None:
    headers = Headers(status, tuple(fields))
    assert headers.encode() == encode_headers(fields, status)
    assert Headers.parse(headers.encode()) == headers


@given(statuses, header_fields, header_fields)
def test_appended_headers_come_behind_the_others(
    status: Status | None, fields: list[tuple[str, str]], more: list[tuple[str, str]]
) -> None:
    assert append_headers(encode_headers(fields, status), more) == encode_headers([*fields, *more], status)
    assert append_headers(b"", more) == encode_headers(more)


@given(statuses, header_fields, st.data())
def test_removed_headers_are_those_of_the_names(
    status: Status | None, fields: list[tuple[str, str]], data: st.DataObject
) -> None:
    names = data.draw(st.sets(st.sampled_from([name for name, _ in fields]), max_size=2)) if fields else set()
    left = [field for field in fields if field[0] not in names]
    block = encode_headers(fields, status)
    assert remove_headers(block, *names) == encode_headers(left, status)
    assert remove_headers(block, "X-Of-None") == block


def test_a_replaced_header_keeps_its_place() -> None:
    block = b"NATS/1.0 503\r\nA: 1\r\nAb: 2\r\nB:  3\r\n\r\n"
    assert replace_header(block, "A", "9") == b"NATS/1.0 503\r\nA: 9\r\nAb: 2\r\nB:  3\r\n\r\n"
    assert replace_header(block, "C", "9") == block


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (b"NATS/1.0 503\r\n\r\n", Status(503)),
        (b"NATS/1.0 404 No Messages\r\n\r\n", Status(404, "No Messages")),
        (b"NATS/1.0   100   Idle Heartbeat  \r\n\r\n", Status(100, "Idle Heartbeat")),
        (b"NATS/1.0\r\n\r\n", None),
        (b"NATS/1.0 \t\r\n\r\n", None),
    ],
)
def test_status_follows_version(block: bytes, status: Status | None) -> None:
    assert Headers.parse(block) == Headers(status, ())


def test_order_case_and_duplicates_are_kept() -> None:
    headers = Headers.parse(b"NATS/1.0\r\nA: 1\r\na:2\r\nA:\t3 \r\nB::\r\nempty:\r\n\r\n")
    assert headers.fields == (("A", "1"), ("a", "2"), ("A", "3"), ("B", ":"), ("empty", ""))
    assert headers.values("A") == ["1", "3"]
    assert (headers.get("A"), headers.get("a"), headers.get("empty")) == ("1", "2", "")
    assert (headers.get("b"), headers.values("b")) == (None, [])


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"NATS/1.0",
        b"NATS/1.0\r\n",
        b"NATS/1.0\n\n",
        b"HTTP/1.1\r\n\r\n",
        b"nats/1.0\r\n\r\n",
        b"NATS/1.0 44\r\n\r\n",
        b"NATS/1.0 4040\r\n\r\n",
        b"NATS/1.0 abc\r\n\r\n",
        b"NATS/1.0 -04\r\n\r\n",
        "NATS/1.0 ٤٠٤\r\n\r\n".encode(),
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\n: no name\r\n\r\n",
        b"NATS/1.0\r\n\r\nA: 1\r\n\r\n",
        b"NATS/1.0\r\nA: 1\r\n",
    ],
)
def test_invalid_header_block_error_shows_first_bytes(block: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        Headers.parse(block)
    assert (caught.value.kind, caught.value.excerpt) == (ErrorKind.HEADERS, block[:64])


@given(
    st.binary()
    | st.lists(
        st.sampled_from(
            [
                b"NATS/1.0",
                b" ",
                b"404",
                b"\r\n",
                b"\r",
                b"\n",
                b":",
                b"A",
                b"A: 1\r\n",
                b"\r\n\r\n",
                b"\xff",
                b"\xb2",
            ]
        )
    ).map(b"".join)
)
def test_no_block_makes_it_raise_anything_else(block: bytes) -> None:
    assert refusal(lambda: Headers.parse(block)) in (None, ErrorKind.HEADERS)
