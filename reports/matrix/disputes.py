"""The record of disputes: who claims that a requirement or its check is wrong, and what was decided.

::

    [[dispute]]
    requirement = "JS-PULL-021"
    opened = 2026-11-20
    by = "a vendor"
    link = "https://example.org/issues/12"
    argument = "The page says 404 for no_wait only."
    outcome = "upheld"          # open, upheld (the requirement was changed) or rejected
    decided = 2026-11-22
    decision = "The check asks with no_wait since 2026.12."
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote, urlsplit

from msgspec import Struct

from plumbline.errors import PlumblineError
from plumbline.untrusted import BadInputError, parse_toml, read_file
from plumbline.visible import one_line


class DisputesError(PlumblineError, ValueError):
    """The file cannot be used; the text says where and what to write instead."""


class DisputeOutcome(StrEnum):
    """What was decided."""

    OPEN = "open"
    UPHELD = "upheld"
    REJECTED = "rejected"


class Dispute(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry. ``decided`` and ``decision`` are there as soon as it is not open."""

    requirement: str
    opened: datetime.date
    argument: str
    by: str = ""
    link: str = ""
    outcome: DisputeOutcome = DisputeOutcome.OPEN
    decided: datetime.date | None = None
    decision: str = ""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    dispute: tuple[Dispute, ...] = ()


def load_disputes(path: Path, known: Collection[str]) -> Mapping[str, tuple[Dispute, ...]]:
    """By requirement, in the order of the file. ``known``: the ids that exist.

    Raises ``DisputesError``, all that is wrong at once, and ``OSError``.
    """
    try:
        entries = parse_toml(read_file(path), _File).dispute
    except BadInputError as error:
        raise DisputesError(f"{path}: {error}") from error
    problems = [
        f"{path}: dispute {number}: {why}"
        for number, one in enumerate(entries, 1)
        for why in _wrong(one, known)
    ]
    if problems:
        raise DisputesError("\n".join(problems))
    found: dict[str, tuple[Dispute, ...]] = {}
    for one in entries:
        found[one.requirement] = (*found.get(one.requirement, ()), one)
    return found


def _wrong(one: Dispute, known: Collection[str]) -> list[str]:
    problems = []
    if one.requirement not in known:
        problems.append(f"there is no requirement {one.requirement!r}; see plumbline list")
    if not one.argument.strip():
        problems.append("argument is empty: write what is wrong, in one or two sentences")
    if one.link and urlsplit(one.link).scheme != "https":
        problems.append(f"link {one.link!r} is not an https address")
    is_open = one.outcome is DisputeOutcome.OPEN
    if is_open and (one.decided or one.decision):
        problems.append('it has a decision: outcome has to be "upheld" or "rejected"')
    if not is_open and not (one.decided and one.decision.strip()):
        problems.append(f"outcome is {one.outcome.value}: write decided (a date) and decision (a sentence)")
    return problems


def dispute_link(template: str, requirement: str) -> str:
    """``template`` with ``{id}`` replaced: where a reader opens a dispute. Empty without a template."""
    return template.replace("{id}", quote(one_line(requirement), safe=""))
