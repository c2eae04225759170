"""From what a user asked for to what a run needs: the checks, the waivers, the calibrated target.

Every mistake of the user is found here, before anything runs, and said in one sentence.
"""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from plumbline.conformance.check import Check
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.suite import all_checks, select, select_cases
from plumbline.conformance.target import (
    AccessRefused,
    BadUrl,
    TargetAccess,
    open_target,
    parse_level,
    probe,
)
from plumbline.conformance.trace.check import load_checks
from plumbline.conformance.urls import AnyUrl, parse_url
from plumbline.conformance.variants import variants as known_variants
from plumbline.conformance.waivers import Waiver, load_waivers
from plumbline.errors import TargetUnreachable, UsageProblem

RUN_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # valid in names of every kind, none like another
RUN_ID_LENGTH = 5


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
    catalogue: Catalogue
    checks: tuple[Check, ...]
    known: dict[str, Check]  # by id: these, and those that are not to run
    waivers: tuple[Waiver, ...]


def prepare(wanted: Wanted) -> Prepared:
    """Raises ``PlumblineError``; ``TargetUnreachable`` when nothing speaks the protocol at a URL."""
    url = parse_url(wanted.url)
    variants = dict(_variant(text) for text in wanted.variants)
    _require_level(wanted.level)
    own = [check for path in wanted.traces for check in select_cases(_own(path), wanted.select)]
    _require_distinct(own)
    catalogue = Catalogue.load()
    packaged = all_checks(url.protocol) if wanted.select or wanted.waivers or not own else []
    _require_protocol(own, url)
    catalogue.published()  # what is wrong with the suite itself is told before the run, not after it
    checks = _chosen(packaged, own, wanted.select)
    waivers = load_waivers(wanted.waivers, [*packaged, *own]) if wanted.waivers else ()
    require_known(own, catalogue)
    run = "".join(secrets.choice(RUN_ID_LETTERS) for _ in range(RUN_ID_LENGTH))
    access = open_target(url, level=wanted.level, variants=variants, run=run)
    _require_present(variants)
    known = {check.id: check for check in (*packaged, *own)}
    return Prepared(wanted, access, catalogue, checks, known, waivers)


def _chosen(packaged: Sequence[Check], own: Sequence[Check], patterns: Sequence[str]) -> tuple[Check, ...]:
    """A trace of one's own is what one wants to see: it runs, alone unless ``patterns`` ask for more.

    Of its cases those run that a pattern names, if one does.
    """
    if own and not patterns:
        return tuple(own)
    selected = select([*packaged, *own], patterns)
    return (*(check for check in selected if check not in own), *own)


def _require_protocol(own: Sequence[Check], url: AnyUrl) -> None:
    for check in own:
        if check.protocol != url.protocol:
            raise UsageProblem(
                f"{check.where} verifies {check.protocol.upper()}, and {url} is no such target"
            )


def _require_distinct(own: Sequence[Check]) -> None:
    """Raises ``UsageProblem`` for two checks with one id: a file and a case of a table beside it."""
    places: dict[str, str] = {}
    for check in own:
        first = places.setdefault(check.id, check.where)
        if first != check.where:
            raise UsageProblem(f"{check.where}: {first} is the check {check.id}, too; rename one of them")


def _own(path: Path) -> list[Check]:
    try:
        return load_checks(path)
    except OSError as error:
        raise UsageProblem(f"the trace {path} cannot be read: {error.strerror}") from None


def _variant(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals:
        raise BadUrl(f"--variant {text!r}: write NAME=URL, such as auth=nats://user:password@127.0.0.1:4223")
    known = list(known_variants())
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known
        raise UsageProblem(f"--variant {name!r} is no variant: did you mean {', '.join(near)}?")
    parse_url(url)
    return name, url


def _require_level(level: str | None) -> None:
    try:
        parse_level(level or "2.9")
    except ValueError as error:
        raise UsageProblem(f"--level: {error}") from None


def _require_present(variants: Mapping[str, str]) -> None:
    """Raises ``TargetUnreachable`` unless every variant answers; to be refused is an answer, too."""
    for name, url in variants.items():
        try:
            probe(parse_url(url))
        except AccessRefused:
            pass
        except TargetUnreachable as error:
            raise TargetUnreachable(f"The variant {name!r}: {error}") from None


def require_known(checks: Sequence[Check], catalogue: Catalogue) -> None:
    """Raises ``UsageProblem`` for a check of a requirement that no catalogue holds."""
    for check in checks:
        for requirement in check.requirements:
            if requirement not in catalogue.by_id:
                near = ", ".join(catalogue.near(requirement)) or "see `plumbline list`"
                raise UsageProblem(f"{check.where or check.id}: {requirement} is not a requirement: {near}")
