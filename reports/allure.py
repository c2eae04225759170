"""Allure results: a folder that Allure's own command line, or a server of it, makes its report from.

One result per check: its operations are the steps; transcript, diagram, capture and the commands to type by
hand are attachments. A requirement is a link, a story and part of the description; its level is the severity.
Names of files depend on check and target alone: a run that is repeated replaces its results, and runs on
other targets stand beside them. Source: Allure 2, "Allure Results", and the model of allure2.
"""

from __future__ import annotations

import itertools
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec
from markupsafe import escape

from plumbline.reports import Capture
from plumbline.reports.diagram import draw
from plumbline.reports.digest import (
    claims_source,
    counted_outcomes,
    dimensions,
    group_of,
    replay_command,
    requirements_of,
    server,
    verdict_line,
    wire_excerpt,
)
from plumbline.reports.files import ReportError, write_private
from plumbline.reports.links import requirement_link
from plumbline.reports.manual_script import manual_script
from plumbline.reports.text import elide
from plumbline.verdicts import (
    CheckFinished,
    CheckResult,
    Event,
    Level,
    Outcome,
    RequirementResult,
    RunFinished,
    RunResult,
    Target,
    WireLine,
)
from plumbline.visible import one_line, visible

SEVERITIES = {Level.MUST: "critical", Level.SHOULD: "normal", Level.MAY: "minor"}
STATUSES = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.WAIVED: "skipped",
    Outcome.UNSUPPORTED: "skipped",
}  # what reached no verdict is "broken"
STEPS = 60
STEP_LIMIT = 300
VALUE_LIMIT = 10_000
TRANSCRIPT_LIMIT = 1_000_000  # characters
NAME_LIMIT = 200
LATE_S = 60.0  # after its run a check may be reported
LINK = re.compile(r"https?://[^\s<>\"'`\\)\]]{1,500}")

Object = dict[str, Any]


