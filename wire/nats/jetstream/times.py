"""Times as the API writes them: RFC 3339 with nanoseconds. Inside they are nanoseconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from plumbline.wire.units import SECOND

NEVER = "0001-01-01T00:00:00Z"  # how an unset time is written

_FIRST, _LAST = -62_135_596_800 * SECOND, 253_402_300_800 * SECOND - 1  # of the years 1 to 9999

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")


def format_time(nanoseconds: int) -> str:
    """Nanoseconds since the epoch -> ``2026-11-21T07:13:01.339383427Z``; from the first year to the last."""
    seconds, fraction = divmod(min(max(nanoseconds, _FIRST), _LAST), SECOND)
    text = datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
    return text + (f".{fraction:09d}".rstrip("0") if fraction else "") + "Z"


def parse_time(text: str) -> int | None:
    """RFC 3339 -> nanoseconds since the epoch; None if it is not a time."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    except ValueError:
        return None
    whole = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    return whole * SECOND + int((fraction or "0")[:9].ljust(9, "0"))
