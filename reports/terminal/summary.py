"""The end of a run on the terminal: red checks with their evidence, then the rest briefly, then the summary.

Everything a stranger wrote goes through ``plumbline.visible`` and is put into a ``Text``, never into markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, zip_longest
from pathlib import Path

from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from plumbline.reports.digest import (
    CLAIMS_HEAD,
    Score,
    Tone,
    claims_source,
    claims_table,
    counted_outcomes,
    dimensions,
    duration,
    failed_at_first,
    milliseconds,
    other_failures,
    red_checks,
    replay_command,
    requirements_of,
    scores_by_group,
    scores_by_level,
    server,
    tone,
    unsupported_heading,
    unsupported_reasons,
    verdict_line,
    wire_excerpt,
    with_outcome,
)
from plumbline.reports.terminal.progress import STYLES
from plumbline.reports.text import elide
from plumbline.verdicts import CheckResult, Outcome, RunResult, Target
from plumbline.visible import one_line, visible

WIRE_LINES = 12
VALUE_LIMIT = 2_000
LINE_LIMIT = 300
RED_IN_FULL = 40  # the rest are named; a server that fails everything fails for few reasons
MAX_IDS = 3
SIDE_BY_SIDE_FROM = 100  # columns
MIN_WIDTH = 20


def print_result(console: Console, result: RunResult, reports: Sequence[Path]) -> None:
    """Everything that is printed at the end."""
    red = red_checks(result)
    for check in red[:RED_IN_FULL]:
        _print_red(console, check, result)
    if len(red) > RED_IN_FULL:
        _heading(console, f"{len(red) - RED_IN_FULL} more red checks")
        for check in red[RED_IN_FULL:]:
            _brief(console, check, check.message)
    _print_rest(console, result)
    _print_tables(console, result)
    _print_claims(console, result)
    _print_facts(console, result, reports)
    _print_verdict(console, result)


def _print_red(console: Console, check: CheckResult, result: RunResult) -> None:
    console.print()
    console.print(Rule(style="red"))
    head = Text.assemble((check.outcome.upper(), STYLES[check.outcome]), "  ", _bold(check.title or check.id))
    _print(console, head)
    where = f"{check.where}  ({check.id})" if check.where else check.id
    _print(console, Text(one_line(where), style="dim"))
    for requirement in requirements_of(check, result):
        text = Text.assemble(_bold(requirement.id), f" {requirement.level}: ")
        text.append(one_line(requirement.statement))
        if requirement.source:
            text.append(f" [{one_line(requirement.source)}]", style="dim")
        _prose(console, text, lead="  ")
    if check.message:
        console.print()
        for line in visible(elide(check.message, VALUE_LIMIT)).splitlines():
            _prose(console, Text(line), lead="  ")
    for known in check.known:
        _prose(console, Text(one_line(elide(known, VALUE_LIMIT)), style="yellow"), lead="  ")
    _print_pair(console, check)
    _print_wire(console, check)
    console.print()
    _print(console, Text.assemble("  run again: ", _bold(replay_command(result, check.id))))


def _print_pair(console: Console, check: CheckResult) -> None:
    """Expected and actual, aligned so that the eye finds the difference; side by side if both are long."""
    if not check.expected and not check.actual:
        return
    expected = visible(elide(check.expected, VALUE_LIMIT))
    actual = visible(elide(check.actual or "(nothing)", VALUE_LIMIT))
    console.print()
    several = "\n" in expected.strip() and "\n" in actual.strip()
    if several and console.width >= SIDE_BY_SIDE_FROM:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=True)
        table.add_column("Expected", ratio=1, overflow="fold")
        table.add_column("Actual", ratio=1, overflow="fold")
        for one, other in zip_longest(expected.splitlines(), actual.splitlines(), fillvalue=""):
            same = one == other
            table.add_row(Text(one, style="" if same else "green"), Text(other, style="" if same else "red"))
        console.print(table)
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="bold")
    table.add_column(overflow="fold")
    if expected:
        table.add_row("  Expected:", Text(expected, style="green"))
    table.add_row("  Actual:", Text(actual, style="red"))
    console.print(table)


def _print_wire(console: Console, check: CheckResult) -> None:
    if not check.wire:
        return
    excerpt = wire_excerpt(check.wire, WIRE_LINES)
    console.print()
    mark = ", * not as expected" if any(line.offending for line in excerpt.lines) else ""
    _print(console, Text(f"  last operations (seconds, connection, > sent, < received{mark})", style="dim"))
    if excerpt.before:
        _print(console, Text(f"    ... {excerpt.before} earlier", style="dim"))
    width = max(len(one_line(line.connection)) for line in excerpt.lines)
    for line in excerpt.lines:
        text = Text(f"{'  * ' if line.offending else '    '}{line.at:8.4f}  ")
        text.append(f"{one_line(line.connection):{width}} {line.direction} ")
        text.append(elide(one_line(line.text), LINE_LIMIT))
        text.stylize("bold red" if line.offending else "")
        _print(console, text)
    if excerpt.after:
        _print(console, Text(f"    ... {excerpt.after} later", style="dim"))


def _print_rest(console: Console, result: RunResult) -> None:
    failures = other_failures(result)
    if failures:
        _heading(console, f"{len(failures)} failed SHOULD or MAY requirements")
        for check in failures:
            _brief(console, check, check.message or check.title)
            for known in check.known:
                _prose(console, Text(one_line(elide(known, VALUE_LIMIT)), style="yellow"), lead="      ")
    repeated = failed_at_first(result)
    if repeated:
        _heading(console, f"{len(repeated)} failed on this busy machine, and not when repeated alone")
        for check in repeated:
            _brief(console, check, check.first_try)
    waived = with_outcome(result, Outcome.WAIVED)
    if waived:
        _heading(console, f"{len(waived)} failed and are waived")
        for check in waived:
            _brief(console, check, check.waiver)
    stale = with_outcome(result, Outcome.STALE_WAIVER)
    if stale:
        _heading(console, f"{len(stale)} stale waivers: the checks passed; remove the waivers")
        for check in stale:
            _brief(console, check, check.waiver)
    for claim, same_claim in groupby(unsupported_reasons(result), key=lambda reason: reason.claim):
        reasons = list(same_claim)
        count = sum(len(reason.checks) for reason in reasons)
        _heading(console, f"{count} {unsupported_heading(claim, result.target.kind)}")
        for reason in reasons:
            ids = [one_line(check.id) for check in reason.checks[:MAX_IDS]]
            more = len(reason.checks) - len(ids)
            text = Text(elide(one_line(reason.message), LINE_LIMIT))
            text.append(f"  {', '.join(ids)}{f' and {more} more' if more else ''}", style="dim")
            _prose(console, text, lead=f"{len(reason.checks):6d}  ")


def _print_tables(console: Console, result: RunResult) -> None:
    rows = [scores_by_level(result), scores_by_group(result)]
    if not any(rows):
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False, show_edge=False)
    table.add_column("", overflow="fold")
    for column in ("claimed", "tested", "passed", "failed", "waived"):
        table.add_column(column, justify="right", no_wrap=True)
    for scores in rows:
        for score in scores:
            table.add_row(*_cells(score))
        table.add_section()
    console.print()
    console.print(table)
    console.print()


def _print_claims(console: Console, result: RunResult) -> None:
    if result.claims is None:
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False, show_edge=False)
    table.add_column("claims", overflow="fold")
    for column in CLAIMS_HEAD[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    for row, cells in zip(result.claims.rows, claims_table(result.claims), strict=True):
        style = "bold red" if row.contradiction else ""
        table.add_row(*(Text(one_line(cell), style=style) for cell in cells))
    console.print(table)
    console.print()


def _cells(score: Score) -> list[Text]:
    counts = score.counts
    bad = "bold red" if score.failed else ""
    short = "yellow" if counts.tested < counts.claimed else ""
    return [
        Text(one_line(score.name)),
        Text(str(counts.claimed)),
        Text(str(counts.tested), style=short),
        Text(str(counts.passed), style="green" if counts.passed == counts.tested > 0 else ""),
        Text(str(score.failed or "-"), style=bad),
        Text(str(score.waived or "-"), style="cyan" if score.waived else ""),
    ]


def _print_facts(console: Console, result: RunResult, reports: Sequence[Path]) -> None:
    target, suite, summary = result.target, result.suite, result.summary
    facts = [
        ("target", server(target)),
        ("level", target.level),
        ("variants", ", ".join(target.variants)),
        ("dimensions", dimensions(target)),
        ("round trip", _calibration(target)),
        ("suite", f"plumbline {suite.version}, requirement set {suite.requirement_set}"),
        ("checks", ", ".join(f"{number} {outcome}" for outcome, number in counted_outcomes(result))),
        ("requirements", f"{summary.claimed} claimed, {summary.tested} tested, {summary.passed} passed"),
        ("claims", claims_source(result)),
        ("duration", duration(summary.duration_s)),
        *(("report", str(path)) for path in reports),
    ]
    width = max(len(label) for label, _ in facts)
    for label, value in facts:
        if value:
            _prose(console, Text(one_line(value)), lead=f"{label:>{width}}  ")


def _calibration(target: Target) -> str:
    """Nothing of a client: its time limits are generous."""
    if target.kind == "client":
        return ""
    return f"{milliseconds(target.rtt_s)}; {milliseconds(target.slack_s)} added to time limits"


_STYLES: dict[Tone, str] = {"good": "bold green", "bad": "bold red", "unclear": "bold yellow"}


def _print_verdict(console: Console, result: RunResult) -> None:
    console.print()
    style = _STYLES[tone(result.summary.exit_code)]
    _prose(console, Text(one_line(verdict_line(result)), style=style))
    for reason in result.summary.reasons:
        _prose(console, Text(one_line(reason)), lead="  - ")


def _heading(console: Console, text: str) -> None:
    console.print()
    _print(console, Text(text, style="bold"))


def _brief(console: Console, check: CheckResult, reason: str) -> None:
    text = Text.assemble(_bold(check.id), f"  {check.level}")
    if reason:
        text.append(f"  {elide(one_line(reason), LINE_LIMIT)}", style="dim")
    _prose(console, text, lead="  ")


def _bold(text: str) -> tuple[str, str]:
    return one_line(text), "bold"


def _prose(console: Console, text: Text, *, lead: str = "") -> None:
    """A line to read, after ``lead``: broken between words on a terminal, whole elsewhere."""
    start = Text(lead, style="dim" if lead.strip() else "")
    if not console.is_terminal:
        _print(console, start + text)
        return
    for line in text.wrap(console, max(console.width - len(lead), MIN_WIDTH)):
        _print(console, start + line)
        start = Text(" " * len(lead))


def _print(console: Console, text: Text) -> None:
    """A line that is never broken: it can be searched, copied and pasted."""
    console.print(text, soft_wrap=True)
