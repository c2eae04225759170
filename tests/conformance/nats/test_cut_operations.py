"""Checks that cut operations in two are not disturbed by a server that sends PING between the halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from plumbline.conformance.checks.nats.core import test_core_conventions as checks
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.reference_broker.nats.server import NatsBroker

INTERVAL_S = 0.002  # so that a PING comes between two segments, many times


@pytest.fixture
def session() -> Iterator[NatsSession]:
    with (
        NatsBroker.in_thread(ping_interval=INTERVAL_S, ping_max=10**6) as url,
        NatsSession(open_target(NatsUrl.parse(url), run="cut")) as session,
    ):
        yield session


@pytest.mark.parametrize(
    "check", [checks.test_cut_anywhere, checks.test_one_byte_at_a_time], ids=["in two", "bytes"]
)
def test_a_ping_between_two_segments_is_not_answered_there(
    check: Callable[[NatsSession], None], session: NatsSession
) -> None:
    check(session)
