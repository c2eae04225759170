"""Polls the state of an object on the target until it matches, or until the time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from plumbline.conformance.outcomes import CheckEnded
from plumbline.conformance.sessions.session import BaseSession

POLL_INTERVAL_S = 0.01


def poll_state(
    session: BaseSession,
    read_state: Callable[[], dict[str, Any]],
    fields: Mapping[str, Any],
    within: float,
    outcome: type[CheckEnded],
    shows: Callable[[dict[str, Any], str], Any] = dict.get,
    *,
    after: float = 0.0,
    stays: float = 0.0,
) -> dict[str, Any]:
    """What ``read_state`` gives, once it ``shows`` these fields. Raises ``outcome`` if it never does, if it
    does so less than ``after`` seconds after what was sent last, or if it does not stay so for ``stays``
    seconds.

    A field that is expected to be False may be left out. Of many looks the journal keeps the last one: that
    is what a reader wants.
    """
    journal = session.journal
    before = journal.position
    moment = session.moment
    deadline = (moment if after else time.monotonic()) + within + session.target.slack_s
    until = 0.0  # so long it must stay as it is; 0: it is not so yet
    while True:
        state = read_state()
        now = time.monotonic()
        found = {name: _flag(shows(state, name), value) for name, value in fields.items()}
        if found == fields:
            until = until or now + stays
            if now - moment < after:
                raise outcome(
                    f"so already {now - moment:.3f} s after the last line sent, too early",
                    expected=f"{_pairs(fields)} not before {after:g} s",
                    actual=f"{_pairs(found)} after {now - moment:.3f} s",
                )
            if now >= until:
                break
        elif until or now > deadline:
            break
        journal.forget_since(before)
        session.pause(POLL_INTERVAL_S)
    session.moment = moment
    if found != fields:
        wrong = [name for name in fields if found[name] != fields[name]]
        raise outcome(
            "; ".join(f"{name}: expected {fields[name]}, found {found[name]}" for name in wrong),
            expected=_pairs(fields) + (f" for {stays:g} s" if until else f" within {within:g} s"),
            actual=_pairs(found),
        )
    return state


def _flag(found: Any, expected: Any) -> Any:
    """JSON of Go leaves out what is false, other JSON does not: both have one meaning."""
    return False if expected is False and found is None else found


def _pairs(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items())
