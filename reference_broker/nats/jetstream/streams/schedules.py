"""What may ask to be published later: ``Nats-Schedule`` and the headers that go with it.

Schedules are stored and not carried out. Source: ADR-51, "JetStream Message Scheduler"; order and texts of
the refusals as servers answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.lifetimes import read_ttl
from plumbline.reference_broker.nats.jetstream.streams.publish import Schedule
from plumbline.wire.nats.jetstream.times import parse_time
from plumbline.wire.nats.subjects import collide, is_valid_literal
from plumbline.wire.units import SECOND, parse_duration, read_number

PREDEFINED = (
    "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly",
)  # fmt: skip
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class CronField(Struct, frozen=True):
    """One of the six: the values from ``first`` to ``last``, or their names."""

    first: int
    last: int
    names: tuple[str, ...] = ()

    def allows(self, text: str) -> bool:
        """A list of ranges: ``*``, ``5``, ``1-4``, ``mon``, each with ``/step``."""
        return all(self._allows_range(part) for part in text.split(","))

    def _allows_range(self, text: str) -> bool:
        span, slash, step = text.partition("/")
        if slash and not read_number(step):
            return False
        if span == "*":
            return True
        ends = [self._value(end) for end in span.split("-")]
        known = [end for end in ends if end is not None and self.first <= end <= self.last]
        return len(known) == len(ends) <= 2 and known == sorted(known)

    def _value(self, text: str) -> int | None:
        if text.lower() in self.names:
            return self.first + self.names.index(text.lower())
        return read_number(text)


CRON = (
    CronField(0, 59), CronField(0, 59), CronField(0, 23), CronField(1, 31), CronField(1, 12, MONTHS),
    CronField(0, 6, DAYS),
)  # fmt: skip


def is_pattern(text: str, *, repeats: bool) -> bool:
    """ADR-51, "Schedule Format"; an interval is a second at least. ``repeats``: there is
    more than ``@at``."""
    kind, _, rest = text.partition(" ")
    if kind == "@at":
        return parse_time(rest) is not None
    if not repeats:
        return False
    if kind == "@every":
        duration = parse_duration(rest)
        return duration is not None and duration >= SECOND
    if text in PREDEFINED:
        return True
    fields = text.split()
    return len(fields) == len(CRON) and all(
        field.allows(value) for field, value in zip(CRON, fields, strict=True)
    )


def check_schedule(
    schedule: Schedule, subject: bytes, rollup: str, config: StreamConfig, *, repeats: bool
) -> None:
    """Of a message on ``subject``, for a stream of this configuration. Raises ``JetStreamError``."""
    if not schedule.pattern:
        return
    if not config.allow_msg_schedules:
        raise errors.SCHEDULES_DISABLED()
    if not is_pattern(schedule.pattern, repeats=repeats):
        raise errors.SCHEDULE_PATTERN_INVALID()
    if schedule.ttl and read_ttl(schedule.ttl) is None:
        raise errors.SCHEDULE_TTL_INVALID()
    if schedule.rollup not in ("", "sub"):
        raise errors.SCHEDULE_ROLLUP_INVALID()
    if schedule.ttl and not config.allow_msg_ttl:
        raise errors.MESSAGE_TTL_DISABLED()
    patterns = config.patterns
    target, source = schedule.target.encode(), schedule.source.encode()
    if target == subject or not _is_in_stream(target, patterns):
        raise errors.SCHEDULE_TARGET_INVALID()
    if source and (source in (target, subject) or not _is_in_stream(source, patterns)):
        raise errors.SCHEDULE_SOURCE_INVALID()
    if rollup not in ("", "sub"):
        raise errors.SCHEDULE_ROLLUP_INVALID()


def _is_in_stream(subject: bytes, patterns: Sequence[bytes]) -> bool:
    return is_valid_literal(subject) and any(collide(pattern, subject) for pattern in patterns)