class AllureReport:
    """Writes the folder at the end of a run.

    ``requirement_url`` is a template of ``links.requirement_link``; without one there are no links.
    ``capture`` makes a capture file of what a check exchanged.
    """

    def __init__(self, folder: Path, requirement_url: str = "", capture: Capture | None = None) -> None:
        self._folder = folder
        self._requirement_url = requirement_url
        self._capture = capture
        self._ended: dict[str, float] = {}
        if folder.exists() and not folder.is_dir():
            raise ReportError(f"cannot write the allure results: {folder} is a file; name a folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise self._error(error) from error

    def on_event(self, event: Event) -> None:
        if isinstance(event, CheckFinished):
            self._ended[event.result.id] = time.time()
        elif isinstance(event, RunFinished):
            try:
                self._write(event.result)
            except OSError as error:
                raise self._error(error) from error

    def _error(self, error: OSError) -> ReportError:
        reason = (error.strerror or str(error)).lower()
        return ReportError(
            f"cannot write the allure results to {self._folder}: {reason}; name a folder you may write to"
        )

    def _write(self, result: RunResult) -> None:
        before: dict[str, list[Path]] = {}
        for path in self._folder.glob("*-attachment.*"):
            before.setdefault(path.name[:36], []).append(path)
        ends = self._ends(result)
        for check in result.checks:
            stop = ends[check.id]
            uuid = str(_identity(check, result.target))
            for old in before.get(uuid, []):
                old.unlink(missing_ok=True)
            files = dict(self._attachments(check, result, stop - check.duration_s))
            for name, data in files.items():
                write_private(self._folder / f"{uuid}-{name}", data)
            document = _result(check, result, uuid, stop, list(files), self._requirement_url)
            write_private(self._folder / f"{uuid}-result.json", msgspec.json.encode(document))
        write_private(self._folder / "environment.properties", _environment(result))
        write_private(self._folder / "categories.json", msgspec.json.encode(CATEGORIES))
        write_private(self._folder / "executor.json", msgspec.json.encode(_executor(result)))

    def _ends(self, result: RunResult) -> dict[str, float]:
        """When each check ended: as it was seen; of a run read from a file, one after the other."""
        began = _started_at(result)
        seen = [self._ended.get(check.id, 0.0) for check in result.checks]
        if seen and began <= min(seen) <= max(seen) <= began + result.summary.duration_s + LATE_S:
            return self._ended
        ends = itertools.accumulate((check.duration_s for check in result.checks), initial=began)
        return dict(zip((check.id for check in result.checks), itertools.islice(ends, 1, None), strict=True))

    def _attachments(
        self, check: CheckResult, result: RunResult, start: float
    ) -> Iterator[tuple[str, bytes]]:
        """End of the name, and content."""
        if not check.wire:
            return
        yield "transcript-attachment.txt", _transcript(check).encode()
        if check.outcome in (Outcome.PASSED, Outcome.UNSUPPORTED):
            return
        yield "diagram-attachment.svg", draw(check, alone=True).encode()
        typed = manual_script(result.target, check)
        if typed.script:
            yield "by-hand-attachment.sh", f"{typed.script}\n".encode()
        if self._capture is not None:
            yield "capture-attachment.pcapng", self._capture(result.target, check.wire, start)


TITLES = {
    "transcript-attachment.txt": ("What crossed the wire", "text/plain"),
    "diagram-attachment.svg": ("Sequence diagram", "image/svg+xml"),
    "by-hand-attachment.sh": ("The same by hand", "text/plain"),
    "capture-attachment.pcapng": ("Capture (open with Wireshark)", "application/vnd.tcpdump.pcap"),
}

CATEGORIES: list[Object] = [
    {"name": name, "matchedStatuses": [status], "messageRegex": f"(?s){begins}.*"}
    for name, status, begins in (
        ("A MUST is broken", "failed", "MUST: "),
        ("A SHOULD or MAY is broken", "failed", "(SHOULD|MAY): "),
        ("No verdict", "broken", ""),
        ("Waived", "skipped", "waived: "),
        ("Not supported by the server", "skipped", "unsupported: "),
    )
]


def _result(
    check: CheckResult,
    result: RunResult,
    uuid: str,
    stop: float,
    attached: Sequence[str],
    requirement_url: str,
) -> Object:
    start = stop - check.duration_s
    requirements = requirements_of(check, result)
    status = STATUSES.get(check.outcome, "broken")
    folder, _, name = check.id.rpartition("::" if "::" in check.id else "/")
    return {
        "uuid": uuid,
        "historyId": uuid.replace("-", ""),
        "testCaseId": str(uuid5(NAMESPACE_URL, f"plumbline:{_safe(check.id)}")).replace("-", ""),
        "fullName": _name(check.id),
        "name": _name(check.title or name),
        "status": status,
        "statusDetails": _details(check, result),
        "stage": "finished",
        "start": _milliseconds(start),
        "stop": _milliseconds(stop),
        "descriptionHtml": "".join(map(_described, requirements)),
        "labels": _labels(check, requirements, _name(folder), result),
        "links": list(_links(check, requirements, requirement_url)),
        "parameters": [
            {"name": "target", "value": _name(_target_name(result.target))},
            *([{"name": "configuration", "value": _name(check.variant)}] if check.variant else []),
        ],
        "steps": _steps(check, start),
        "attachments": [
            {"name": TITLES[name][0], "type": TITLES[name][1], "source": f"{uuid}-{name}"}
            for name in attached
        ],
    }


def _details(check: CheckResult, result: RunResult) -> Object:
    """What Allure shows in red, with expected and actual where it shows a stack trace."""
    if check.outcome is Outcome.PASSED:
        return {}
    kind = check.level.value if check.outcome is Outcome.FAILED else check.outcome.value
    reason = check.waiver if check.outcome is Outcome.WAIVED else check.message
    trace = [check.message if check.outcome is Outcome.WAIVED else "", *check.known]
    trace += [f"Expected: {check.expected}"] if check.expected else []
    trace += [f"Actual:   {check.actual or '(nothing)'}"] if check.expected or check.actual else []
    trace += [f"at {check.where}"] if check.where else []
    trace.append(f"Run again: {replay_command(result, check.id)}")
    return {
        "message": one_line(elide(f"{kind}: {reason or check.title or check.id}", VALUE_LIMIT)),
        "trace": "\n".join(visible(elide(part, VALUE_LIMIT)) for part in trace if part),
        "known": bool(check.known or check.waiver),
        "muted": check.outcome is Outcome.WAIVED or (check.outcome is Outcome.FAILED and not check.red),
        "flaky": check.retried,
    }


def _labels(
    check: CheckResult, requirements: Sequence[RequirementResult], folder: str, result: RunResult
) -> list[Object]:
    named = [
        ("severity", SEVERITIES[check.level]),
        ("framework", "plumbline"),
        ("language", result.target.protocol),
        ("epic", result.target.protocol),
        ("parentSuite", _target_name(result.target)),
        ("suite", folder or "plumbline"),
        ("package", re.sub(r"[^A-Za-z0-9_.-]+", ".", f"plumbline.{folder}").strip(".")),
        ("tag", check.level.value),
        ("tag", check.outcome.value),
    ]
    for requirement in requirements:
        named += [("feature", group_of(requirement)), ("story", requirement.id), ("tag", requirement.id)]
    labels = dict.fromkeys((name, _name(value)) for name, value in named)
    return [{"name": name, "value": value} for name, value in labels]


def _links(
    check: CheckResult, requirements: Sequence[RequirementResult], requirement_url: str
) -> Iterator[Object]:
    """Requirements where they are published, and what known failures and waivers point at."""
    if requirement_url:
        for requirement in requirements:
            url = requirement_link(requirement_url, requirement)
            yield {"type": "tms", "name": _name(requirement.id), "url": url}
    for url in dict.fromkeys(
        found for text in (*check.known, check.waiver) for found in LINK.findall(text[:VALUE_LIMIT])
    ):
        yield {"type": "issue", "name": _name(url), "url": one_line(url)}


def _described(requirement: RequirementResult) -> str:
    """Allure takes HTML here: everything in it is escaped."""
    identity, statement, source = (
        escape(one_line(elide(text, 2_000)))
        for text in (requirement.id, requirement.statement, requirement.source)
    )
    cited = f" <i>{source}</i>" if source else ""
    return f"<p><b>{identity}</b> {requirement.level}: {statement}{cited}</p>"


def _steps(check: CheckResult, start: float) -> list[Object]:
    """Operations, as many as one reads through; the transcript has all of them."""
    excerpt = wire_excerpt(check.wire, STEPS)
    steps = [_step(line, _milliseconds(start + line.at)) for line in excerpt.lines]
    at = steps[0]["start"] if steps else 0
    if excerpt.before:
        steps.insert(0, _remark(f"{excerpt.before} earlier operations are in the transcript", at))
    if excerpt.after:
        steps.append(_remark(f"{excerpt.after} later operations are in the transcript", steps[-1]["stop"]))
    return steps


def _step(line: WireLine, at: int) -> Object:
    return {
        "name": one_line(elide(f"{line.connection} {line.direction} {line.text}", STEP_LIMIT)),
        "status": "failed" if line.offending else "passed",
        "stage": "finished",
        "start": at,
        "stop": at,
    }


def _remark(text: str, at: int) -> Object:
    return {"name": text, "status": "passed", "stage": "finished", "start": at, "stop": at}


def _transcript(check: CheckResult) -> str:
    lines = ["  seconds  connection and direction (> sent, < received, ! event), operation", ""]
    size = 0
    for position, line in enumerate(check.wire):
        text = one_line(elide(line.text, VALUE_LIMIT))
        name = one_line(elide(line.connection, NAME_LIMIT))
        lines.append(f"{'*' if line.offending else ' '}{line.at:8.4f}  {name} {line.direction} {text}")
        size += len(lines[-1])
        if size > TRANSCRIPT_LIMIT:
            lines.append(f"… {len(check.wire) - position - 1} later operations are left out")
            break
    return "\n".join(lines) + "\n"


def _environment(result: RunResult) -> bytes:
    """A Java properties file: ISO 8859-1 with escapes."""
    target, suite, summary = result.target, result.suite, result.summary
    facts = {
        "Verdict": verdict_line(result),
        "Target": server(target),
        "Level": target.level,
        "Features": ", ".join(target.features),
        "Configurations": ", ".join(target.variants),
        "Dimensions": dimensions(target),
        "Claims": claims_source(result),
        "Plumbline": suite.version,
        "RequirementSet": suite.requirement_set,
        "Python": suite.python,
        "Platform": suite.platform,
        "Checks": ", ".join(f"{number} {outcome}" for outcome, number in counted_outcomes(result)),
        "Requirements": f"{summary.claimed} claimed, {summary.tested} tested, {summary.passed} passed",
    }
    lines = [f"{name} = {_property(value)}" for name, value in facts.items() if value]
    return "\n".join([*lines, ""]).encode("ascii")


def _property(value: str) -> str:
    text = one_line(elide(value, 1_000)).replace("\\", "\\\\")
    return "".join(char if char.isascii() else _unit_escapes(char) for char in text)


def _unit_escapes(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _executor(result: RunResult) -> Object:
    return {
        "name": "Plumbline",
        "type": "plumbline",
        "buildName": one_line(elide(f"{server(result.target)}, {result.summary.started}", NAME_LIMIT)),
    }


def _identity(check: CheckResult, target: Target) -> UUID:
    """The same for every run of the check on that target."""
    return uuid5(NAMESPACE_URL, _safe(f"plumbline:{check.id}\n{_target_name(target)}"))


def _target_name(target: Target) -> str:
    """``nats://127.0.0.1:4222``, or how Plumbline started it: such a server has another port every time."""
    if target.arguments is None:
        return target.url
    return " ".join(target.arguments) or f"reference broker ({target.protocol})"


def _safe(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _name(text: str) -> str:
    return one_line(elide(text, NAME_LIMIT))


def _started_at(result: RunResult) -> float:
    try:
        return datetime.fromisoformat(result.summary.started).timestamp()
    except ValueError:
        return 0.0


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))
