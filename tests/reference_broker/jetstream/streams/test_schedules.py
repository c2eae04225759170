"""Schedules on the pure core and its virtual clock. ADR-51."""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pytest

from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.crontab import Crontab
from plumbline.wire.nats.headers import Headers, encode_headers
from plumbline.wire.nats.jetstream.times import format_time, parse_time
from tests.reference_broker.jetstream.bench import START, Bench
from tests.reference_broker.jetstream.disk import Kept

SECOND = 1_000_000_000


def at(seconds: int) -> str:
    """So many seconds after the start."""
    return format_time(START + seconds * SECOND)


def scheduling() -> Bench:
    bench = Bench()
    bench.stream("S", subjects=["s.>"], allow_msg_schedules=True, allow_msg_ttl=True)
    return bench


def publish(bench: Bench, subject: str, payload: bytes = b"x", /, **headers: str) -> str:
    """The sequence or the error code; ``Nats_TTL="5s"`` becomes the header ``Nats-TTL: 5s``."""
    fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
    answer = bench.request(subject, payload, encode_headers(fields) if fields else b"")
    return str(answer["error"]["err_code"] if "error" in answer else answer["seq"])


def schedule(bench: Bench, pattern: str, subject: str = "s.a", /, **headers: str) -> str:
    return publish(bench, subject, b"body", Nats_Schedule=pattern, Nats_Schedule_Target="s.out", **headers)


def stored(bench: Bench, subject: str = "s.out") -> list[str]:
    """Seconds after the start, payload, headers."""
    found = []
    for message in bench.jetstream.streams["S"].store.messages():
        if message.subject == subject.encode():
            fields = Headers.parse(message.header_block).fields if message.header_block else ()
            shown = " ".join(f"{name}={value}" for name, value in fields)
            found.append(f"{(message.time - START) / SECOND:g} {message.payload.decode()} {shown}".strip())
    return found


def test_a_message_at_a_time_is_published_once_and_removed() -> None:
    bench = scheduling()
    assert schedule(bench, f"@at {at(60)}", Colour="blue", Nats_Schedule_TTL="5m", Nats_Msg_Id="7") == "1"
    bench.advance(59.9)
    assert stored(bench) == []
    bench.advance(0.2)
    published = "60 body Colour=blue Nats-Scheduler=s.a Nats-Schedule-Next=purge Nats-TTL=5m"
    assert stored(bench) == [published]
    assert stored(bench, "s.a") == []
    bench.advance(299)
    assert stored(bench) == [published]
    bench.advance(2)
    assert stored(bench) == []


def test_what_is_past_is_published_at_once() -> None:
    bench = scheduling()
    schedule(bench, "@at 2009-11-10T23:00:00Z")
    bench.advance(0.001)
    assert stored(bench) == ["0 body Nats-Scheduler=s.a Nats-Schedule-Next=purge"]


def test_an_interval_goes_on_until_its_schedule_is_removed() -> None:
    bench = scheduling()
    schedule(bench, "@every 1h")
    bench.advance(3 * 3600 + 1)
    assert stored(bench) == [
        f"{3600 * n} body Nats-Scheduler=s.a Nats-Schedule-Next={at(3600 * (n + 1))}" for n in (1, 2, 3)
    ]
    bench.api("STREAM.MSG.DELETE.S", {"seq": 1})
    bench.advance(3 * 3600)
    assert len(stored(bench)) == 3


def test_a_message_without_a_schedule_stops_the_one_on_its_subject() -> None:
    bench = scheduling()
    schedule(bench, "@every 1s")
    publish(bench, "s.a")
    bench.advance(10)
    assert stored(bench) == []
    assert len(stored(bench, "s.a")) == 2


def test_a_source_gives_body_and_headers_and_the_schedule_where_it_is_empty() -> None:
    bench = scheduling()
    schedule(bench, "@every 1s", Nats_Schedule_Source="s.sensor", Nats_Schedule_Rollup="sub")
    bench.advance(1.5)
    assert [line.split()[1] for line in stored(bench)] == ["body"]
    publish(bench, "s.sensor", b"reading", Colour="red")
    bench.advance(1)
    (line,) = stored(bench)
    assert line.split() == [
        "2", "reading", "Colour=red", "Nats-Scheduler=s.a", f"Nats-Schedule-Next={at(3)}", "Nats-Rollup=sub",
    ]  # fmt: skip


