"""Versions, levels and ranges of versions, wherever a user or a file of ours writes them.

A range is a list of conditions, ``>=2.9, <2.11``; or the first and the last release, ``2.10.8 to 2.10.16``;
or one release, ``2.12.0``. A condition is about as many numbers as it has: 2.10.14 is in ``==2.10`` and in
``<=2.10``, and not in ``>2.10``. A pre-release counts as its release. ``packaging`` compares; nothing of
Plumbline is imported.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

_LEADING = re.compile(r"v?(\d{1,9}(?:\.\d{1,9})*)", re.ASCII)
_CONDITION = re.compile(r"(<=|>=|==|!=|<|>)\s*v?(\d{1,9}(?:\.\d{1,9})*)", re.ASCII)
RELEASES = re.compile(r"(\d{1,9}\.\d{1,9}\.\d{1,9})(?: to (\d{1,9}\.\d{1,9}\.\d{1,9}))?", re.ASCII)


def numbers(version: str) -> tuple[int, ...]:
    """``(2, 10, 14)`` of ``v2.10.14-beta``; empty if the text does not begin with a version."""
    from packaging.version import Version  # here, so that a broker starts without it

    found = _LEADING.match(version)
    return Version(found[1]).release if found else ()


def holds(versions: str, version: str) -> bool:
    """Whether ``version`` is in the range; the empty range has every version, and what is no version is 0.

    Raises ``ValueError`` if ``versions`` is no range.
    """
    return ".".join(map(str, numbers(version) or (0,))) in specifiers(versions)


@cache
def specifiers(versions: str) -> SpecifierSet:
    """The range as ``packaging`` has it. Raises ``ValueError``."""
    from packaging.specifiers import SpecifierSet

    if found := RELEASES.fullmatch(versions):
        first, last = found[1], found[2] or found[1]
        if numbers(first) > numbers(last):
            raise ValueError(f"{versions!r}: the first is later than the last")
        versions = f">={first}, <={last}"
    conditions = [condition.strip() for condition in versions.split(",") if condition.strip()]
    return SpecifierSet(",".join(map(_specifier, conditions)))


def _specifier(condition: str) -> str:
    found = _CONDITION.fullmatch(condition)
    if found is None:
        raise ValueError(f'{condition!r} is not a version condition; write for example ">=2.9, <2.11"')
    comparison, limit = found[1], numbers(found[2])
    after = ".".join(map(str, (*limit[:-1], limit[-1] + 1)))
    text = ".".join(map(str, limit))
    return {
        ">=": f">={text}",
        "<": f"<{text}",
        "==": f"=={text}.*",
        "!=": f"!={text}.*",
        "<=": f"<{after}",
        ">": f">={after}",
    }[comparison]
