"""Known failures of real releases: server, releases, behaviour and link.

Such a failure stays a failure; this is what a report says beside it. A requirement lists them
(``known_failures`` in ``requirements/*.toml``): ``target`` names the server software, ``releases`` the first
and the last release of every line that has it, both seen to fail, ``text`` says what they do, ``link`` the
public report, where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plumbline import versions
from plumbline.verdicts import KnownFailure
from plumbline.versions import RELEASES, numbers

_FIELDS = {"target": str, "releases": list, "text": str, "link": str}
_OPTIONAL = {"link"}
MIN_NUMBERS = 3  # of a release


def table_errors(tables: Any) -> list[str]:
    """What is wrong with ``known_failures`` of one requirement, each with what to write instead."""
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        return ["'known_failures' must be a list of tables"]
    return [problem for table in tables for problem in _table_errors(table)]


def read(tables: Iterable[Mapping[str, Any]]) -> tuple[KnownFailure, ...]:
    """The values of tables that nothing is wrong with."""
    return tuple(
        KnownFailure(
            target=table["target"],
            releases=tuple(table["releases"]),
            text=table["text"],
            link=table.get("link", ""),
        )
        for table in tables
    )


def applies_to(failure: KnownFailure, version: str) -> bool:
    """Whether it is known of the server of that version; a pre-release counts as its release."""
    is_release = len(numbers(version)) >= MIN_NUMBERS
    return is_release and any(versions.holds(releases, version) for releases in failure.releases)


def describe(failure: KnownFailure) -> str:
    """One line for people: ``known of nats-server 2.10.8 to 2.10.16: ... (https://...)``."""
    link = f" ({failure.link})" if failure.link else ""
    return f"known of {failure.target} {', '.join(failure.releases)}: {failure.text}{link}"


def _table_errors(table: Mapping[str, Any]) -> Iterable[str]:
    for key, kind in _FIELDS.items():
        if key not in table:
            if key not in _OPTIONAL:
                yield f"a known failure lacks {key!r}"
        elif not isinstance(table[key], kind) or not table[key]:
            shape = "a list" if kind is list else "text"
            yield f"{key!r} of a known failure must be {shape} that is not empty"
    yield from (f"a known failure has the unknown key {key!r}" for key in table if key not in _FIELDS)
    releases = table.get("releases", [])
    for text in releases if isinstance(releases, list) else []:
        yield from _wrong_range(text)


def _wrong_range(text: Any) -> Iterable[str]:
    advice = "write '2.10.8 to 2.10.16', or one release"
    try:
        if not isinstance(text, str) or RELEASES.fullmatch(text) is None:
            yield f"releases {text!r}: {advice}"
        else:
            versions.specifiers(text)
    except ValueError as error:
        yield f"releases {error}"
