"""A Markdown summary for the job pages of CI systems: verdict, counts, red checks.

Text that strangers wrote stands only inside code spans and fences longer than any run of backticks
in it, where Markdown, HTML and @mentions mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from plumbline.reports.digest import (
    CLAIMS_HEAD,
    Tone,
    claims_table,
    counted_outcomes,
    dimensions,
    duration,
    red_checks,
    replay_command,
    scores_by_level,
    server,
    tone,
    unsupported_heading,
    unsupported_reasons,
    verdict_line,
    wire_excerpt,
)
from plumbline.reports.files import ReportFile
from plumbline.reports.text import elide
from plumbline.verdicts import CheckResult, Event, RunFinished, RunResult
from plumbline.visible import one_line, visible

MAX_RED_CHECKS = 20  # a job page holds 1 MiB on the smallest of the known systems
VALUE_LIMIT = 1_000
NAME_LIMIT = 100
BLOCK_LIMIT = 20_000
WIRE_LINES = 12
# Words with ordinary punctuation between them: no address (a.b, a:b, a/b), no list or heading at the start.
_WORD = r"\(?[A-Za-z0-9']{1,30}(?:-[A-Za-z0-9']{1,30}|\([A-Za-z0-9']{1,30}\))*\)?[.,;:]?"
_PLAIN = re.compile(rf"(?![0-9]+[.)] ){_WORD}(?: {_WORD})*")
MARKS: dict[Tone, str] = {"good": "✅", "bad": "❌", "unclear": "⚠️"}


class MarkdownSummary:
    """Writes the file at the end of a run."""

    def __init__(self, path: Path) -> None:
        self._file = ReportFile(path, "md")

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._file.write(render(event.result).encode())


def render(result: RunResult) -> str:
    """The whole page."""
    summary, target = result.summary, result.target
    red = red_checks(result)
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in counted_outcomes(result)) or "none"
    parts = [
        f"## {MARKS[tone(summary.exit_code)]} {prose(verdict_line(result))}",
        "; ".join(
            [
                code(server(target)),
                *([code(dimensions(target))] if target.dimensions else []),
                _judged_by(result),
                duration(summary.duration_s),
            ]
        ),
        "\n".join(f"- {prose(reason)}" for reason in summary.reasons),
        _table(
            ["Level", "Claimed", "Tested", "Passed"],
            [
                [score.name, str(score.counts.claimed), str(score.counts.tested), str(score.counts.passed)]
                for score in scores_by_level(result)
            ],
        ),
        _claims(result),
        f"Checks: {outcomes}.",
        "\n".join(
            f"- {sum(len(reason.checks) for reason in reasons)} {unsupported_heading(claim, target.kind)}"
            for claim, reasons in groupby(unsupported_reasons(result), key=lambda reason: reason.claim)
            if claim
        ),
        *(_red(check, result) for check in red[:MAX_RED_CHECKS]),
    ]
    if len(red) > MAX_RED_CHECKS:
        parts.append(f"{len(red) - MAX_RED_CHECKS} more red checks are in the other reports.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _claims(result: RunResult) -> str:
    if result.claims is None:
        return ""
    head = [name.capitalize() or "Claims" for name in CLAIMS_HEAD]
    rows = claims_table(result.claims)
    return _table(head, [[code(cell) if cell else "" for cell in row] for row in rows])


def _judged_by(result: RunResult) -> str:
    return f"plumbline {code(result.suite.version)}, requirement set {code(result.suite.requirement_set)}"


def _red(check: CheckResult, result: RunResult) -> str:
    ids = ", ".join(code(requirement) for requirement in check.requirements)
    evidence = [elide(check.message, VALUE_LIMIT)]
    evidence += [f"Expected: {elide(check.expected, VALUE_LIMIT)}"] if check.expected else []
    evidence += [f"Actual:   {elide(check.actual, VALUE_LIMIT)}"] if check.actual else []
    evidence += [
        f"{'*' if line.offending else ' '} {line.at:9.4f} {elide(line.connection, NAME_LIMIT)}"
        f" {line.direction} {one_line(elide(line.text, VALUE_LIMIT))}"
        for line in wire_excerpt(check.wire, WIRE_LINES).lines
    ]
    return "\n\n".join(
        [
            f"### {prose(check.title or check.id)}",
            f"{check.outcome}, {check.level}: {ids} · {code(check.where or check.id)}",
            *(prose(known) for known in check.known),
            fence("\n".join(part for part in evidence if part)),
            fence(replay_command(result, check.id)),
        ]
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def prose(text: str) -> str:
    """``text`` as plain words; as a code span if anything in it could mean more than it says.

    Entities would not do: systems look for @names, #numbers, :signs: and addresses in what is shown.
    """
    line = one_line(elide(text, VALUE_LIMIT))
    return line if _PLAIN.fullmatch(line) else code(text)


def code(text: str) -> str:
    """``text`` as a code span that also holds in a table cell."""
    line = one_line(elide(text, VALUE_LIMIT)).replace("|", "¦") or "-"
    ticks = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fence(text: str) -> str:
    """``text`` as a block that is shown as it is."""
    block = visible(elide(text, BLOCK_LIMIT))
    ticks = "`" * max(3, _longest_run(block) + 1)
    return f"{ticks}text\n{block}\n{ticks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
