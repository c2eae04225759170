"""Runs by the target they judged: a name, a version, a date; read from result files, kept small by a site.

A target is named ``SOFTWARE@VERSION``, as ``plumbline targets`` names it, wherever the run knows how it was
reached: the same release started by its name and by its path is one row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from plumbline.reports.digest import NOT_SELECTED
from plumbline.reports.result_json import ResultError, read
from plumbline.verdicts import CheckResult, Outcome, RequirementResult, RunResult, Target
from plumbline.versions import numbers
from plumbline.visible import one_line

EMBEDDED = {"nats": "reference-nats", "amqp": "reference-amqp"}
PACKAGED = {"rabbitmq-server": "rabbitmq"}  # programs that are called otherwise than their target
_VERSION = re.compile(r"[-_]v?\d+(\.\d+)+$")


class TargetRunResult(Struct, frozen=True):
    """One result, and the name of the target that it is of. ``origin``: of a contributed one, in words."""

    target: str
    result: RunResult
    origin: str = ""

    @property
    def software(self) -> str:
        """The target without its version: releases of one software are compared."""
        return self.target.partition("@")[0]

    @property
    def version(self) -> str:
        """The version of the target, or that which the server announced."""
        return self.target.partition("@")[2] or self.result.target.version

    @property
    def slug(self) -> str:
        """The target as the name of a folder."""
        return re.sub(r"[^A-Za-z0-9.+-]+", "_", self.target).strip("._") or "target"

    @property
    def stamp(self) -> str:
        """When it began, as the name of a file: ``20261121T151708Z``."""
        return re.sub(r"[^0-9A-Za-z]+", "", self.result.summary.started.replace("+00:00", "Z")) or "undated"


def in_order(runs: Iterable[TargetRunResult]) -> list[TargetRunResult]:
    """Servers, then client libraries; by protocol, software, release; the oldest run of a target first."""
    return sorted(
        runs,
        key=lambda run: (
            run.result.target.kind != "server",
            run.result.target.protocol != "nats",
            run.result.target.protocol,
            run.software,
            numbers(run.version),
            run.target,
            run.result.summary.started,
        ),
    )


def load(arguments: Sequence[str]) -> list[TargetRunResult]:
    """``FILE`` or ``NAME=FILE`` each. Raises ``ResultError`` and ``OSError``."""
    runs = []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        named = bool(equals) and not Path(argument).exists()
        result = read(Path(path if named else argument))
        runs.append(TargetRunResult(one_line(name) if named else target_name(result.target), result))
    return runs


def stored(folder: Path) -> list[TargetRunResult]:
    """The runs that a site keeps. Raises ``ResultError`` and ``OSError``."""
    found = []
    for path in sorted([*folder.glob("targets/*/*.json"), *folder.glob("targets/*/*.json.gz")]):
        result = read(path)
        if result.target.arguments is None or len(result.target.arguments) != 1:
            raise ResultError(f"{path}: not a run file of plumbline matrix; move it away")
        found.append(TargetRunResult(result.target.arguments[0], result))
    return found


def target_name(target: Target) -> str:
    """``nats-server@2.10.14``, ``reference-nats@2.9``, or the address of what was reached by its URL.

    A client library has the name that its adapter gave: ``nats.go/jetstream@1.55.0``.
    """
    arguments = target.arguments
    if target.kind == "client":
        return f"{one_line(target.server_name) or 'unknown'}@{one_line(target.version) or 'unknown'}"
    if arguments is None or (arguments and "://" in arguments[0]):
        return one_line(re.sub(r"^\w+://([^@/]*@)?", "", target.url).rstrip("/"))
    version = one_line(target.version) or "unknown"
    flags = [flag.removeprefix("--defect=") for flag in arguments if flag.startswith("--defect=")]
    for flag in ("--target", "--server"):
        if flag in arguments[:-1]:
            program = PurePath(arguments[arguments.index(flag) + 1].partition("@")[0]).name
            software = _VERSION.sub("", program)
            return f"{PACKAGED.get(software, software)}@{version}"
    return "+".join([f"{EMBEDDED.get(target.protocol, target.protocol)}@{version}", *flags])


def reduced_for_site(run: TargetRunResult) -> RunResult:
    """What of a run a site keeps for ever: every verdict, and the words of what did not pass; no wire."""
    result = run.result
    outcomes = (Outcome.PASSED, Outcome.UNSUPPORTED)
    return replace(
        result,
        target=replace(result.target, arguments=(run.target,), variants=()),
        requirements=tuple(map(_verdict_only, _claimed(result.requirements))),
        checks=tuple(_messages_only(check) for check in result.checks if check.outcome not in outcomes),
    )


def _claimed(requirements: Iterable[RequirementResult]) -> list[RequirementResult]:
    return [
        requirement for requirement in requirements if requirement.verdict not in (NOT_SELECTED, "excluded")
    ]


def _verdict_only(requirement: RequirementResult) -> RequirementResult:
    return RequirementResult(
        id=requirement.id,
        level=requirement.level,
        verdict=requirement.verdict,
        checks=(),
        group=requirement.group,
        profile=requirement.profile,
        statement=requirement.statement,
        source=requirement.source,
    )


def _messages_only(check: CheckResult) -> CheckResult:
    return replace(check, wire=(), message=check.message[:500], expected="", actual="")
