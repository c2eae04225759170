"""Faults of released servers are told as such, and only where they are."""

from __future__ import annotations

import pytest

from plumbline.conformance.explore.commands import CreateConsumer, CreateStream, Publish, Purge, Restart
from plumbline.conformance.explore.known import Fault, known_faults
from plumbline.conformance.explore.programs import Program
from plumbline.conformance.explore.trial import Difference

PROGRAM: Program = (
    CreateStream("ORDERS"),
    CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit"}),
    Publish("ORDERS", "b"),
    Purge("ORDERS", {}, "a"),
)


def difference(message: str = "num_pending: expected 1, found 0") -> Difference:
    return Difference(0, "expect consumer", PROGRAM[-1], message, "", "")


def explaining(shown: Difference, program: Program, level: tuple[int, ...]) -> list[Fault]:
    return [fault for fault in known_faults() if fault.explains(shown, program, level)]


def test_a_fault_explains_what_it_shows_on_the_servers_that_have_it() -> None:
    (fault,) = explaining(difference(), PROGRAM, (2, 9, 10))
    assert "moves consumers" in fault.reason


@pytest.mark.parametrize(
    ("shown", "program", "level"),
    [
        (difference(), PROGRAM, (2, 9, 12)),
        (difference("the target closed the connection"), PROGRAM, (2, 9, 10)),
        (difference(), (*PROGRAM[:-1], Purge("ORDERS")), (2, 9, 10)),
    ],
    ids=["a later server", "something else", "another program"],
)
def test_a_fault_explains_nothing_else(shown: Difference, program: Program, level: tuple[int, ...]) -> None:
    assert explaining(shown, program, level) == []


def test_what_happens_sometimes_explains_nothing_that_happens_always() -> None:
    program: Program = (CreateStream("ORDERS", {"storage": "file"}), Restart())
    lost = Difference(
        0, "expect consumer", Restart(), "delivered: expected 2/2, found 0/0", "", "", restarted=True
    )
    level = (2, 10, 29)
    (fault,) = [one for one in known_faults() if one.explains(lost, program, level, steady=False)]
    assert fault.sometimes
    assert explaining(lost, program, level) == []


def test_every_fault_has_a_reason_and_words_to_know_it_by() -> None:
    faults = known_faults()
    assert faults
    assert all(fault.reason and fault.shows and fault.given for fault in faults)
