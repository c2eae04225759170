"""A program is cut down to what makes the difference."""

from __future__ import annotations

import pytest

from plumbline.conformance.explore.commands import Command, CreateConsumer, CreateStream, Publish, Pull, Wait
from plumbline.conformance.explore.programs import Program
from plumbline.conformance.explore.shrink import BudgetExhaustedError, plainer_than, shrink

LONG: Program = (
    CreateStream("ORDERS", {"max_msgs": 2, "discard": "new"}),
    CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit", "max_deliver": 2}),
    *(Publish("EVENTS", "b", (("A", "1"), ("Nats-Msg-Id", "1"))) for _ in range(9)),
    Wait(0.3),
    Pull("ORDERS", "AUDIT", {"batch": 4, "no_wait": True}, "b"),
    Publish("ORDERS", "b"),
)


def pulls(program: Program) -> bool:
    return any(isinstance(command, Pull) and command.body.get("no_wait") for command in program)


def test_shrinking_keeps_only_needed_commands() -> None:
    assert shrink(LONG, pulls) == (Pull("ORDERS", "DISPATCH", {"no_wait": True}, "a"),)


def test_shrinking_keeps_dependent_commands_together() -> None:
    def differs(program: Program) -> bool:
        return sum(isinstance(command, Publish) for command in program) >= 2 and pulls(program)

    shrunk = shrink(LONG, differs)
    assert len(shrunk) == 3
    assert all(command.headers == () for command in shrunk if isinstance(command, Publish))


def test_the_search_ends_with_what_there_is_when_time_is_up() -> None:
    asked = 0

    def differs(program: Program) -> bool:
        nonlocal asked
        asked += 1
        if asked > 3:
            raise BudgetExhaustedError
        return pulls(program)

    assert len(shrink(LONG, differs)) < len(LONG)


@pytest.mark.parametrize("command", LONG)
def test_a_plainer_command_is_never_the_same(command: Command) -> None:
    assert command not in list(plainer_than(command))
