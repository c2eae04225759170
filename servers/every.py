"""Every target that a matrix is made of, as arguments of ``plumbline verify``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plumbline.servers.getting import on_this_machine, ways
from plumbline.servers.targets import Target, TargetError, software, target

EVERY = "all"
EMBEDDED = {"reference-nats": (), "reference-amqp": ("amqp",)}  # by the names that a matrix gives them
WAIVERS = Path(__file__).parent / "waivers"

Named = tuple[str, tuple[str, ...]]


def runs(names: Sequence[str]) -> list[Named]:
    """What verifies each target. Raises ``TargetError`` for a name that means nothing.

    ``all``: both reference brokers and every listed target that this machine has or can get. What is known
    of a server's failures is waived, where there is a file of that.
    """
    found: list[Named] = []
    for name in names:
        if name == EVERY:
            found += EMBEDDED.items()
            found += map(_arguments, _to_be_had())
        elif name in EMBEDDED:
            found.append((name, EMBEDDED[name]))
        else:
            found.append(_arguments(_known(name)))
    return list(dict.fromkeys(found))


def _to_be_had() -> list[Target]:
    """Every listed release; of a software that has none here, whatever version its package is."""
    found: list[Target] = []
    for known in software().values():
        listed = [Target(known, version) for version in known.versions]
        packaged = [Target(known, "")] if known.debian else []
        found += [one for one in listed if _can_be_had(one)] or [one for one in packaged if _can_be_had(one)]
    return found


def _can_be_had(known: Target) -> bool:
    return on_this_machine(known) is not None or any(not way.missing for way in ways(known))


def _known(name: str) -> Target:
    try:
        return target(name)
    except TargetError as problem:
        raise TargetError(f"{problem}; or one of {', '.join([*EMBEDDED, EVERY])}") from None


def _arguments(known: Target) -> Named:
    waivers = WAIVERS / f"{known.software.name}.toml"
    waived = ("--waivers", str(waivers)) if waivers.exists() else ()
    return known.name, ("--target", known.name, *waived)
