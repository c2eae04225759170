"""Deliberate faults: each alters a freshly built broker so that it breaks one requirement, and little else.

The core knows nothing of them. A defect that only changes a method that comes in or goes out, or a refusal,
is a row of TOML (``rows``). Every other is a function with ``@defect("AMQP-ACK-001")`` above it, which
replaces one method or one value of a part of the broker. There is a folder for each part of the broker.
"""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.registry import Defect as _Defect
from plumbline.reference_broker.registry import Registry, UnknownDefectError, replace

__all__ = [
    "Alteration",
    "Defect",
    "UnknownDefectError",
    "add",
    "all_defects",
    "apply",
    "defect",
    "find",
    "replace",
]

Alteration = Callable[[Broker], None]
Defect = _Defect[Broker]

_REGISTRY: Registry[Broker] = Registry(__name__, __path__)
add = _REGISTRY.add
defect = _REGISTRY.defect
all_defects = _REGISTRY.all_defects
find = _REGISTRY.find


def apply(broker: Broker, name: str) -> None:
    """Alter ``broker``, which must be freshly built. Raises ``UnknownDefectError``."""
    find(name).alter(broker)
