"""Advisories of the broker core that come after a time, or that name the client of a request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plumbline.reference_broker.nats.levels import NEWEST, Level
from plumbline.wire.nats import Decoder, Msg, Pub, Sender, Sub
from plumbline.wire.nats.jetstream.times import format_time
from plumbline.wire.units import SECOND
from tests.reference_broker.jetstream.bench import OLDEST, START, Bench
from tests.reference_broker.virtual import Virtual


@pytest.fixture
def bench() -> Bench:
    """A stream ``V`` with a consumer ``C``; a subscription receives every event."""
    bench = Bench(NEWEST)
    bench.stream("V", subjects=["v"])
    bench.consumer("V", "C")
    bench.subscriptions.append(b"$JS.EVENT.ADVISORY.CONSUMER.>")
    return bench


def events(bench: Bench) -> list[tuple[str, dict[str, Any]]]:
    """The advisories since the last call: the subject after ADVISORY, and the body."""
    advisories = [one for one in bench.sent if one.target.startswith(b"$JS.EVENT.ADVISORY.")]
    bench.sent[:] = [one for one in bench.sent if one not in advisories]
    return [
        (one.target.decode().removeprefix("$JS.EVENT.ADVISORY."), msgspec.json.decode(one.payload))
        for one in advisories
    ]


def test_pause_end_sends_advisory(bench: Bench) -> None:
    until = format_time(START + 2 * SECOND)
    bench.api("CONSUMER.PAUSE.V.C", {"pause_until": until})
    ((subject, paused),) = events(bench)
    assert (subject, paused["paused"], paused["pause_until"]) == ("CONSUMER.PAUSE.V.C", True, until)
    bench.advance(1)
    assert events(bench) == []
    bench.advance(1)
    ((subject, over),) = events(bench)
    assert (subject, over["paused"], over["pause_until"]) == ("CONSUMER.PAUSE.V.C", False, until)


def test_cancelled_pause_sends_one_advisory(bench: Bench) -> None:
    bench.api("CONSUMER.PAUSE.V.C", {"pause_until": format_time(START + 2 * SECOND)})
    bench.api("CONSUMER.PAUSE.V.C")
    assert [event["paused"] for _, event in events(bench)] == [True, False]
    bench.advance(3)
    assert events(bench) == []


def test_consumer_created_paused_sends_both_advisories(bench: Bench) -> None:
    bench.consumer("V", "P", pause_until=format_time(START + SECOND))
    assert [subject for subject, _ in events(bench)] == ["CONSUMER.CREATED.V.P", "CONSUMER.PAUSE.V.P"]


def test_a_pinned_client_that_is_silent_loses_its_pin(bench: Bench) -> None:
    bench.consumer(
        "V", "PIN", priority_groups=["g"], priority_policy="pinned_client", priority_timeout=SECOND
    )
    bench.request("v", b"1")
    events(bench)
    bench.subscriptions.append(b"_INBOX.>")
    bench.pull("V", "PIN", {"batch": 1, "group": "g"})
    ((subject, pinned),) = events(bench)
    assert (subject, pinned["group"]) == ("CONSUMER.PINNED.V.PIN", "g")
    bench.advance(1)
    ((subject, unpinned),) = events(bench)
    assert (subject, unpinned["reason"]) == ("CONSUMER.UNPINNED.V.PIN", "timeout")


def test_advisory_is_not_built_without_subscriber() -> None:
    bench = Bench(NEWEST)
    before = bench.jetstream.config.random.getstate()
    bench.stream("V", subjects=["v"])
    bench.consumer("V", "C")
    assert bench.jetstream.config.random.getstate() == before


@pytest.mark.parametrize(
    ("level", "fields"),
    [
        (OLDEST, {"acc", "server"}),
        (NEWEST, {"start", "host", "id", "name", "lang", "ver", "acc", "server", "kind", "client_type"}),
    ],
    ids=("2.9", "newest"),
)
def test_api_audit_names_client(level: Level, fields: set[str]) -> None:
    virtual = Virtual(jetstream=True, level=level)
    listener = virtual.client()
    listener.send(Sub.make("$JS.EVENT.ADVISORY.API", 1).raw)
    asking = virtual.client(name="me", lang="test", version="1")
    asking.send(Pub.make("$JS.API.STREAM.NAMES", b'{"offset":0}', "_INBOX.a").raw)
    (audit,) = Decoder(Sender.SERVER).feed(listener.take_bytes())
    assert isinstance(audit, Msg)
    event = msgspec.json.decode(audit.payload)
    assert set(event["client"]) == fields
    assert event["subject"] == "$JS.API.STREAM.NAMES"
    assert event["request"] == '{"offset":0}'
    assert msgspec.json.decode(event["response"])["total"] == 0
    if level == NEWEST:
        assert event["client"]["name"] == "me"


def test_msg_get_is_audited_only_on_error(bench: Bench) -> None:
    bench.subscriptions.append(b"$JS.EVENT.ADVISORY.API")
    bench.request("v", b"1")
    bench.api("STREAM.MSG.GET.V", {"seq": 1})
    assert events(bench) == []
    bench.error("STREAM.MSG.GET.V", {"seq": 2})
    ((subject, _),) = events(bench)
    assert subject == "API"
