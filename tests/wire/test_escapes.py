"""Lines are readable, whatever the bytes: they say which bytes these were, and text stays text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.escapes import escaped, escaped_bytes


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", ""),
        (b'it\'s 5 \\o/ "quoted"', 'it\'s 5 \\o/ "quoted"'),
        (b"a\r\n\tb\x00\x7f", r"a\r\n\tb\x00\x7f"),
        ("naïve ☃ 水".encode(), "naïve ☃ 水"),
        ("zero\u200bwidth".encode(), r"zero\u200bwidth"),
        (b"\xff\xfe 'bin\\ary'\n", r"\xff\xfe 'bin\ary'" + r"\n"),
        ("é".encode() + b"\xff" + b"then ASCII", r"\xc3\xa9\xffthen ASCII"),
        ("snow ☃ and ☃".encode()[:-1], r"snow ☃ and \xe2\x98"),
        ("snow ☃ 😀".encode()[:-1], r"snow ☃ \xf0\x9f\x98"),
    ],
)
def test_bytes_as_a_line(data: bytes, line: str) -> None:
    assert escaped_bytes(data) == line


@given(st.binary())
def test_bytes_that_are_no_text_can_be_read_back_from_their_line(data: bytes) -> None:
    binary = data + b"\xff...."
    line = escaped_bytes(binary.replace(b"\\", b"\\\\"))
    assert line.isprintable()
    assert line.encode("ascii").decode("unicode_escape").encode("latin-1") == binary


@given(st.text())
def test_text_is_escaped_character_by_character(text: str) -> None:
    assert escaped(text) == "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
