"""Durations and sizes as text.

``parse_duration`` and ``format_duration`` do what Go's time package does: ``500ms``, ``1.5s``, ``1h0m30s``.
Servers take them in ``-NAK 500ms`` and print them in status lines.
Source: pkg.go.dev/time, "ParseDuration" and "Duration.String".

``read_duration`` and ``read_size`` read what users write: in options, faults, traces and configuration files.
Sizes follow the configuration of nats-server: ``k``, ``m``, ``g`` and ``t`` are powers of 1000; with ``b``,
``i`` or ``ib`` behind them, powers of 1024. So ``10k`` is 10,000 bytes; ``10kb``, ``10Ki`` and ``10KiB`` are
10,240.
Source: docs.nats.io, "Configuration", "Strings and Numbers"; nats-server, conf/parse.go, "Process a suffix".

``read_number`` reads whole numbers that a peer writes: in headers, subjects and bodies.

Durations are integers, in nanoseconds; sizes are integers, in bytes.
"""

from __future__ import annotations

import re

MICROSECOND, MILLISECOND, SECOND = 10**3, 10**6, 10**9
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND

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
_DAYS = re.compile(r"([0-9]{1,5})(?:\.([0-9]{1,9}))?d")
_POWERS = " kmgt"
_SIZE = re.compile(rf"([0-9]{{1,18}})(?:\.([0-9]{{1,18}}))?\s*([{_POWERS[1:]}]?)(i?b?)", re.IGNORECASE)

# For the patterns of a grammar; what they find is for ``read_duration`` and ``read_size``.
DURATION_PATTERN = r"(?:(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h))+|[0-9]+(?:\.[0-9]+)?d)(?!\w)"
SIZE_PATTERN = r"[0-9]+(?:\.[0-9]+)?(?:[kKmMgGtT][iI]?)?[bB]?(?!\w)"
_MAX_LENGTH = 100  # characters; no duration that fits 64 bits needs them, and int() of more gets slow
_MAX = 2**63 - 1
_NUMBER_DIGITS = 19  # of 2**63 - 1


def read_number(text: str | bytes) -> int | None:
    """The number that 1 to 19 ASCII digits are; None for anything else.

    ``int`` takes digits of every script, and raises for more than 4,300 of them.
    """
    is_number = len(text) <= _NUMBER_DIGITS and text.isascii() and text.isdigit()
    return int(text) if is_number else None


def parse_duration(text: str) -> int | None:
    """Nanoseconds, perhaps negative; None if ``text`` is no duration or does not fit 64 bits."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0
    if not unsigned or len(unsigned) > _MAX_LENGTH:
        return None
    total = position = 0
    while position < len(unsigned):
        part = _PART.match(unsigned, position)
        if part is None:
            return None
        total += _exact(part[1] or "0", part[2], _UNITS[part[3]])
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


def read_duration(text: str) -> int | None:
    """Nanoseconds of what a user writes: as ``parse_duration``, but without a sign; or days, such as ``1d``.

    None if ``text`` is no duration.
    """
    if days := _DAYS.fullmatch(text):
        return _exact(days[1], days[2], DAY)
    return None if text[:1] in ("+", "-") else parse_duration(text)


def read_size(text: str) -> int | None:
    """Bytes of what a user writes: ``512``, ``10k`` (10,000), ``1.5 MiB``, ``64MB`` (both powers of 1024).

    Case does not matter. None if ``text`` is no size.
    """
    found = _SIZE.fullmatch(text)
    if found is None or (found[4].lower() == "i" and not found[3]):
        return None
    power = _POWERS.index(found[3].lower() or " ")
    return _exact(found[1], found[2], (1024 if found[4] else 1000) ** power)


def _exact(whole: str, fraction: str | None, unit: int) -> int:
    """``whole.fraction`` units, without the rounding of a float; what is below 1 is cut off."""
    return int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)


def _decimal(value: int, unit: int) -> str:
    """``value / unit`` exactly; ``unit`` is a power of ten."""
    whole, rest = divmod(value, unit)
    digits = f"{rest:0{len(str(unit)) - 1}}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)
