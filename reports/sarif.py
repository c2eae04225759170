"""SARIF 2.1.0, for what shows findings beside code: one result per broken requirement of a check.

A requirement is a rule; a failed MUST is an ``error``, a SHOULD a ``warning``, a MAY a ``note``. A waived
failure is suppressed, with the waiver as its justification. What reached no verdict is no finding: it is a
notification of the invocation. Source: OASIS, "Static Analysis Results Interchange Format Version 2.1.0".
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from plumbline.reports.digest import (
    replay_command,
    requirements_of,
    selected,
    tone,
    verdict_line,
    wire_excerpt,
)
from plumbline.reports.files import ReportFile
from plumbline.reports.links import requirement_link
from plumbline.reports.text import elide
from plumbline.verdicts import CheckResult, Event, Level, Outcome, RequirementResult, RunFinished, RunResult
from plumbline.visible import one_line, visible

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {Level.MUST: "error", Level.SHOULD: "warning", Level.MAY: "note"}
VALUE_LIMIT = 2_000
WIRE_LINES = 20
_FINDINGS = (Outcome.FAILED, Outcome.WAIVED)
_UNDECIDED = (Outcome.UNTESTABLE, Outcome.INCONCLUSIVE, Outcome.HARNESS_ERROR, Outcome.STALE_WAIVER)

Object = dict[str, Any]


class SarifReport:
    """Writes the file at the end of a run. ``requirement_url``: see ``links.requirement_link``."""

    def __init__(self, path: Path, requirement_url: str = "") -> None:
        self._file = ReportFile(path, "sarif")
        self._requirement_url = requirement_url

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._file.write(render(event.result, self._requirement_url))


def render(result: RunResult, requirement_url: str = "") -> bytes:
    """The file's bytes."""
    requirements = selected(result)
    rules = {requirement.id: number for number, requirement in enumerate(requirements)}
    document = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "Plumbline",
                        "version": one_line(result.suite.version),
                        "rules": [_rule(requirement, requirement_url) for requirement in requirements],
                        "properties": {"requirementSet": one_line(result.suite.requirement_set)},
                    }
                },
                "invocations": [_invocation(result)],
                "results": [
                    _result(check, requirement, rules, result)
                    for check in result.checks
                    if check.outcome in _FINDINGS
                    for requirement in requirements_of(check, result)
                    if requirement.id in rules
                ],
                "columnKind": "unicodeCodePoints",
                "properties": {
                    "target": one_line(result.target.url),
                    "version": one_line(result.target.version),
                    "serverName": one_line(result.target.server_name),
                    "claimed": result.summary.claimed,
                    "tested": result.summary.tested,
                    "passed": result.summary.passed,
                },
            }
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _rule(requirement: RequirementResult, requirement_url: str) -> Object:
    rule: Object = {
        "id": one_line(requirement.id),
        "shortDescription": {"text": one_line(elide(requirement.statement, VALUE_LIMIT)) or "-"},
        "help": {"text": one_line(f"Source: {elide(requirement.source, VALUE_LIMIT) or 'none given'}")},
        "defaultConfiguration": {"level": LEVELS[requirement.level]},
        "properties": {"tags": [one_line(requirement.group or "other"), requirement.level.value]},
    }
    if requirement_url:
        rule["helpUri"] = requirement_link(requirement_url, requirement)
    return rule


def _result(
    check: CheckResult, requirement: RequirementResult, rules: dict[str, int], result: RunResult
) -> Object:
    found: Object = {
        "ruleId": one_line(requirement.id),
        "ruleIndex": rules[requirement.id],
        "level": LEVELS[requirement.level],
        "message": {"text": _message(check, result)},
        "locations": [_location(check)],
        "partialFingerprints": {
            "check/v1": sha256(f"{requirement.id}\n{check.id}".encode(errors="replace")).hexdigest()
        },
        "properties": {"check": one_line(check.id), "outcome": check.outcome.value},
    }
    if check.outcome is Outcome.WAIVED:
        found["suppressions"] = [
            {
                "kind": "external",
                "status": "accepted",
                "justification": one_line(elide(check.waiver, VALUE_LIMIT)),
            }
        ]
    return found


def _message(check: CheckResult, result: RunResult) -> str:
    parts = [check.title or check.id, check.message, *check.known]
    parts += [f"Expected: {check.expected}"] if check.expected else []
    parts += [f"Actual: {check.actual or '(nothing)'}"] if check.expected or check.actual else []
    excerpt = wire_excerpt(check.wire, WIRE_LINES)
    parts += [
        f"{'*' if line.offending else ' '} {line.at:.4f} {line.connection} {line.direction} {line.text}"
        for line in excerpt.lines
    ]
    parts.append(f"Run again: {replay_command(result, check.id)}")
    return "\n".join(visible(elide(part, VALUE_LIMIT)) for part in parts if part)


def _location(check: CheckResult) -> Object:
    """Where the check stands; a file that is part of Plumbline, or the user's own trace."""
    file, _, line = check.where.rpartition(":")
    uri = re.sub(r"[^A-Za-z0-9._/-]", "_", one_line(file or check.id)) or "unknown"
    place: Object = {"artifactLocation": {"uri": uri}}
    if line.isdecimal() and int(line[:9]) > 0:
        place["region"] = {"startLine": int(line[:9])}
    return {
        "physicalLocation": place,
        "logicalLocations": [{"fullyQualifiedName": one_line(check.id), "kind": "function"}],
    }


def _invocation(result: RunResult) -> Object:
    summary = result.summary
    return {
        "executionSuccessful": tone(summary.exit_code) != "unclear",
        "exitCode": summary.exit_code,
        "exitCodeDescription": one_line(verdict_line(result)),
        "toolExecutionNotifications": [
            {
                "level": "error" if check.outcome is Outcome.HARNESS_ERROR else "warning",
                "message": {
                    "text": one_line(f"{check.id}: {check.outcome}: {elide(check.message, VALUE_LIMIT)}")
                },
            }
            for check in result.checks
            if check.outcome in _UNDECIDED
        ],
    }
