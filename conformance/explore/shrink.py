"""Makes a program shorter and simpler while it still shows the difference.

Commands mean something in any company, so they are left out in runs, longest first, then one by one; then
what they say is left out, piece by piece. Every change that keeps the difference is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from plumbline.conformance.explore.commands import CONSUMERS, STREAMS, TOKENS, Command
from plumbline.conformance.explore.programs import Program

DiffersTest = Callable[[Program], bool]


class BudgetExhaustedError(Exception):
    """Time is up."""


# What is plainest for a field, where leaving a piece out is not possible.
_SIMPLEST: dict[str, Any] = {
    "stream": STREAMS[0],
    "consumer": CONSUMERS[0],
    "token": TOKENS[0],
    "inbox": "a",
    "ago": 0,
    "update": False,
}


def shrink(program: Program, still_differs: DiffersTest) -> Program:
    """The smallest program that could be found; ``still_differs`` raises ``BudgetExhaustedError`` to end the
    search there."""
    best = program

    def keep(candidate: Program) -> bool:
        nonlocal best
        if not still_differs(candidate):
            return False
        best = candidate
        return True

    with suppress(BudgetExhaustedError):
        _until_nothing_changes(lambda: best, keep)
    return best


def _until_nothing_changes(best: Callable[[], Program], keep: DiffersTest) -> None:
    before: Program = ()
    while before != best():
        before = best()
        run = len(before) // 2
        while run:
            _leave_out(best, keep, run)
            run //= 2
        _plainer_commands(best, keep)


def _leave_out(best: Callable[[], Program], keep: DiffersTest, run: int) -> None:
    """Runs of so many commands, the last first: what comes after the difference goes at once."""
    start = len(best()) - run
    while start >= 0:
        program = best()
        keep(program[:start] + program[start + run :])
        start = min(start - run, len(best()) - run)


def _plainer_commands(best: Callable[[], Program], keep: DiffersTest) -> None:
    for place in range(len(best()) - 1, -1, -1):
        changed = True
        while changed:
            program = best()
            changed = any(
                keep((*program[:place], plainer, *program[place + 1 :]))
                for plainer in plainer_than(program[place])
            )


def plainer_than(command: Command) -> Iterator[Command]:
    """The command with one thing less in it each."""
    replace = msgspec.structs.replace
    for name in command.__struct_fields__:
        value = getattr(command, name)
        if isinstance(value, dict):
            for key in value:
                yield replace(command, **{name: {one: of for one, of in value.items() if one != key}})
            if value.get("batch", 1) > 1:
                yield replace(command, **{name: {**value, "batch": value["batch"] - 1}})
        elif isinstance(value, tuple):
            for position in range(len(value)):
                yield replace(command, **{name: value[:position] + value[position + 1 :]})
        elif name == "token" and value is None:
            continue
        elif name in _SIMPLEST and value != _SIMPLEST[name]:
            yield replace(command, **{name: _SIMPLEST[name]})
