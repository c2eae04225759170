"""Deliberate faults: each alters a freshly built broker so that it breaks one requirement, and little else.

The core knows nothing of them. A defect that only changes fields of a message is a row of TOML (``rows``).
Every other is a function with ``@defect("CORE-001")`` above it, which replaces a method or a value of the
instance that it gets; or with ``@method_defect(Stream.settled, "JS-RET-009")``, which is that method with the
fault in it (``methods``). There is a folder for each part of the broker.
"""

from __future__ import annotations

from collections.abc import Callable

from plumbline.errors import PlumblineError
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.registry import Defect as _Defect
from plumbline.reference_broker.registry import Registry, UnknownDefectError, replace

__all__ = [
    "Alteration",
    "Defect",
    "DefectNotApplicableError",
    "UnknownDefectError",
    "add",
    "all_defects",
    "apply",
    "default_needs",
    "defect",
    "find",
    "new",
    "replace",
]

Alteration = Callable[[Broker], None]
Defect = _Defect[Broker]


class DefectNotApplicableError(PlumblineError, ValueError):
    """The broker lacks what the defect alters; the text says what to switch on."""


_REGISTRY: Registry[Broker] = Registry(__name__, __path__)
add = _REGISTRY.add
all_defects = _REGISTRY.all_defects
find = _REGISTRY.find


def defect(
    *requirements: str, name: str | None = None, needs: tuple[str, ...] | None = None
) -> Callable[[Alteration], Alteration]:
    """Register the decorated function (``Registry.defect``); ``needs`` is as in ``default_needs``."""
    return _REGISTRY.defect(*requirements, name=name, needs=default_needs(requirements, needs))


def new(name: str, breaks: tuple[str, ...], summary: str, alter: Alteration) -> Defect:
    """A defect that is one of many of its kind: made by a function, from a table."""
    return Defect(name, breaks, summary, alter, default_needs(breaks))


def default_needs(breaks: tuple[str, ...], needs: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """``needs``, if given; without, what breaks requirements of JetStream needs a broker that has it."""
    if needs is not None:
        return needs
    return ("jetstream",) if all(requirement.startswith("JS-") for requirement in breaks) else ()


def apply(broker: Broker, name: str) -> None:
    """Alter ``broker``, which must be freshly built. Raises ``UnknownDefectError`` or
    ``DefectNotApplicableError``."""
    found = find(name)
    if "jetstream" in found.needs and broker.service is None:
        raise DefectNotApplicableError(f"defect {name!r} needs JetStream: start the broker with -js")
    found.alter(broker)
