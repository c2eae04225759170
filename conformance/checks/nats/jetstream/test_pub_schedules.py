"""Messages that a stream publishes later: when, with what, and until when. ADR-51.

Times are the server's own: of what it has stored, and of its headers. What is not published, is looked for
when something else has been published after it would have been.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from typing import Any

from msgspec import Struct

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Inconclusive, Untestable
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Headers
from plumbline.wire.nats.jetstream.times import format_time, parse_time
from plumbline.wire.units import SECOND

DELAY = 2 * SECOND
SOON_S = 3
LATE_S = 5.0  # "near the supplied timestamp" names no bound; servers fire up to a second late
POLL_S = 0.05
PAST = "@at 2009-11-10T23:00:00Z"
FAR = "@at 2099-01-01T00:00:00Z"
LIFETIME_S = 2
ZONE, ZONE_AHEAD = "Asia/Kolkata", 19_800  # seconds before UTC, all year
HOURS, MONTHS = 24, 12
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Stored(Struct):
    """A message as the stream has it; ``at`` in nanoseconds since the epoch."""

    seq: int
    at: int
    headers: Headers
    payload: bytes

    def __str__(self) -> str:
        """As evidence."""
        fields = ", ".join(f"{name}: {value}" for name, value in self.headers.fields)
        return f"sequence {self.seq} at {format_time(self.at)}: {fields or 'no headers'}; {self.payload!r}"


def _stored(answer: dict[str, Any]) -> Stored | None:
    """The message of an answer to STREAM.MSG.GET. Raises ``Untestable`` if it cannot be read."""
    message = answer.get("message")
    if not isinstance(message, dict):
        return None
    try:
        block = base64.b64decode(message.get("hdrs") or "")
        at = parse_time(message["time"])
        headers = Headers.parse(block) if block else Headers(None, ())
        payload = base64.b64decode(message.get("data") or "")
        seq = int(message["seq"])
    except (KeyError, ValueError, TypeError, ProtocolError):
        raise Untestable("a stored message cannot be read", actual=str(answer)) from None
    if at is None:
        raise Untestable("a stored message has no time", actual=str(answer))
    return Stored(seq, at, headers, payload)


class Scheduling:
    """A stream that schedules: ``<name>.*``."""

    def __init__(self, session: NatsSession, **config: Any) -> None:
        self.session = session
        self._subjects = session.name("later")
        config = {"allow_msg_schedules": True, **config}
        self.stream = session.stage.stream("LATER", [f"{self._subjects}.>"], **config)

    def subject(self, name: str) -> str:
        return f"{self._subjects}.{name}"

    def now(self) -> int:
        """By the server's clock."""
        answer = self.session.stage.publish(self.subject("clock"))
        return self.load(seq=answer.get("seq")).at

    def publish(self, name: str, payload: bytes = b"x", /, **headers: str) -> int:
        """``Nats_Schedule="@hourly"`` becomes the header ``Nats-Schedule: @hourly``; the sequence."""
        fields = [(header.replace("_", "-"), value) for header, value in headers.items()]
        seq = self.session.stage.publish(self.subject(name), payload, fields).get("seq")
        if not isinstance(seq, int):
            raise Untestable("a PubAck has no sequence")
        return seq

    def schedule(self, name: str, pattern: str, payload: bytes = b"x", /, **headers: str) -> int:
        """A schedule on ``name``, whose messages come on ``name`` and ``.out``; its sequence."""
        target = self.subject(f"{name}.out")
        return self.publish(name, payload, Nats_Schedule=pattern, Nats_Schedule_Target=target, **headers)

    def load(self, **which: Any) -> Stored:
        """Raises ``Failed`` if it is not there."""
        answer = self._get(which)
        found = _stored(answer)
        if found is None:
            raise Failed("a message is not stored", expected=str(which), actual=json.dumps(answer))
        return found

    def find(self, **which: Any) -> Stored | None:
        return _stored(self._get(which))

    def _get(self, which: dict[str, Any]) -> dict[str, Any]:
        return self.session.stage.answer("STREAM.MSG.GET", self.stream, body=which)

    def messages(self, name: str) -> list[Stored]:
        """All that are on ``name``."""
        found: list[Stored] = []
        start = 1
        while (one := self.find(seq=start, next_by_subj=self.subject(name))) is not None:
            found.append(one)
            start = one.seq + 1
        return found

    def await_messages(self, name: str, count: int, within: float) -> list[Stored]:
        """At least ``count`` on ``name``. Raises ``Failed``."""
        deadline = time.monotonic() + within + self.session.target.slack_s
        while len(found := self.messages(name)) < count:
            self.session.require(
                time.monotonic() < deadline,
                "a schedule has not published",
                expected=f"{count} messages on {self.subject(name)} within {within:g} s",
                actual="\n".join(map(str, found)) or "none",
            )
            self.session.pause(POLL_S)
        return found

    def published(self, name: str, count: int = 1, *, within: float = LATE_S) -> list[Stored]:
        """What the schedule on ``name`` has published."""
        return self.await_messages(f"{name}.out", count, within)

    def seen_in_time(self, name: str, seq: int) -> Stored | None:
        """What the schedule with this sequence, the last of the stream, has published; None if it is gone."""
        deadline = time.monotonic() + LATE_S + self.session.target.slack_s
        while True:
            state = self.session.stage.stream_info(self.stream).get("state")
            last = state.get("last_seq") if isinstance(state, dict) else None
            if not isinstance(last, int):
                raise Untestable("STREAM.INFO has no last_seq", actual=str(state))
            if found := self.messages(f"{name}.out"):
                return found[0]
            if last > seq:
                return None
            self.session.require(
                time.monotonic() < deadline,
                "a schedule has not published",
                expected=f"a message on {self.subject(name)}.out within {LATE_S:g} s",
                actual="none",
            )
            self.session.pause(POLL_S)

    def await_gone(self, name: str) -> None:
        deadline = time.monotonic() + LATE_S + self.session.target.slack_s
        while found := self.messages(name):
            self.session.require(
                time.monotonic() < deadline,
                "a message is still stored",
                expected=f"nothing on {self.subject(name)} after {LATE_S:g} s",
                actual=str(found[0]),
            )
            self.session.pause(POLL_S)

    def nothing_on(self, name: str, why: str) -> None:
        found = self.messages(name)
        self.session.require(
            not found, why, expected=f"nothing on {self.subject(name)}", actual="\n".join(map(str, found))
        )

    def next_of(self, message: Stored) -> int:
        """Nats-Schedule-Next as a time. Raises ``Failed``."""
        moment = parse_time(message.headers.get("Nats-Schedule-Next") or "")
        if moment is None:
            raise Failed("no next time", expected="Nats-Schedule-Next with a time", actual=str(message))
        return moment

    def shows(self, message: Stored, payload: bytes, **headers: str) -> None:
        """The message has this body, and these headers once each."""
        expected = {name.replace("_", "-"): [value] for name, value in headers.items()}
        found = {name: message.headers.values(name) for name in expected}
        self.session.require(
            message.payload == payload and found == expected,
            "another message was published",
            expected=f"{payload!r} with {expected}",
            actual=str(message),
        )

    def came_when_due(self, message: Stored, due: int) -> None:
        latest = due + round((LATE_S + self.session.target.slack_s) * SECOND)
        self.session.require(
            due <= message.at <= latest,
            "a message was published at another time",
            expected=f"between {format_time(due)} and {format_time(latest)}",
            actual=str(message),
        )

    def came_apart(self, found: list[Stored], interval: int) -> None:
        """Each came when the one before had announced it, and announced the next one ``interval`` later.

        A server that is late by an interval leaves out what it missed: then it is several of them later. It
        is not always late.
        """
        expected = f"{interval // SECOND} s apart, and Nats-Schedule-Next too"
        always_late = True
        for one, following in pairwise(found):
            due = self.next_of(one)
            self.came_when_due(following, due)
            apart = self.next_of(following) - due
            late = following.at >= due + interval
            always_late &= late
            self.session.require(
                apart == interval or (late and apart > 0 and apart % interval == 0),
                "another interval",
                expected=expected,
                actual=f"{one}\n{following}",
            )
        self.session.require(
            not always_late, "another interval", expected=expected, actual="\n".join(map(str, found))
        )


