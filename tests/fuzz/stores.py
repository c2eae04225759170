"""Recovery: one file of a store is damaged in any way."""

from __future__ import annotations

from tests.durability.damage import amqp_store, check_amqp, check_nats, nats_store
from tests.fuzz.choices import Choices
from tests.fuzz.target import Target

NATS, AMQP = nats_store(), amqp_store()
PATHS = sorted(NATS.files)


def damaged(data: bytes, choices: Choices) -> bytes:
    """``data`` with some bytes changed, left out or added."""
    for _ in range(1 + choices.number(3)):
        at = choices.number(len(data) + 1)
        match choices.number(5):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + choices.data(8) + data[at + choices.number(9) :]
            case 2 if at:
                data = data[: at - 1] + bytes((data[at - 1] ^ 1 << choices.number(8),)) + data[at:]
            case 3:
                data += choices.data(40)
            case _:
                data = data[:at] + data[at : at + choices.number(80)] * 2 + data[at + choices.number(80) :]
    return data


def nats(data: bytes) -> None:
    """One file is damaged: nothing acknowledged is lost without a warning."""
    choices = Choices(data)
    path = choices.one_of(PATHS)
    check_nats(NATS, path, damaged(NATS.files[path], choices))


def amqp(data: bytes) -> None:
    """The same for a journal."""
    check_amqp(AMQP, damaged(AMQP.journal, Choices(data)))


def _seeds() -> list[bytes]:
    seeds = [
        bytes((place, 0, at, kind, 5, 1, 2, 3, 4, 5))
        for place in range(len(PATHS))
        for at in (3, 50, 120)
        for kind in range(5)
    ]
    return [*seeds, b"", bytes(range(60)), bytes(200)]


TARGETS = [
    Target("nats-store", nats, _seeds, (), 150),
    Target("amqp-store", amqp, _seeds, (), 250),
]
