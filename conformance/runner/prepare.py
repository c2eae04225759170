"""Turns the options of a run into its checks, waivers and calibrated target.

Every mistake of the user is found here, before anything runs, and reported in one sentence.
"""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from plumbline.conformance.check import Check
from plumbline.conformance.claims import Claims, load_claims
from plumbline.conformance.dimensions import Dimensions
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.suite import all_checks, select, select_cases
from plumbline.conformance.targets.access import Access
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import (
    AccessRefusedError,
    TargetAccess,
    UrlError,
    open_target,
    parse_level,
    probe,
)
from plumbline.conformance.targets.urls import AnyUrl, parse_url
from plumbline.conformance.targets.variants import amqp_variants
from plumbline.conformance.targets.variants import variants as nats_variants
from plumbline.conformance.trace.check import load_checks
from plumbline.conformance.waivers import Waiver, load_waivers
from plumbline.errors import TargetUnreachable, UsageProblem
from plumbline.masking import masked_url
from plumbline.passwords import Passwords

RUN_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # valid in names of every kind, none like another
RUN_ID_LENGTH = 5


class RunOptions(Struct, frozen=True):
    """What a user asked of a run, as given."""

    level: str | None = None
    variants: tuple[str, ...] = ()  # NAME=URL
    select: tuple[str, ...] = ()
    waivers: Path | None = None
    claims: Path | None = None
    dimensions: Dimensions = Dimensions()
    traces: tuple[Path, ...] = ()  # the user's own
    strict: bool = False
    passwords: Passwords = Passwords()  # for URLs without one
    access: Access = Access()


class RunDescription(Struct, frozen=True):
    """What every process of a run knows. Built once, by ``prepare``, and pickled whole for the workers.

    ``traces``: by id, all that checks may be made of. Checks that are functions are found by import.
    """

    target: TargetAccess
    catalogue: Catalogue
    wanted: RunOptions = RunOptions()
    waivers: tuple[Waiver, ...] = ()
    traces: Mapping[str, Check] = {}


class PreparedRun(Struct, frozen=True):
    """A run and the checks that are to run, in the order in which reports show them."""

    run: RunDescription
    checks: tuple[Check, ...]


def prepare(options: RunOptions, running: RunningTarget, shared: Path) -> PreparedRun:
    """``shared`` is an empty folder for the processes of the run, which its caller removes.

    Raises ``PlumblineError``; ``TargetUnreachable`` when nothing speaks the protocol at a URL.
    """
    url = running.url
    variants = dict(_variant(text, options) for text in options.variants)
    _require_level(options.level)
    options.dimensions.require_fitting(url)
    user_traces = [
        check for path in options.traces for check in select_cases(_load_user_trace(path), options.select)
    ]
    _require_distinct(user_traces)
    catalogue = Catalogue.load()
    packaged = all_checks(url.protocol) if options.select or options.waivers or not user_traces else []
    _require_protocol(user_traces, url)
    catalogue.published()  # what is wrong with the suite itself is shown before the run, not after it
    checks = _select_checks(packaged, user_traces, options.select)
    waivers = load_waivers(options.waivers, [*packaged, *user_traces]) if options.waivers else ()
    require_known(user_traces, catalogue)
    claims = load_claims(options.claims, url.protocol) if options.claims else None
    if claims is not None:
        running = replace(running, restart=claims.restart)
    whole = _with_arguments(replace(running, variants={**running.variants, **variants}), options)
    name = "".join(secrets.choice(RUN_ID_LETTERS) for _ in range(RUN_ID_LENGTH))
    level = (
        None if running.has_level and options.level else options.level or (claims and claims.level) or None
    )
    target = _with_options(open_target(whole, level=level, run=name, shared=shared), claims, options)
    _require_present(whole.variants)
    traces = {check.id: check for check in (*packaged, *user_traces) if check.is_trace}
    return PreparedRun(RunDescription(target, catalogue, options, waivers, traces), checks)


def _with_options(access: TargetAccess, claims: Claims | None, wanted: RunOptions) -> TargetAccess:
    """Raises ``UsageProblem`` if the target cannot have the dimensions."""
    wanted.dimensions.require_cluster(access.info, access.url)
    target = replace(access.target, dimensions=dict(wanted.dimensions.given))
    return replace(access, target=target, claims=claims, dimensions=wanted.dimensions)


def _with_arguments(running: RunningTarget, wanted: RunOptions) -> RunningTarget:
    """With what reaches target and traces again on a command line, without secrets: reports show it."""
    arguments = running.arguments
    if arguments is None:
        variants = (f"--variant={name}={running.variants[name]}" for name in sorted(running.variants))
        arguments = (str(running.url), *running.url.flags, *variants)
    claims = [f"--claims={wanted.claims}"] if wanted.claims else []
    dimensions = (f"--{name}={value}" for name, value in wanted.dimensions.given.items())
    return replace(
        running, arguments=(*arguments, *dimensions, *claims, *(f"--trace={path}" for path in wanted.traces))
    )


def _select_checks(
    packaged: Sequence[Check], user_traces: Sequence[Check], patterns: Sequence[str]
) -> tuple[Check, ...]:
    """A trace of one's own is what one wants to see: it runs, alone unless ``patterns`` ask for more.

    Of its cases those run that a pattern names, if one does.
    """
    if user_traces and not patterns:
        return tuple(user_traces)
    selected = select([*packaged, *user_traces], patterns)
    return (*(check for check in selected if check not in user_traces), *user_traces)


def _require_protocol(user_traces: Sequence[Check], url: AnyUrl) -> None:
    for check in user_traces:
        if check.protocol != url.protocol:
            raise UsageProblem(
                f"{check.where} verifies {check.protocol.upper()}, but {url} is not such a target"
            )


def _require_distinct(own: Sequence[Check]) -> None:
    """Raises ``UsageProblem`` for two checks with one id: a file and a case of a table beside it."""
    places: dict[str, str] = {}
    for check in own:
        first = places.setdefault(check.id, check.where)
        if first != check.where:
            raise UsageProblem(f"{check.where}: {first} is the check {check.id}, too; rename one of them")


def _load_user_trace(path: Path) -> list[Check]:
    try:
        return load_checks(path)
    except OSError as error:
        raise UsageProblem(f"the trace {path} cannot be read: {error.strerror}") from None


def _variant(text: str, options: RunOptions) -> tuple[str, AnyUrl]:
    name, equals, place = text.partition("=")
    if not equals or "//" in name:
        raise UrlError(
            f"--variant {masked_url(text)!r}: write NAME=URL, such as auth=nats://user:password@127.0.0.1:4223"
        )
    known = [*nats_variants(), *amqp_variants()]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known
        raise UsageProblem(f"--variant {name!r}: unknown variant; did you mean {', '.join(near)}?")
    url = options.access.applied_to_variant(parse_url(place))
    password = options.passwords.of_variant(name)
    return name, url if password is None else url.with_password(password)


def _require_level(level: str | None) -> None:
    try:
        parse_level(level or "2.9")
    except ValueError as error:
        raise UsageProblem(f"--level: {error}") from None


def _require_present(variants: Mapping[str, AnyUrl]) -> None:
    """Raises ``TargetUnreachable`` unless every variant answers; to be refused is an answer, too."""
    for name, url in variants.items():
        try:
            probe(url)
        except AccessRefusedError:
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