@verifies("JS-PUB-063", source='ADR-51, "Single scheduled message"', is_long=True)
def test_message_is_published_at_its_time(session: NatsSession) -> None:
    """@at publishes body and headers once, not before its time, and the schedule is gone."""
    later = Scheduling(session)
    due = later.now() + DELAY
    later.schedule("single", f"@at {format_time(due)}", b"body", Colour="blue")
    found = later.published("single", within=DELAY / SECOND + LATE_S)
    later.came_when_due(found[0], due)
    holder = later.subject("single")
    later.shows(found[0], b"body", Colour="blue", Nats_Scheduler=holder, Nats_Schedule_Next="purge")
    later.await_gone("single")
    found = later.messages("single.out")
    session.require(
        len(found) == 1, "published again", expected="one message", actual="\n".join(map(str, found))
    )


@verifies("JS-PUB-063", source='ADR-51, "Single scheduled message"')
def test_time_with_an_offset(session: NatsSession) -> None:
    """An @at with an offset from UTC is the moment that it is."""
    later = Scheduling(session)
    due = (later.now() // SECOND + 2) * SECOND
    ahead = format_time(due + 2 * 3600 * SECOND).removesuffix("Z")
    later.schedule("single", f"@at {ahead}+02:00")
    found = later.published("single", within=DELAY / SECOND + LATE_S)
    later.came_when_due(found[0], due)


@verifies("JS-PUB-063", source='ADR-51, "Single scheduled message"')
def test_time_in_the_past(session: NatsSession) -> None:
    """A message whose @at is past is published at once, and the schedule is gone."""
    later = Scheduling(session)
    later.schedule("past", PAST, b"body")
    later.shows(later.published("past")[0], b"body")
    later.await_gone("past")


@verifies("JS-PUB-064", source='ADR-51, "Headers"', is_long=True)
def test_scheduled_message_has_a_lifetime(session: NatsSession) -> None:
    """Nats-Schedule-TTL is the Nats-TTL of what is published, which is removed after it."""
    later = Scheduling(session, allow_msg_ttl=True)
    began = time.monotonic()
    seq = later.schedule("single", PAST, Nats_Schedule_TTL=f"{LIFETIME_S}s")
    if (found := later.seen_in_time("single", seq)) is not None:
        later.shows(found, b"x", Nats_TTL=f"{LIFETIME_S}s")
        later.schedule("lasting", PAST)
        later.published("lasting")
        behind = time.monotonic() - began  # it would be gone so much later than the other
        later.await_gone("single.out")
    took = time.monotonic() - began
    session.require(
        took >= LIFETIME_S,
        "removed too early",
        expected=f"stored for {LIFETIME_S} s",
        actual=f"gone after {took:.3f} s",
    )
    if found is None:
        raise Inconclusive("what was published was removed before it was read, after its lifetime")
    session.pause(behind + POLL_S)
    later.await_messages("lasting.out", 1, 0.0)


@verifies("JS-PUB-065", source='ADR-51, "Intervals"', is_long=True)
def test_interval(session: NatsSession) -> None:
    """@every publishes again and again, an interval apart, and says when; the schedule stays."""
    later = Scheduling(session)
    seq = later.schedule("often", "@every 1s", b"body", Colour="blue")
    begun = later.load(seq=seq).at
    found = later.published("often", 3, within=3 + LATE_S)
    for one in found:
        later.shows(one, b"body", Colour="blue", Nats_Scheduler=later.subject("often"))
    session.require(
        found[0].at >= begun + SECOND // 2,  # servers count from the nearest whole second
        "the first one came too early",
        expected=f"an interval of 1 s from {format_time(begun)} on, by whole seconds",
        actual=str(found[0]),
    )
    later.came_apart(found, SECOND)
    later.load(seq=seq)


@verifies("JS-PUB-066", source='ADR-51, "6 field crontab format"', is_long=True)
def test_crontab(session: NatsSession) -> None:
    """A crontab publishes when every field matches in UTC, of two restricted days either; and not else."""
    later = Scheduling(session)
    clock = time.gmtime(later.now() // SECOND)
    # Each list has what is now and what comes next, should an hour, a day or a month just end.
    soon = time.gmtime(later.now() // SECOND + 3600)
    hours = ",".join(str(each.tm_hour) for each in (clock, soon))
    days = ",".join(str(each.tm_mday) for each in (clock, soon))
    months = ",".join(MONTH_NAMES[each.tm_mon - 1] for each in (clock, soon))
    other_weekday = (soon.tm_wday + 1 + 2) % 7  # tm_wday begins on Monday, a crontab on Sunday
    later.schedule("hours", f"* * {(soon.tm_hour + 2) % HOURS} * * *")
    later.schedule("months", f"* * * * {soon.tm_mon % MONTHS + 1} *")
    later.schedule("weekdays", f"* * * * * {other_weekday}")
    later.schedule("matching", f"*/2 0-59 {hours} {days} {months} {other_weekday}", b"body")
    found = later.published("matching", 3, within=6 + LATE_S)
    later.shows(found[0], b"body", Nats_Scheduler=later.subject("matching"))
    session.require(
        all(later.next_of(one) % (2 * SECOND) == 0 for one in found),
        "published at other seconds",
        expected="Nats-Schedule-Next at even seconds of the clock",
        actual="\n".join(map(str, found)),
    )
    later.came_apart(found, 2 * SECOND)
    for name in ("hours", "months", "weekdays"):
        later.nothing_on(f"{name}.out", f"published although the {name} do not match")
    later.await_messages("matching", 1, 0.0)


@verifies("JS-PUB-066", source='ADR-51, "6 field crontab format"', is_long=True)
def test_the_next_time_of_a_crontab(session: NatsSession) -> None:
    """What a crontab publishes says when the next one comes, which may be years away."""
    later = Scheduling(session)
    first = datetime.fromtimestamp(later.now() // SECOND + SOON_S, UTC)
    for name, (pattern, _) in _crontabs(first).items():
        later.schedule(name, pattern)
    if later.now() >= first.timestamp() * SECOND:
        raise Inconclusive("the time of the schedules came before they were all published")
    for name, (pattern, expected) in _crontabs(first).items():
        published = later.published(name, within=SOON_S + LATE_S)[0]
        moment = int(expected.timestamp()) * SECOND
        session.require(
            later.next_of(published) == moment,
            f"the next time of the crontab {pattern} is another",
            expected=f"Nats-Schedule-Next: {format_time(moment)}",
            actual=str(published),
        )


def _crontabs(first: datetime) -> dict[str, tuple[str, datetime]]:
    """Crontabs that are due at ``first``, and when each is due next."""
    clock = f"{first.second} {first.minute}"
    weekday, month = _weekday(first), MONTH_NAMES[first.month - 1]
    third = first + timedelta(days=3)
    hour = first + timedelta(hours=5)
    minute = first + timedelta(minutes=11)
    return {
        "daily": (f"{clock} {first.hour} * * *", first + timedelta(days=1)),
        "weekly": (f"{clock} {first.hour} * * {weekday}", first + timedelta(days=7)),
        "weekdays": (f"{clock} {first.hour} * * {weekday},{_weekday(third)}", third),
        "hours": (f"{clock} {first.hour},{hour.hour} * * *", hour),
        "minutes": (f"{first.second} {first.minute},{minute.minute} * * * *", minute),
        "monthly": (
            f"{clock} {first.hour} {first.day} * *",
            _next_day(first, lambda day: day.day == first.day),
        ),
        "yearly": (
            f"{clock} {first.hour} {first.day} {month} *",
            _next_day(first, lambda day: (day.day, day.month) == (first.day, first.month)),
        ),
        "either": (
            f"{clock} {first.hour} {first.day} * {_weekday(third)}",
            _next_day(first, lambda day: first.day == day.day or day.weekday() == third.weekday()),
        ),
        "both": (
            f"{clock} {first.hour} * {month} {weekday}",
            _next_day(first, lambda day: (day.month, day.weekday()) == (first.month, first.weekday())),
        ),
    }


def _weekday(day: datetime) -> str:
    return WEEKDAY_NAMES[day.weekday()]


def _next_day(first: datetime, is_it: Callable[[datetime], bool]) -> datetime:
    """The first day after this one, at the same time of the day; a leap day comes within eight years."""
    return next(day for days in count(1) if is_it(day := first + timedelta(days=days)))


@verifies("JS-PUB-067", source='ADR-51, "Headers"', is_long=True)
def test_time_zone(session: NatsSession) -> None:
    """A crontab with Nats-Schedule-Time-Zone goes by the clocks there, and without it by UTC."""
    later = Scheduling(session)
    now = later.now() // SECOND
    there = time.gmtime(now + ZONE_AHEAD)
    soon = time.gmtime(now + ZONE_AHEAD + 3600)
    pattern = f"* * {there.tm_hour},{soon.tm_hour} * * *"
    later.schedule("utc", pattern)
    later.schedule("zone", pattern, Nats_Schedule_Time_Zone=ZONE)
    found = later.published("zone", 2, within=3 + LATE_S)
    later.came_when_due(found[1], later.next_of(found[0]))
    later.nothing_on("utc.out", "published by the clocks of another zone than UTC")


@verifies("JS-PUB-068", source='ADR-51, "Subject Sampling"', is_long=True)
def test_last_message_of_the_source(session: NatsSession) -> None:
    """Nats-Schedule-Source: its last message is published each time; its own if there is none."""
    later = Scheduling(session)
    source = later.subject("sensor")
    later.publish("sensor", b"first", Colour="red")
    later.publish("sensor", b"second", Colour="blue")
    later.schedule("sampled", "@every 1s", b"own", Nats_Schedule_Source=source)
    later.schedule("empty", "@every 1s", b"own", Colour="green", Nats_Schedule_Source=later.subject("none"))
    first = later.published("sampled", within=1 + LATE_S)[0]
    later.shows(first, b"second", Colour="blue", Nats_Scheduler=later.subject("sampled"))
    changed = later.load(seq=later.publish("sensor", b"third", Colour="black"))
    found = [first]
    # What was due before may be published after it, with the message that was the last one when it was due.
    while not (due_since := [then for one, then in pairwise(found) if later.next_of(one) > changed.at]):
        found = later.published("sampled", len(found) + 1, within=2 + LATE_S)
    later.shows(due_since[0], b"third", Colour="black", Nats_Scheduler=later.subject("sampled"))
    fallback = later.published("empty", within=LATE_S)[0]
    later.shows(fallback, b"own", Colour="green", Nats_Scheduler=later.subject("empty"))
    later.await_messages("sensor", 3, 0.0)


@verifies("JS-PUB-069", source='ADR-51, "Single scheduled message"', is_long=True)
def test_new_schedule_takes_the_place_of_another(session: NatsSession) -> None:
    """Of two schedules on one subject the second is stored and published, and the first is neither."""
    later = Scheduling(session)
    due = later.now() + DELAY
    first = later.schedule("single", f"@at {format_time(due)}", b"first")
    second = later.schedule("single", f"@at {format_time(due + SECOND)}", b"second")
    stored = later.messages("single")
    is_alone = [one.seq for one in stored] == [second]
    if not (is_alone and stored[0].at < due) and later.now() >= due:
        raise Inconclusive(f"the second was not stored within {DELAY / SECOND:g} s, when the first is due")
    session.require(
        is_alone,
        "two schedules on one subject",
        expected=f"sequence {second} alone",
        actual="\n".join(map(str, stored)),
    )
    found = later.published("single", within=DELAY / SECOND + 1 + LATE_S)
    later.shows(found[0], b"second")
    session.require(later.find(seq=first) is None, "the first is back", expected="none", actual="stored")


@verifies("JS-PUB-070", source='ADR-51, "Ending/stopping schedules early"', is_long=True)
def test_schedules_are_stopped(session: NatsSession) -> None:
    """A schedule that was deleted, purged or ended by another message publishes no more."""
    later = Scheduling(session)
    moment = later.now() + DELAY
    due = f"@at {format_time(moment)}"
    deleted = later.schedule("deleted", due)
    later.schedule("purged", due)
    later.schedule("wild.a", due)
    later.schedule("wild.b", due)
    later.schedule("ended", due)
    try:
        session.stage.api("STREAM.MSG.DELETE", later.stream, body={"seq": deleted})
        for name in ("purged", "wild.*"):
            session.stage.api("STREAM.PURGE", later.stream, body={"filter": later.subject(name)})
        later.publish("cancelled", b"why", Nats_Scheduler=later.subject("ended"), Nats_Schedule_Next="purge")
    except Untestable:  # a schedule that was due is gone
        if later.now() < moment:
            raise
    if later.now() >= moment:
        raise Inconclusive(f"the schedules were not stopped within {DELAY / SECOND:g} s, when they are due")
    later.await_gone("ended")
    later.shows(later.await_messages("cancelled", 1, 0.0)[0], b"why")
    later.schedule("witness", f"@at {format_time(later.now() + DELAY)}")
    later.published("witness", within=DELAY / SECOND + LATE_S)
    for name in ("deleted", "purged", "wild.a", "wild.b", "ended"):
        later.nothing_on(f"{name}.out", "a schedule that was stopped has published")


@verifies("JS-PUB-072", source='ADR-51, "Headers"')
def test_rollup_of_what_is_published(session: NatsSession) -> None:
    """Nats-Schedule-Rollup: each published message takes the place of what was on its subject."""
    later = Scheduling(session)
    later.publish("often.out", b"old")
    later.publish("kept", b"old")
    later.schedule("often", "@every 1s", b"new", Nats_Schedule_Rollup="sub")
    deadline = time.monotonic() + 2 + LATE_S + session.target.slack_s
    while not (found := later.messages("often.out")) or found[-1].payload == b"old":
        session.require(
            time.monotonic() < deadline, "not published", expected="a new message", actual=str(found)
        )
        session.pause(POLL_S)
    # A list takes several requests, and the message may have come between them: look again what is below it.
    stay = [message for message in later.messages("often.out") if message.seq < found[-1].seq]
    session.require(
        not stay,
        "not rolled up",
        expected=f"nothing below sequence {found[-1].seq}",
        actual="\n".join(map(str, stay)),
    )
    later.shows(found[-1], b"new", Nats_Rollup="sub")
    later.await_messages("kept", 1, 0.0)
