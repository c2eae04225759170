"""Deliberate faults of the small client library: each breaks one requirement, and as little else as it can.

A defect is a function that replaces one method or one value of an adapter, its client or its JetStream.
``tests.mutation`` proves that the gate turns red for each, at the requirement it names.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from tests.mutation.clients.nats_adapter import Adapter
from tests.mutation.clients.nats_client import Client
from tests.mutation.clients.nats_jetstream import JetStream


class Defect(Struct, frozen=True):
    """One fault: its name, the requirement it breaks, what is wrong, in a sentence."""

    name: str
    breaks: str
    summary: str
    alter: Callable[[Adapter], None]


DEFECTS: dict[str, Defect] = {}


def _add(one: Defect) -> None:
    if one.name in DEFECTS:
        raise ValueError(f"two defects are called {one.name}")
    DEFECTS[one.name] = one


def defect(name: str, *, breaks: str, summary: str) -> Callable[[Callable[[Adapter], None]], None]:
    """Register the decorated function, which alters an adapter."""

    def register(alter: Callable[[Adapter], None]) -> None:
        _add(Defect(name, breaks, summary, alter))

    return register


def of_connection(
    name: str, *, breaks: str, summary: str
) -> Callable[[Callable[[Client, JetStream], None]], None]:
    """Register the decorated function, which alters every connection before it is made."""

    def register(alter: Callable[[Client, JetStream], None]) -> None:
        def set_up(adapter: Adapter) -> None:
            adapter.alter = alter

        _add(Defect(name, breaks, summary, set_up))

    return register


def replace(part: object, name: str, value: object) -> None:
    """On this instance alone; a misspelled name must not pass for a defect."""
    getattr(part, name)
    setattr(part, name, value)
