"""Text from strangers, made safe to look at."""

from __future__ import annotations

import io
import json
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.reports.text import elide, hex_dump, is_binary
from plumbline.visible import indented_line, one_line, segments, visible, visible_json, write_line
from tests.reports.samples import HOSTILE

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize("char", BIDI)
def test_bidi_controls_are_escaped(char: str) -> None:
    assert visible(f"a{char}b") == f"a\\u{ord(char):04x}b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("\x00", "\\x00"),
        ("\x9b", "\\x9b"),
        ("\u200bx", "\\u200bx"),
        ("\ufeff", "\\ufeff"),
        ("a\u00a0b", "a\\xa0b"),
        ("\U000e0041", "\\U000e0041"),
        ("\udcff", "\\xff"),
        ("\ud800", "\\ud800"),
        ("ascii, é, 漢字, 🙂", "ascii, é, 漢字, 🙂"),
    ],
)
def test_only_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_line_ends_and_tabs_are_kept_in_multiline_text() -> None:
    assert visible("a\n\tb") == "a\n\tb"
    assert one_line("a\r\n\tb\n") == "a\\x0d\\n\\tb"


@given(st.text(st.characters()))
def test_shown_text_encodes_and_holds_no_control_character(text: str) -> None:
    shown = visible(text)
    shown.encode()
    assert not {unicodedata.category(char) for char in shown if char not in "\n\t"} & {"Cc", "Cf", "Cs", "Co"}


@given(st.text(st.characters()))
def test_segments_separate_escapes_from_text_without_loss(text: str) -> None:
    parts = list(segments(text))
    assert "".join(part.text for part in parts) == visible(text)
    assert all(one.hidden != other.hidden for one, other in pairwise(parts))
    assert "".join(part.text for part in parts if not part.hidden) == "".join(
        char for char in text if char.isprintable() or char in "\n\t"
    )


def test_long_text_is_cut_and_shows_its_size() -> None:
    assert elide("x" * 10, 10) == "x" * 10
    assert elide("x" * 12345, 10) == "x" * 10 + "… [12,345 characters in all]"


def test_bytes_are_binary_if_they_are_no_text() -> None:
    assert not is_binary("MSG a 1 5\r\nhé\tllo\r\n".encode())
    assert is_binary(b"\xff")
    assert is_binary(b"a\x00b")


def test_a_hex_dump_shows_offset_bytes_and_text_and_is_cut() -> None:
    dump = hex_dump(b"MSG \x00\xff" + b"a" * 100, 20)
    assert dump[0] == "00000000  4d 53 47 20 00 ff 61 61 61 61 61 61 61 61 61 61  |MSG ..aaaaaaaaaa|"
    assert dump[1].startswith("00000010  61 61 61 61  ")
    assert dump[2] == "… [106 bytes in all]"


def test_the_hostile_sample_is_hostile() -> None:
    assert not HOSTILE.isprintable()
    with pytest.raises(UnicodeEncodeError):
        HOSTILE.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::boo", "\\x3a:error::boo"),
        ("a ::warning file=x,line=1::boo", "a \\x3a:warning file=x,line=1::boo"),
        ("  ::Add-Mask::x", "  \\x3a:Add-Mask::x"),
        ("x ##[error]boo", "x \\x23#[error]boo"),
        ("x ##[add-matcher owner=a]", "x \\x23#[add-matcher owner=a]"),
        ("core_publish::error_is_sent", "core_publish::error_is_sent"),
        ("[::1]:4222 ## [x]", "[::1]:4222 ## [x]"),
    ],
)
def test_what_a_ci_runner_takes_for_a_command_is_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert json.loads(visible_json(json.dumps(text))) == text
    assert ("::" + text.partition("::")[2] in visible_json(json.dumps(text))) == (
        text == shown and "::" in text
    )


@given(st.text(st.characters()))
def test_json_means_the_same_and_holds_no_control_character(text: str) -> None:
    encoded = json.dumps({"a": text}, ensure_ascii=False, indent=2)
    shown = visible_json(encoded)
    assert json.loads(shown) == {"a": text}
    assert all(char.isprintable() or char == "\n" for char in shown)


@given(st.text(st.characters()))
def test_one_line_is_written_whatever_the_text(text: str) -> None:
    out = io.StringIO()
    write_line(out, text)
    assert out.getvalue().splitlines() == [out.getvalue()[:-1]]
    assert out.getvalue()[:-1].isprintable()


def test_a_line_keeps_its_indentation() -> None:
    assert indented_line("  a\tb\n") == "  a\\tb\\n"
