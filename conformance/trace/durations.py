"""Durations as traces write them: ``30s``, ``1.5s``, ``500ms``, ``200us``, ``2m``."""

from __future__ import annotations

import re
from fractions import Fraction

from plumbline.conformance.trace.text import Problem, Text

_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000, "h": 3_600_000_000_000}
_DURATION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(ns|us|ms|s|m|h)")


def nanoseconds(value: str) -> int | None:
    """The duration in nanoseconds; None if it is not one."""
    found = _DURATION.fullmatch(value)
    if found is None:
        return None
    decimals = found[2] or ""
    return int(Fraction(int(found[1] + decimals), 10 ** len(decimals)) * _NS[found[3]])


def read_seconds(text: Text) -> float:
    """The duration in seconds. Raises ``Problem``."""
    value = nanoseconds(text.value)
    if value is None:
        raise Problem.at(text, "a duration such as 200ms or 1s")
    return value / 1e9
