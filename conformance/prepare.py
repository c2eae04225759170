"""From what a user asked for to what a run needs: the checks, the waivers, the calibrated target.

Every mistake of the user is found here, before anything runs, and said in one sentence.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from conformance.catalogue import Catalogue, CatalogueError
from conformance.check import Check
from conformance.suite import UnknownPattern, all_checks, select
from conformance.target import AccessRefused, BadUrl, TargetAccess, Url, open_target
from conformance.trace.check import load_check
from conformance.trace.parser import TraceSyntaxError
from conformance.waivers import Waiver, WaiverError, load_waivers

RUN_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # valid in names of every kind, none like another
RUN_ID_LENGTH = 5


class UsageProblem(Exception):
    """What was asked for cannot be done; the text says what to write instead."""


class Wanted(Struct, frozen=True):
    """What a user asked for, as given."""

    url: str
    level: str | None = None
    variants: tuple[str, ...] = ()  # NAME=URL
    select: tuple[str, ...] = ()
    waivers: Path | None = None
    traces: tuple[Path, ...] = ()  # the user's own
    strict: bool = False


class Prepared(Struct, frozen=True):
    """What a run needs."""

    wanted: Wanted
    access: TargetAccess
    checks: tuple[Check, ...]
    waivers: tuple[Waiver, ...]


def prepare(wanted: Wanted) -> Prepared:
    """Raises ``UsageProblem``, or ``TargetUnreachable`` when nothing speaks NATS at the URL."""
    try:
        url = Url.parse(wanted.url)
        variants = dict(_variant(text) for text in wanted.variants)
        own = [load_check(path) for path in wanted.traces]
        packaged = all_checks()
        waivers = load_waivers(wanted.waivers, [*packaged, *own]) if wanted.waivers else ()
        # A trace of one's own is what one wants to see: without --select, it alone runs.
        checks = own if own and not wanted.select else select([*packaged, *own], wanted.select)
        _known_requirements(checks)
        run = "".join(secrets.choice(RUN_ID_LETTERS) for _ in range(RUN_ID_LENGTH))
        access = open_target(url, level=wanted.level, variants=variants, run=run)
    except (BadUrl, AccessRefused, WaiverError, UnknownPattern, TraceSyntaxError, CatalogueError) as error:
        raise UsageProblem(str(error)) from None
    except OSError as error:
        raise UsageProblem(f"{error.filename}: {error.strerror}") from None
    return Prepared(wanted, access, tuple(checks), waivers)


def _variant(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals:
        raise BadUrl(f"--variant {text!r}: write NAME=URL, such as auth=nats://user:password@127.0.0.1:4223")
    Url.parse(url)
    return name, url


def _known_requirements(checks: Sequence[Check]) -> None:
    catalogue = Catalogue.load()
    for check in checks:
        for requirement in check.requirements:
            if requirement not in catalogue.by_id:
                near = ", ".join(catalogue.near(requirement)) or "see `plumbline list`"
                raise UsageProblem(f"{check.where or check.id}: {requirement} is not a requirement: {near}")
