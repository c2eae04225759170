"""Times of the JetStream API: RFC 3339, with nanoseconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.nats.jetstream.times import format_time, parse_time


@given(st.integers(min_value=0, max_value=4_000_000_000 * 10**9))
def test_times_round_trip(nanoseconds: int) -> None:
    assert parse_time(format_time(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2020-13-01T00:00:00Z", None),
        ("yesterday", None),
    ],
)
def test_times_are_rfc_3339(text: str, nanoseconds: int | None) -> None:
    assert parse_time(text) == nanoseconds
