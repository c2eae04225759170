"""Durations: what Go prints and reads. Durations and sizes as users write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.units import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    format_duration,
    parse_duration,
    read_duration,
    read_number,
    read_size,
)


@given(st.integers(-(2**63), 2**63 - 1))
def test_duration_round_trip(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


# Printed by Go's time.Duration.String.
@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (1_000_000_000, "1s"),
        (3_300_000_000, "3.3s"),
        (60_000_000_000, "1m0s"),
        (4 * 60_000_000_000 + 5_000_000_000, "4m5s"),
        (4 * 60_000_000_000 + 5_001_000_000, "4m5.001s"),
        (3_600_000_000_000, "1h0m0s"),
        (5 * 3_600_000_000_000 + 6 * 60_000_000_000 + 7_001_000_000, "5h6m7.001s"),
        (-1, "-1ns"),
        (2**63 - 1, "2562047h47m16.854775807s"),
        (-(2**63), "-2562047h47m16.854775808s"),
    ],
)
def test_text_is_that_of_go(nanoseconds: int, text: str) -> None:
    assert format_duration(nanoseconds) == text
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("500ms", 500_000_000),
        ("1h30m", 5_400_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("+5s", 5_000_000_000),
        ("-5.5s", -5_500_000_000),
        ("0", 0),
        ("-0", 0),
        ("1us", 1_000),
        ("1μs", 1_000),  # the Greek letter
        ("5s10ns5s", 10_000_000_010),
        ("000001s", 1_000_000_000),
    ],
)
def test_durations_that_go_accepts(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    ["", "3", "-", "s", ".", "-.", ".s", "+.s", "1d", "1 s", " 1s", "1S", "--1s", "1e3s", "1.5.5s", "٣s",
     "9223372036854775808ns", "-9223372036854775809ns", "9223372036854.775808s", "9" * 5000 + "s"],
)  # fmt: skip
def test_durations_that_go_rejects(text: str) -> None:
    assert parse_duration(text) is None


@given(st.text() | st.text(st.sampled_from("0123456789.+-hmsnuµμ ")))
def test_no_text_makes_it_raise(text: str) -> None:
    nanoseconds = parse_duration(text)
    assert nanoseconds is None or -(2**63) <= nanoseconds < 2**63


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("500ms", 500_000_000), ("1h30m", 5_400_000_000_000), ("0", 0), ("1d", 86_400_000_000_000),
     ("1.5d", 129_600_000_000_000)],
)  # fmt: skip
def test_durations_that_users_write(text: str, nanoseconds: int) -> None:
    assert read_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "5", "-5s", "+5s", "1d2h", "9" * 5000 + "d", "soon"])
def test_what_is_no_duration_for_users(text: str) -> None:
    assert read_duration(text) is None


# nats-server reads the same: conf/parse.go, "Process a suffix".
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("512b", 512),
        ("10k", 10_000),
        ("10K", 10_000),
        ("10kb", 10_240),
        ("10Ki", 10_240),
        ("10KiB", 10_240),
        ("64M", 64_000_000),
        ("64 MiB", 64 * 1024 * 1024),
        ("1.5k", 1_500),
        ("1.5Ki", 1_536),
        ("1g", 10**9),
        ("1gb", 2**30),
        ("2T", 2 * 10**12),
        ("2TiB", 2 * 2**40),
    ],
)
def test_sizes_that_users_write(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "k", "10x", "-1", "10 i", "10kbb", "1.k", "1e3", "9" * 5000])
def test_what_is_no_size(text: str) -> None:
    assert read_size(text) is None


@given(st.from_regex(SIZE_PATTERN, fullmatch=True, alphabet=st.characters(codec="ascii")))
def test_what_the_pattern_of_sizes_finds_is_read(text: str) -> None:
    assert len(text) > 18 or read_size(text) is not None


@given(st.from_regex(DURATION_PATTERN, fullmatch=True, alphabet=st.characters(codec="ascii")))
def test_what_the_pattern_of_durations_finds_is_read(text: str) -> None:
    assert len(text) > 5 or read_duration(text) is not None


@pytest.mark.parametrize(("pattern", "text"), [(DURATION_PATTERN, "10mb"), (SIZE_PATTERN, "10ms")])
def test_patterns_do_not_take_each_other_s_units(pattern: str, text: str) -> None:
    assert re.match(pattern, text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        (b"007", 7),
        ("9" * 19, 10**19 - 1),
        ("1" * 20, None),
        ("", None),
        ("-1", None),
        ("1.0", None),
        ("\u00b2", None),  # a digit, and int() raises
        ("\u0661", None),  # a digit, and int() reads it
        ("1" * 5000, None),
    ],
)
def test_a_number_is_a_few_ascii_digits(text: str | bytes, number: int | None) -> None:
    assert read_number(text) == number
