"""Waivers: failures that the user accepts. A waived check still runs and must still fail as described.

A file of ``[[waiver]]`` tables (TOML): ``requirement`` or ``check`` (patterns), ``reason``, and, if
wanted, ``link``, ``expires`` (date), ``versions`` (of the target: ``">=2.9, <2.11"``), ``contains``
(text the failure must show). With ``contains`` it also covers a check that could not be tested. Nothing is
waived in silence: what a waiver names must exist, what it covers must fail, and an expired one covers
nothing.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import Struct

from plumbline.conformance.check import Check
from plumbline.conformance.limits import OBJECT_PREFIX
from plumbline.errors import PlumblineError
from plumbline.untrusted import BadInputError, parse_toml, read_file
from plumbline.verdicts import CheckResult, Outcome
from plumbline.versions import holds, numbers
from plumbline.visible import visible_toml

# A server that lacks what the stage of a check needs breaks that, too; what is inconclusive shows nothing.
WAIVABLE = (Outcome.FAILED, Outcome.UNTESTABLE)


class WaiverError(PlumblineError, ValueError):
    """The waiver file cannot be used; the text says where and what to write instead."""


class Waiver(Struct, frozen=True, forbid_unknown_fields=True):
    """One known failure. Exactly one of ``requirement`` and ``check`` is given."""

    reason: str
    requirement: str | None = None
    check: str | None = None
    link: str = ""
    expires: datetime.date | None = None
    versions: str = ""
    contains: str = ""

    def names(self, check: Check | CheckResult) -> bool:
        """Whether this waiver is about that check."""
        if self.check is not None:
            return fnmatchcase(check.id, self.check)
        return any(fnmatchcase(requirement, self.requirement or "") for requirement in check.requirements)

    def in_force(self, version: str, today: datetime.date) -> bool:
        """Whether it holds today, for a target of that version."""
        return not self.expired(today) and holds(self.versions, version)

    def expired(self, today: datetime.date) -> bool:
        return self.expires is not None and today > self.expires

    def covers(self, result: CheckResult) -> bool:
        """Whether ``result`` is the failure that this waiver describes, or why the check cannot judge."""
        text = f"{result.message}\n{result.expected}\n{result.actual}"
        if result.outcome is Outcome.UNTESTABLE and not self.contains:
            return False  # a prerequisite is not named by the check alone
        return result.outcome in WAIVABLE and self.names(result) and self.contains in text

    def __str__(self) -> str:
        return f"{self.reason} ({self.link})" if self.link else self.reason


class _WaiverFile(Struct, frozen=True, forbid_unknown_fields=True):
    waiver: list[Waiver] = []


def load_waivers(path: Path, checks: Iterable[Check]) -> tuple[Waiver, ...]:
    """Read a waiver file. Raises ``WaiverError``, all that is wrong at once."""
    example = 'a table is: [[waiver]] requirement = "JS-PULL-015", reason = "why", link = "https://..."'
    try:
        waivers = parse_toml(read_file(path), _WaiverFile).waiver
    except OSError as error:
        raise WaiverError(f"{path}: {error.strerror}") from None
    except BadInputError as error:
        raise WaiverError(f"{path}: {error}; {example}") from None
    known = list(checks)
    problems = [
        f"{path}: waiver {number}: {problem}"
        for number, waiver in enumerate(waivers, 1)
        for problem in _problems(waiver, known)
    ]
    if problems:
        raise WaiverError("\n".join(problems))
    return tuple(waivers)


def _problems(waiver: Waiver, checks: list[Check]) -> Iterable[str]:
    if not waiver.reason.strip():
        yield "the reason is empty: explain why this failure is accepted"
    if (waiver.requirement is None) == (waiver.check is None):
        yield "give either `requirement` or `check`, one of the two"
    elif not any(waiver.names(check) for check in checks):
        yield f"{waiver.requirement or waiver.check!r} names no check: see `plumbline list --checks`"
    try:
        holds(waiver.versions, "0")
    except ValueError as error:
        yield f"versions: {error}"


def apply_waivers(
    waivers: Iterable[Waiver], result: CheckResult, version: str, today: datetime.date
) -> CheckResult:
    """``result``, as waived if a waiver in force covers it; a failure of an expired waiver says so."""
    for waiver in waivers:
        if not waiver.covers(result):
            continue
        if waiver.in_force(version, today):
            return msgspec.structs.replace(result, outcome=Outcome.WAIVED, waiver=str(waiver))
        if waiver.expired(today):
            message = f"{result.message} (its waiver expired on {waiver.expires}: {waiver})"
            return msgspec.structs.replace(result, message=message)
    return result


def stale_waivers(
    waivers: Iterable[Waiver], results: Iterable[CheckResult], version: str, today: datetime.date
) -> dict[str, Waiver]:
    """Check id -> waiver, for checks that passed under a waiver that nothing needed any more.

    A waiver that names several checks is stale only when none of those that ran still fails.
    """
    ran = [result for result in results if result.outcome is not Outcome.UNSUPPORTED]
    found: dict[str, Waiver] = {}
    for waiver in waivers:
        named = [result for result in ran if waiver.names(result)]
        if (
            waiver.in_force(version, today)
            and named
            and all(result.outcome is Outcome.PASSED for result in named)
        ):
            found |= {result.id: waiver for result in named}
    return found


# What differs from run to run: names that carry the run's prefix, inboxes, and what was measured.
_VARIES = re.compile(rf"\b{OBJECT_PREFIX}\w*|_INBOX\.\S*|\d+\.\d+|\d{{4,}}")


def _stable_part(message: str) -> str:
    """The longest part of a message that the same failure shows in every run."""
    return max((part.strip() for part in _VARIES.split(message)), key=len)


def _only(version: str) -> str:
    """The range of one version; every version where there is none, as in an INFO that names none."""
    return f"=={'.'.join(map(str, release))}" if (release := numbers(version)) else ""


def draft_waivers(results: Iterable[CheckResult], version: str) -> str:
    """A waiver file for the failures of a run, reasons left to be written."""
    tables = [
        "[[waiver]]\n"
        f"check = {toml_string(result.id)}\n"
        f"reason = {toml_string(f'to be explained: {result.message}')}\n"
        'link = ""\n'
        f"versions = {toml_string(_only(version))}\n"
        f"contains = {toml_string(_stable_part(result.message))}\n"
        for result in results
        if result.outcome in WAIVABLE
    ]
    head = "# Known failures. Give each its reason and a link, and an expiry: expires = 2030-01-31\n"
    return "\n".join([head, *tables])


def toml_string(text: str) -> str:
    """A TOML basic string; JSON strings are, once what is not visible is escaped too."""
    return visible_toml(msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode())
