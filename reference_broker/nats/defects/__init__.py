"""Deliberate faults: each alters a freshly built broker so that it breaks one requirement, and little else.

A defect is a function that replaces one method or one value on the instance it is given; the core
knows nothing of defects. Those of a group of requirements stand in a module of their own here.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable

from msgspec import Struct

from reference_broker.nats.core import Broker

Alteration = Callable[[Broker], None]


class Defect(Struct, frozen=True):
    """One fault: its name, the requirements it breaks, and what is wrong, in a sentence.

    ``needs`` names what the broker must be configured with to show it, such as ``jetstream``.
    """

    name: str
    breaks: tuple[str, ...]
    summary: str
    alter: Alteration
    needs: tuple[str, ...] = ()


class UnknownDefect(ValueError):
    """There is no defect of that name; the text says which are like it."""


class DefectNotApplicable(ValueError):
    """The broker lacks what the defect alters; the text says what to switch on."""


_DEFECTS: dict[str, Defect] = {}


def defect(
    name: str, *, breaks: tuple[str, ...], summary: str, needs: tuple[str, ...] = ()
) -> Callable[[Alteration], Alteration]:
    """Register the decorated function as a defect."""

    def register(alter: Alteration) -> Alteration:
        if name in _DEFECTS:
            raise ValueError(f"two defects are called {name!r}")
        _DEFECTS[name] = Defect(name, breaks, summary, alter, needs)
        return alter

    return register


def replace(part: object, name: str, value: object) -> None:
    """Put ``value`` in the place of a method or attribute of ``part``, on this instance alone."""
    getattr(part, name)  # a misspelled name must not pass for a defect
    setattr(part, name, value)


def all_defects() -> list[Defect]:
    """Every defect there is, by the first requirement it breaks."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return sorted(_DEFECTS.values(), key=lambda one: (one.breaks, one.name))


def find(name: str) -> Defect:
    """The defect of that name. Raises ``UnknownDefect``."""
    names = [one.name for one in all_defects()]
    if name not in _DEFECTS:
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "--list-defects shows them all."
        raise UnknownDefect(f"there is no defect {name!r}: {hint}")
    return _DEFECTS[name]


def apply(broker: Broker, name: str) -> None:
    """Alter ``broker``, which must be freshly built. Raises ``UnknownDefect`` or ``DefectNotApplicable``."""
    found = find(name)
    if "jetstream" in found.needs and broker.service is None:
        raise DefectNotApplicable(f"defect {name!r} needs JetStream: start the broker with -js")
    found.alter(broker)
