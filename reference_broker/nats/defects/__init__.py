"""Deliberate faults: each alters a freshly built broker so that it breaks one requirement, and little else.

A defect is a function that replaces one method or one value on the instance it is given; the core
knows nothing of defects. Those of a group of requirements stand in a module of their own here.
"""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.registry import Defect as _Defect
from plumbline.reference_broker.registry import Registry, UnknownDefect, replace

__all__ = [
    "Alteration",
    "Defect",
    "DefectNotApplicable",
    "UnknownDefect",
    "all_defects",
    "apply",
    "defect",
    "find",
    "replace",
]

Alteration = Callable[[Broker], None]
Defect = _Defect[Broker]


class DefectNotApplicable(ValueError):
    """The broker lacks what the defect alters; the text says what to switch on."""


_REGISTRY: Registry[Broker] = Registry(__name__, __path__)
defect = _REGISTRY.defect
all_defects = _REGISTRY.all_defects
find = _REGISTRY.find


def apply(broker: Broker, name: str) -> None:
    """Alter ``broker``, which must be freshly built. Raises ``UnknownDefect`` or ``DefectNotApplicable``."""
    found = find(name)
    if "jetstream" in found.needs and broker.service is None:
        raise DefectNotApplicable(f"defect {name!r} needs JetStream: start the broker with -js")
    found.alter(broker)
