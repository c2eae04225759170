"""Every target that a matrix is made of, as arguments of ``plumbline verify``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plumbline.servers.getting import find_installed, install_methods
from plumbline.servers.targets import NamedServer, TargetError, software, target

ALL_TARGETS = "all"
EMBEDDED = {"reference-nats": (), "reference-amqp": ("amqp",)}  # by the names that a matrix gives them
WAIVERS = Path(__file__).parent / "waivers"

NamedRun = tuple[str, tuple[str, ...]]


def runs(names: Sequence[str]) -> list[NamedRun]:
    """What verifies each target. Raises ``TargetError`` for a name that means nothing.

    ``all``: both reference brokers and every listed target that this machine has or can get. What is known
    of a server's failures is waived, where there is a file of that.
    """
    found: list[NamedRun] = []
    for name in names:
        if name == ALL_TARGETS:
            found += EMBEDDED.items()
            found += map(_arguments, _available_targets())
        elif name in EMBEDDED:
            found.append((name, EMBEDDED[name]))
        else:
            found.append(_arguments(_known(name)))
    return list(dict.fromkeys(found))


def _available_targets() -> list[NamedServer]:
    """Every listed release; of a software that has none here, whatever version its package is."""
    found: list[NamedServer] = []
    for known in software().values():
        listed = [NamedServer(known, version) for version in known.versions]
        packaged = [NamedServer(known, "")] if known.debian else []
        found += [one for one in listed if _is_available(one)] or [
            one for one in packaged if _is_available(one)
        ]
    return found


def _is_available(known: NamedServer) -> bool:
    return find_installed(known) is not None or any(not way.missing for way in install_methods(known))


def _known(name: str) -> NamedServer:
    try:
        return target(name)
    except TargetError as problem:
        raise TargetError(f"{problem}; or one of {', '.join([*EMBEDDED, ALL_TARGETS])}") from None


def _arguments(known: NamedServer) -> NamedRun:
    waivers = WAIVERS / f"{known.software.name}.toml"
    waived = ("--waivers", str(waivers)) if waivers.exists() else ()
    return known.name, ("--target", known.name, *waived)
