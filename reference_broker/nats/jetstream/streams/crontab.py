"""When a crontab of six fields is due: seconds, minutes, hours, days of the month, months, days of the week.

Pure: it gets a moment and returns the next one. Moments are nanoseconds since the epoch.
Source: ADR-51, "6 field crontab format"; ``?``, ``N/step`` and the five years as servers take them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from msgspec import Struct

from plumbline.wire.units import SECOND, read_number

PREDEFINED = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LONGEST_WAIT = 5  # years; a crontab without a moment until then is none
ANY = ("*", "?")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Values(Struct, frozen=True):
    """What one field matches. ``is_any``: it is not restricted."""

    numbers: frozenset[int]
    is_any: bool


class CronField(Struct, frozen=True):
    """One of the six: the values from ``first`` to ``last``, or their names."""

    first: int
    last: int
    names: tuple[str, ...] = ()

    def read(self, text: str) -> Values | None:
        """A list of ranges: ``*``, ``5``, ``1-4``, ``mon``, each with ``/step``; None for another text."""
        numbers: set[int] = set()
        is_any = False
        for part in filter(None, text.split(",")):
            span, slash, step = part.partition("/")
            width = read_number(step) if slash else 1
            ends = self._ends(span, is_open=bool(slash))
            if not width or ends is None:
                return None
            numbers.update(range(ends[0], ends[1] + 1, width))
            is_any = is_any or (span in ANY and width == 1)
        return Values(frozenset(numbers), is_any)

    def _ends(self, span: str, *, is_open: bool) -> tuple[int, int] | None:
        """First and last value; with a step, one number begins a range to the last."""
        if span in ANY:
            return self.first, self.last
        first, dash, last = span.partition("-")
        begin = self._value(first)
        end = self._value(last) if dash else self.last if is_open else begin
        if begin is None or end is None or not self.first <= begin <= end <= self.last:
            return None
        return begin, end

    def _value(self, text: str) -> int | None:
        if text.lower() in self.names:
            return self.first + self.names.index(text.lower())
        return read_number(text)


FIELDS = (
    CronField(0, 59), CronField(0, 59), CronField(0, 23), CronField(1, 31), CronField(1, 12, MONTHS),
    CronField(0, 6, DAYS),
)  # fmt: skip


class Crontab(Struct, frozen=True):
    """A crontab that was read."""

    seconds: Values
    minutes: Values
    hours: Values
    days: Values
    months: Values
    weekdays: Values

    @classmethod
    def read(cls, text: str) -> Crontab | None:
        """Six fields, or a predefined name; None for another text."""
        fields = PREDEFINED.get(text, text).split()
        if len(fields) != len(FIELDS):
            return None
        read = [field.read(value) for field, value in zip(FIELDS, fields, strict=True)]
        known = [values for values in read if values is not None]
        return cls(*known) if len(known) == len(FIELDS) else None

    def next(self, after: int, zone: tzinfo) -> int | None:
        """The first moment after ``after``, by the clocks of ``zone``; None if there is none for years."""
        try:
            return self._next(EPOCH + timedelta(seconds=after // SECOND + 1), zone)
        except (OverflowError, ValueError):  # after the last year that there is
            return None

    def _next(self, moment: datetime, zone: tzinfo) -> int | None:
        clock = moment.astimezone(zone)
        last_year = clock.year + LONGEST_WAIT
        while clock.year <= last_year:
            if clock.month not in self.months.numbers:
                year, month = divmod(clock.year * 12 + clock.month, 12)
                moment = datetime(year, month + 1, 1, tzinfo=zone).astimezone(UTC)
            elif not self._is_day(clock):
                day = clock.replace(hour=0, minute=0, second=0, tzinfo=None) + timedelta(days=1)
                moment = day.replace(tzinfo=zone).astimezone(UTC)
            elif clock.hour not in self.hours.numbers:
                moment += timedelta(hours=1) - timedelta(minutes=clock.minute, seconds=clock.second)
            elif clock.minute not in self.minutes.numbers:
                moment += timedelta(minutes=1) - timedelta(seconds=clock.second)
            elif clock.second not in self.seconds.numbers:
                moment += timedelta(seconds=1)
            else:
                return int((moment - EPOCH).total_seconds()) * SECOND
            clock = moment.astimezone(zone)
        return None

    def _is_day(self, clock: datetime) -> bool:
        """If days of the month and of the week are both restricted, either is enough."""
        by_date = clock.day in self.days.numbers
        by_weekday = clock.isoweekday() % 7 in self.weekdays.numbers
        if self.days.is_any or self.weekdays.is_any:
            return by_date and by_weekday
        return by_date or by_weekday
