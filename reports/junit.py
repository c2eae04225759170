"""JUnit XML, for the test pages of CI systems: one ``testcase`` per check.

The file is red exactly when the run is: what turns the run red is a ``failure`` (the target's) or an
``error`` (no verdict was reached); unsupported, waived and failed-but-not-required checks are ``skipped``.
Whatever strangers wrote becomes legal XML 1.0 here.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from plumbline.reports.digest import (
    claims_source,
    dimensions,
    replay_command,
    unsupported_heading,
    verdict_line,
    wire_excerpt,
)
from plumbline.reports.files import ReportFile
from plumbline.reports.text import elide
from plumbline.verdicts import CheckResult, Event, Outcome, RunFinished, RunResult
from plumbline.visible import one_line, visible

SUITE = "plumbline"
WIRE_LINES = 40
VALUE_LIMIT = 10_000
OPERATION_LIMIT = 2_000
NAME_LIMIT = 200
MESSAGE_LIMIT = 500

_ERRORS = (Outcome.UNTESTABLE, Outcome.INCONCLUSIVE, Outcome.HARNESS_ERROR)
_TAIL = re.compile(r"(?:(.*)(?:/|::))?(.+)", re.DOTALL)


class JUnitReport:
    """Writes the file at the end of a run."""

    def __init__(self, path: Path) -> None:
        self._file = ReportFile(path, "xml")

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._file.write(render(event.result))


def render(result: RunResult) -> bytes:
    """The file's bytes."""
    cases = [*_claim_cases(result), *(_testcase(check, result) for check in result.checks)]
    if result.summary.exit_code and not any(_is_red_case(case) for case in cases):
        cases.insert(0, _red_run(result))
    totals = {
        "tests": str(len(cases)),
        "failures": str(_with_child(cases, "failure")),
        "errors": str(_with_child(cases, "error")),
        "skipped": str(_with_child(cases, "skipped")),
        "time": _seconds(result.summary.duration_s),
    }
    root = ET.Element("testsuites", {"name": SUITE, **totals})
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "name": SUITE,
            **totals,
            "timestamp": one_line(_named(result.summary.started)),
            "hostname": one_line(_named(result.target.url)),
        },
    )
    _properties(suite, _run_properties(result))
    suite.extend(cases)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _claim_cases(result: RunResult) -> list[ET.Element]:
    """One for each contradiction between the claims file and what the server announces."""
    cases = []
    for row in () if result.claims is None else result.claims.rows:
        if row.contradiction:
            name = one_line(_named(f"{row.kind} {row.name}"))
            case = ET.Element("testcase", {"classname": f"{SUITE}.claims", "name": name, "time": "0.000"})
            _add_ending(case, "failure", "contradiction", row.contradiction)
            cases.append(case)
    return cases


def _testcase(check: CheckResult, result: RunResult) -> ET.Element:
    # "adr-13/no-wait" and "core_publish::echo": what is before the last separator is the class.
    found = _TAIL.fullmatch(check.id)
    folder, name = found.groups() if found else (None, check.id)
    file, _, line = check.where.rpartition(":")
    case = ET.Element(
        "testcase",
        {
            "classname": one_line(_named(f"{SUITE}.{folder}" if folder else SUITE)),
            "name": one_line(_named(name)),
            "time": _seconds(check.duration_s),
        },
    )
    if file and line.isdigit():
        case.set("file", one_line(_named(file)))
        case.set("line", line)
    _properties(
        case,
        [
            ("title", check.title),
            *(("requirement", requirement) for requirement in check.requirements),
            ("level", check.level),
            ("outcome", check.outcome),
            ("source", check.source),
            ("waiver", check.waiver),
            *(("known", known) for known in check.known),
        ],
    )
    _add_outcome(case, check, result)
    return case