def test_a_client_ends_a_schedule_and_publishes_in_one() -> None:
    bench = scheduling()
    schedule(bench, "@every 1s")
    assert publish(bench, "s.b", Nats_Scheduler="s.b", Nats_Schedule_Next="purge") == "10212"
    assert publish(bench, "s.b", Nats_Scheduler="s.a") == "10212"
    assert publish(bench, "s.b", Nats_Scheduler="s.a", Nats_Schedule_Next="purge") == "2"
    bench.advance(5)
    assert (stored(bench), len(stored(bench, "s.a")), len(stored(bench, "s.b"))) == ([], 0, 1)


@pytest.mark.parametrize(
    ("pattern", "zone", "answer"),
    [
        ("@every 1s", "UTC", "10189"),
        ("@hourly", "Nowhere", "10223"),
        ("@hourly", "", "10223"),
        ("@hourly", "../passwd", "10223"),
        ("@hourly", "Europe/Amsterdam", "1"),
        ("0 0 0 30 2 *", None, "10189"),
        ("0 0 0 1,,2 * 1/2", None, "1"),
        (", 0 0 1 * *", None, "10189"),
        ("0 0 0 1/0 * *", None, "10189"),
        ("@at 9999-12-31T23:59:59Z", None, "1"),
    ],
)
def test_what_a_schedule_may_say(pattern: str, zone: str | None, answer: str) -> None:
    headers = {} if zone is None else {"Nats_Schedule_Time_Zone": zone}
    assert schedule(scheduling(), pattern, **headers) == answer


CLOCKS = [  # crontab, zone, after, next: the last two where the clocks change, and a leap day
    ("30 15 5 * * *", UTC, "2026-11-21T05:15:30Z", "2026-11-22T05:15:30Z"),
    ("0 0 0 1 jan *", UTC, "2026-11-21T00:00:00Z", "2027-01-01T00:00:00Z"),
    ("0 0 12 13 * fri", UTC, "2026-11-21T00:00:00Z", "2026-11-27T12:00:00Z"),
    ("0 0 12 * 2-12/2 0", UTC, "2026-11-21T00:00:00Z", "2026-12-06T12:00:00Z"),
    ("0 5-59/20 * * * mon-wed", UTC, "2026-11-24T23:59:00Z", "2026-11-25T00:05:00Z"),
    ("0 0 0 29 2 *", UTC, "2026-11-21T00:00:00Z", "2028-02-29T00:00:00Z"),
    ("0 0 5 * * *", ZoneInfo("Asia/Kolkata"), "2026-11-21T00:00:00Z", "2026-11-21T23:30:00Z"),
    ("0 30 2 * * *", ZoneInfo("Europe/Berlin"), "2027-03-27T12:00:00Z", "2027-03-29T00:30:00Z"),
    ("0 30 2 * * *", ZoneInfo("Europe/Berlin"), "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
]


@pytest.mark.parametrize(("text", "zone", "after", "following"), CLOCKS)
def test_when_a_crontab_is_due(text: str, zone: tzinfo, after: str, following: str) -> None:
    crontab, moment = Crontab.read(text), parse_time(after)
    assert crontab is not None
    assert moment is not None
    due = crontab.next(moment, zone)
    assert due is not None
    assert format_time(due) == following


def test_schedules_go_on_after_a_restart() -> None:
    kept = Kept()
    client = kept.client()
    client.ask("SUB inbox 1")
    body = '{"name":"S","subjects":["s.>"],"allow_msg_schedules":true}'
    client.ask(f"PUB $JS.API.STREAM.CREATE.S inbox {len(body)}\n{body}")
    for subject, pattern in (("s.a", f"@at {at(60)}"), ("s.b", "@every 20s")):
        headers = encode_headers(
            [("Nats-Schedule", pattern), ("Nats-Schedule-Target", "s.out"), ("Colour", "blue")]
        )
        client.ask(f"HPUB {subject} inbox {len(headers)} {len(headers)}\r\n".encode() + headers + b"\r\n")
    kept.pass_time(25)  # s.b has published at 20 s
    again = Kept(kept.files, now=kept.now + 90 * SECOND)
    again.pass_time(1)  # at 115 s: s.a once, and s.b once for all that it has missed
    service = again.broker.service
    assert isinstance(service, JetStream)
    messages = list(service.streams["S"].store.messages())
    assert [(one.seq, one.subject) for one in messages] == [
        (2, b"s.b"), (3, b"s.out"), (4, b"s.out"), (5, b"s.out"),
    ]  # fmt: skip
    headers_of_last = Headers.parse(messages[-1].header_block)
    assert headers_of_last.get("Nats-Schedule-Next") == at(135)
