"""When something is to come: ``within 1s``, ``after 200ms``, ``between 380ms and 900ms``, ``nothing for 1s``.

The state of an object also has ``for 250ms``: it stays so. Pure; raises ``TraceLineError``.
"""

from __future__ import annotations

import re

from plumbline.conformance.limits import DEFAULT_WITHIN_S
from plumbline.conformance.trace.language import StateWindow, TimeWindow
from plumbline.conformance.trace.text import Text, TraceLineError
from plumbline.wire.units import SECOND, read_duration

_WINDOW = re.compile(
    r"(?:^|[ \t])(?:(?P<word>within|after)[ \t]+(?P<limit>[0-9]\S*)"
    r"|between[ \t]+(?P<from>[0-9]\S*)[ \t]+and[ \t]+(?P<to>[0-9]\S*))$"
)

_STAYS = re.compile(r"[ \t]for[ \t]+(?P<limit>[0-9]\S*)$")


def take_window(text: Text) -> tuple[TimeWindow | None, Text]:
    """The time window at the end of an expectation, and what stands before it."""
    found = _WINDOW.search(text.value)
    if found is None:
        return None, text
    rest = text.cut(0, found.start()).strip()
    if found["word"] is None:
        first, last = (_seconds(text.cut(*found.span(group))) for group in ("from", "to"))
        if last <= first:
            raise TraceLineError.at(text, "a window that ends after it begins", offset=found.start())
        return TimeWindow(first, last, since_send=True), rest
    limit = _seconds(text.cut(*found.span("limit")))
    if found["word"] == "after":
        return TimeWindow(limit, limit + DEFAULT_WITHIN_S, since_send=True), rest
    return TimeWindow(0.0, limit, since_send=True), rest


def take_state_window(text: Text) -> tuple[StateWindow, Text]:
    """The time window at the end of ``expect consumer ...``, which ``for 250ms`` may follow."""
    found, stays = _STAYS.search(text.value), 0.0
    if found is not None:
        stays = _seconds(text.cut(*found.span("limit")))
        text = text.cut(0, found.start()).strip()
    window, rest = take_window(text)
    when = window or TimeWindow()
    return StateWindow(when.within, when.after, stays), rest


def read_silence(text: Text) -> float:
    """The seconds of ``nothing for 200ms``."""
    words = text.words()
    if len(words) != 3 or words[1].value != "for":
        raise TraceLineError.at(text, '"nothing for 200ms"')
    return _seconds(words[2])


def _seconds(text: Text) -> float:
    duration = read_duration(text.value)
    if duration is None:
        raise TraceLineError.at(text, "a duration such as 200ms or 1s")
    return duration / SECOND
