"""``Nats-TTL``: which values are lifetimes, and whose time is over when."""

from __future__ import annotations

import pytest

from plumbline.reference_broker.nats.jetstream.streams.lifetimes import NO_EXPIRY, Lifetimes, read_ttl
from plumbline.wire.units import HOUR, MINUTE, SECOND


@pytest.mark.parametrize(
    ("text", "ttl"),
    [
        ("1", SECOND),
        ("0", 0),
        ("1s", SECOND),
        ("1h30m", HOUR + 30 * MINUTE),
        ("1900ms", SECOND),
        ("never", NO_EXPIRY),
        ("Never", NO_EXPIRY),
        ("999ms", None),
        ("-1", None),
        ("-5s", None),
        ("soon", None),
        ("", None),
    ],
)
def test_lifetimes_are_seconds_durations_of_a_second_or_never(text: str, ttl: int | None) -> None:
    assert read_ttl(text) == ttl


def test_each_message_is_over_once_in_the_order_of_the_ends() -> None:
    lifetimes = Lifetimes()
    lifetimes.set_ttl(1, 3 * SECOND, 0)
    lifetimes.set_ttl(2, SECOND, 0)
    lifetimes.set_ttl(3, NO_EXPIRY, 0)
    lifetimes.set_ttl(4, 0, 0)
    assert (lifetimes.next_end(), lifetimes.never_expiring) == (SECOND, {3})
    assert lifetimes.expired(SECOND - 1) == []
    assert lifetimes.expired(5 * SECOND) == [2, 1]
    assert lifetimes.expired(5 * SECOND) == []
    assert lifetimes.next_end() is None
