"""Durations as text, the way Go's time package reads and writes them: ``500ms``, ``1.5s``, ``1h0m30s``.

Values are integers, in nanoseconds. Servers take them in ``-NAK 500ms`` and print them in status lines.
Source: pkg.go.dev/time, "ParseDuration" and "Duration.String".
"""

from __future__ import annotations

import re

MICROSECOND, MILLISECOND, SECOND = 10**3, 10**6, 10**9
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND

_UNITS = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,  # U+00B5, micro sign
    "μs": MICROSECOND,  # U+03BC, Greek mu
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_PART = re.compile(rf"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?({'|'.join(_UNITS)})")
_LONGEST = 100  # characters; no duration that fits 64 bits needs them, and int() of more gets slow
_MAX = 2**63 - 1


def parse_duration(text: str) -> int | None:
    """Nanoseconds, perhaps negative; None if ``text`` is no duration or does not fit 64 bits."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0
    if not unsigned or len(unsigned) > _LONGEST:
        return None
    total = position = 0
    while position < len(unsigned):
        part = _PART.match(unsigned, position)
        if part is None:
            return None
        whole, fraction, unit = part[1] or "0", part[2] or "", _UNITS[part[3]]
        total += int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        position = part.end()
    signed = -total if text[0] == "-" else total
    return signed if -_MAX - 1 <= signed <= _MAX else None


def format_duration(nanoseconds: int) -> str:
    """``1h0m1.5s``, from the largest unit that is not 0; below a second ``ms``, ``µs`` or ``ns`` alone."""
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if left == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", MICROSECOND), ("ms", MILLISECOND)):
        if left < size * 1000:
            return f"{sign}{_decimal(left, size)}{unit}"
    hours, left = divmod(left, HOUR)
    minutes, left = divmod(left, MINUTE)
    leading = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{leading}{_decimal(left, SECOND)}s"


def _decimal(value: int, unit: int) -> str:
    """``value / unit`` exactly; ``unit`` is a power of ten."""
    whole, rest = divmod(value, unit)
    digits = f"{rest:0{len(str(unit)) - 1}}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)