def _add_outcome(case: ET.Element, check: CheckResult, result: RunResult) -> None:
    if check.outcome is Outcome.PASSED:
        return
    if check.red:
        tag = "error" if check.outcome in _ERRORS else "failure"
        ended = _add_ending(case, tag, check.outcome, _message(check))
        ended.text = _evidence(check, result)
        return
    if check.outcome is Outcome.FAILED:
        _add_ending(
            case, "skipped", check.outcome, f"{check.level} only, the run stays green: {_message(check)}"
        )
    else:
        reason = check.waiver if check.outcome is Outcome.WAIVED else ""
        claim = f", {unsupported_heading(check.claim, result.target.kind)}" if check.claim else ""
        also = claim if check.outcome is Outcome.UNSUPPORTED else ""
        _add_ending(case, "skipped", check.outcome, f"{check.outcome}{also}: {reason or _message(check)}")
    if check.outcome is not Outcome.UNSUPPORTED:
        ET.SubElement(case, "system-out").text = _evidence(check, result)


def _add_ending(case: ET.Element, tag: str, kind: str, message: str) -> ET.Element:
    return ET.SubElement(case, tag, {"type": kind, "message": one_line(elide(message, MESSAGE_LIMIT))})


def _message(check: CheckResult) -> str:
    return check.message or check.title or str(check.outcome)


def _evidence(check: CheckResult, result: RunResult) -> str:
    """Everything a reader of the CI page needs, without the other reports."""
    parts = [_value(check.title), _value(check.message), *map(_value, check.known)]
    parts += [f"at {_value(check.where)}"] if check.where else []
    parts += [f"Expected: {_value(check.expected)}"] if check.expected else []
    parts += [f"Actual:   {_value(check.actual)}"] if check.actual else []
    if check.wire:
        parts.append(_transcript(check))
    parts.append(f"Run again: {replay_command(result, check.id)}")
    return visible("\n".join(part for part in parts if part))


def _value(text: str) -> str:
    return elide(text, VALUE_LIMIT)


def _named(text: str) -> str:
    return elide(text, NAME_LIMIT)


def _operation(text: str) -> str:
    return elide(text, OPERATION_LIMIT)


def _transcript(check: CheckResult) -> str:
    excerpt = wire_excerpt(check.wire, WIRE_LINES)
    lines = [f"Exchange ({excerpt.before} earlier lines left out):" if excerpt.before else "Exchange:"]
    for line in excerpt.lines:
        mark = "*" if line.offending else " "
        connection, operation = one_line(elide(line.connection, NAME_LIMIT)), one_line(_operation(line.text))
        lines.append(f"{mark} {line.at:9.4f} {connection} {line.direction} {operation}")
    if excerpt.after:
        lines.append(f"  ({excerpt.after} later lines left out)")
    return "\n".join(lines)


def _run_properties(result: RunResult) -> list[tuple[str, str]]:
    summary, target, suite = result.summary, result.target, result.suite
    return [
        ("verdict", summary.verdict),
        ("exit_code", str(summary.exit_code)),
        ("target.url", target.url),
        ("target.server_name", target.server_name),
        ("target.version", target.version),
        ("target.level", target.level),
        ("target.dimensions", dimensions(target)),
        ("claims", claims_source(result)),
        ("suite.version", suite.version),
        ("suite.requirement_set", suite.requirement_set),
        ("suite.python", suite.python),
        ("suite.platform", suite.platform),
        ("requirements.claimed", str(summary.claimed)),
        ("requirements.tested", str(summary.tested)),
        ("requirements.passed", str(summary.passed)),
    ]


def _properties(parent: ET.Element, named: list[tuple[str, str]]) -> None:
    element = ET.SubElement(parent, "properties")
    for name, value in named:
        if value:
            ET.SubElement(element, "property", {"name": name, "value": one_line(elide(value, MESSAGE_LIMIT))})


def _red_run(result: RunResult) -> ET.Element:
    """A run can be red without a red check (nothing tested, target lost): CI must see that too."""
    case = ET.Element("testcase", {"classname": SUITE, "name": "run", "time": "0.000"})
    ended = _add_ending(case, "error", result.summary.verdict, verdict_line(result))
    ended.text = visible("\n".join([verdict_line(result), *result.summary.reasons]))
    return case


def _is_red_case(case: ET.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def _with_child(cases: list[ET.Element], tag: str) -> int:
    return sum(case.find(tag) is not None for case in cases)


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.3f}"
