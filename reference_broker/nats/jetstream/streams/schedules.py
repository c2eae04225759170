"""What may ask to be published later, when, and what is published then: ``Nats-Schedule`` and the headers
that go with it. Pure: ``scheduler`` carries it out.

Source: ADR-51, "JetStream Message Scheduler"; order and texts of the refusals as servers answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

from msgspec import Struct

from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.crontab import Crontab
from plumbline.reference_broker.nats.jetstream.streams.lifetimes import read_ttl
from plumbline.reference_broker.nats.jetstream.streams.publish import (
    MSG_ID,
    ROLLUP,
    SCHEDULE_NEXT,
    SCHEDULER,
    TTL,
    PublishHeaders,
    Schedule,
)
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.nats.headers import Headers, encode_headers
from plumbline.wire.nats.jetstream.times import format_time, parse_time
from plumbline.wire.nats.subjects import collide, is_valid_literal
from plumbline.wire.units import SECOND, parse_duration

PURGE = "purge"  # Nats-Schedule-Next of what is the last of its schedule
NOT_PASSED_ON = ("Nats-Schedule", "Nats-Expected-")  # prefixes
REPLACED = (MSG_ID, TTL, ROLLUP)


class Occurrence(Struct, frozen=True):
    """When a schedule is due, in nanoseconds since the epoch, and whether there are later ones."""

    due: int
    repeats: bool


def next_occurrence(schedule: Schedule, after: int, now: int) -> Occurrence | None:
    """The first one after ``after``; of those that were missed, only the next is made up for. None for no
    pattern (ADR-51, "Schedule Format"); an interval is a second at least."""
    kind, _, rest = schedule.pattern.partition(" ")
    zone = UTC if schedule.zone is None else find_zone(schedule.zone)
    if zone is None:
        return None
    if kind in ("@at", "@every"):
        if schedule.zone is not None:
            return None
        if kind == "@at":
            moment = parse_time(rest)
            return None if moment is None else Occurrence(moment, repeats=False)
        interval = parse_duration(rest)
        if interval is None or interval < SECOND:
            return None
        due = _to_second(after) + interval
        return Occurrence(due if due >= now else _to_second(now) + interval, repeats=True)
    crontab = Crontab.read(schedule.pattern)
    moment = crontab.next(after, zone) if crontab else None
    if crontab and moment is not None and moment < now:
        moment = crontab.next(_to_second(now), zone)
    return None if moment is None else Occurrence(moment, repeats=True)


def _to_second(moment: int) -> int:
    """The nearest whole second."""
    return (moment + SECOND // 2) // SECOND * SECOND


def find_zone(name: str) -> tzinfo | None:
    """By its name in the time zone database of the host; ``Local`` is UTC here."""
    if name in ("UTC", "Local"):
        return UTC
    from zoneinfo import ZoneInfo  # few need it, and it takes a while

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def check_schedule(
    schedule: Schedule, subject: bytes, rollup: str, config: StreamConfig, now: int, *, repeats: bool
) -> None:
    """Of a message on ``subject``, for a stream of this configuration; ``repeats``: there is more than
    ``@at``. Raises ``JetStreamError``."""
    zone = schedule.zone if repeats else None
    if not schedule.pattern and zone is None:
        return
    if not config.allow_msg_schedules:
        raise errors.SCHEDULES_DISABLED()
    if zone is not None and find_zone(zone) is None:
        raise errors.SCHEDULE_TIME_ZONE_INVALID()
    if not schedule.pattern:
        return
    occurrence = next_occurrence(schedule, now, now)
    if occurrence is None or (occurrence.repeats and not repeats):
        raise errors.SCHEDULE_PATTERN_INVALID()
    if schedule.ttl and read_ttl(schedule.ttl) is None:
        raise errors.SCHEDULE_TTL_INVALID()
    if schedule.rollup not in ("", "sub"):
        raise errors.SCHEDULE_ROLLUP_INVALID()
    if schedule.ttl and not config.allow_msg_ttl:
        raise errors.MESSAGE_TTL_DISABLED()
    patterns = config.patterns
    target, source = as_subject(schedule.target), as_subject(schedule.source)
    if target == subject or not _is_in_stream(target, patterns):
        raise errors.SCHEDULE_TARGET_INVALID()
    if source and (source in (target, subject) or not _is_in_stream(source, patterns)):
        raise errors.SCHEDULE_SOURCE_INVALID()
    if rollup not in ("", "sub"):
        raise errors.SCHEDULE_ROLLUP_INVALID()


def check_stop(
    directives: PublishHeaders, subject: bytes, last: StoredMessage | None, *, allowed: bool
) -> None:
    """A client ends a schedule early with a message on another subject (ADR-51, "Ending/stopping schedules
    early"). ``last`` is on the subject of ``Nats-Scheduler``. Raises ``JetStreamError``."""
    if not directives.schedule_next and not directives.scheduler:
        return
    scheduler = as_subject(directives.scheduler)
    if directives.schedule_next != PURGE or scheduler == subject or not is_valid_literal(scheduler):
        raise errors.SCHEDULER_INVALID()
    if not allowed:
        raise errors.SCHEDULES_DISABLED()
    if last is not None and b"\r\nNats-Schedule:" not in last.header_block:
        raise errors.SCHEDULER_INVALID()


def as_subject(text: str) -> bytes:
    """The bytes of a header's value."""
    return text.encode("utf-8", "surrogateescape")


def _is_in_stream(subject: bytes, patterns: Sequence[bytes]) -> bool:
    return is_valid_literal(subject) and any(collide(pattern, subject) for pattern in patterns)


def format_next(schedule: Schedule, due: int) -> str:
    """A time of day as it is in the schedule's zone; observed, nats-server 2.15.2."""
    zone = find_zone(schedule.zone) if schedule.zone else None
    if zone is None or zone is UTC:
        return format_time(due)
    clock = datetime.fromtimestamp(due // SECOND, zone)
    return clock.isoformat() if clock.utcoffset() else format_time(due)


def published_headers(message: StoredMessage, holder: bytes, schedule: Schedule, after: int | None) -> bytes:
    """The headers of what a schedule publishes: ``message`` is on ``holder``, or on its source; ``after`` is
    when the schedule is due again, None if it is not."""
    kept = Headers.parse(message.header_block).fields if message.header_block else ()
    fields = [
        (name, value) for name, value in kept if not name.startswith(NOT_PASSED_ON) and name not in REPLACED
    ]
    fields.append((SCHEDULER, holder.decode("utf-8", "surrogateescape")))
    fields.append((SCHEDULE_NEXT, PURGE if after is None else format_next(schedule, after)))
    fields += [(name, value) for name, value in ((TTL, schedule.ttl), (ROLLUP, schedule.rollup)) if value]
    return encode_headers(fields)
