"""``plumbline list``: the requirements, as a table, as tab-separated lines in a pipe, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plumbline.cli.command import command_app
from plumbline.cli.requirements import requirements_and_checks
from plumbline.conformance.requirements.catalogue import (
    PROFILES,
    Requirement,
)
from plumbline.conformance.requirements.explanation import as_json
from plumbline.conformance.requirements.references import CheckReferences
from plumbline.errors import UsageProblem
from plumbline.verdicts import Level


class Format(StrEnum):
    """How ``list`` prints."""

    TEXT = "text"
    JSON = "json"


EPILOG = """
Examples:

\b
  plumbline list                               every requirement
  plumbline list 'JS-PULL-*' --level MUST      all MUST requirements for pull requests
  plumbline list --group JS-ACK --checks       and the checks that verify each
  plumbline list 'CLIENT-*'                    the requirements for client libraries
  plumbline list 'JS-CLUS-*'                   the requirements for clusters under faults
  plumbline list --format json | jq '.[] | select(.excluded)'
"""

app = command_app()


@app.command("list", epilog=EPILOG)
def list_requirements(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATTERN", help="List only ids that match, e.g. 'JS-PULL-*'. Repeatable."),
    ] = None,
    level: Annotated[
        list[Level] | None,
        typer.Option(
            metavar="LEVEL",
            case_sensitive=False,
            help="List only requirements of this level: MUST, SHOULD or MAY. Repeatable.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP", help="List only this group, e.g. JS-PULL. Repeatable."),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(metavar="PROFILE", help=f"List only this profile: {', '.join(PROFILES)}. Repeatable."),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="Print text, or JSON with all fields.")
    ] = Format.TEXT,
    checks: Annotated[
        bool, typer.Option("--checks", help="Print the checks that verify each requirement, too.")
    ] = False,
) -> None:
    """List requirements: id, level, profile, number of checks, text."""
    catalogue, written = requirements_and_checks([*(patterns or ()), *(group or ()), *(profile or ())])
    selected = catalogue.select(patterns or [])
    _require_known("--group", group, [known.id for known in catalogue.groups])
    _require_known("--profile", profile, PROFILES)
    rows = [
        row
        for row in selected
        if (not level or row.level in level)
        and (not group or row.group in {name.upper() for name in group})
        and (not profile or row.profile in profile)
    ]
    if not rows:
        raise UsageProblem("no requirement matches all of these options")
    if form is Format.JSON:
        typer.echo(json.dumps([as_json(row, written) for row in rows], indent=2, ensure_ascii=False))
        return
    console = Console()
    if console.is_terminal:
        console.print(_table(rows, written, checks=checks))
    else:
        for row in rows:
            typer.echo("\t".join(_columns(row, written, checks=checks)))


def _require_known(option: str, values: Sequence[str] | None, known: Iterable[str]) -> None:
    names = list(known)
    for value in values or []:
        if value not in names and value.upper() not in names:
            raise UsageProblem(f"{option} {value!r} is not known; known are: {', '.join(names)}")


def _columns(row: Requirement, written: CheckReferences, *, checks: bool) -> list[str]:
    verifying = written.verifying(row.id)
    count = "excluded" if row.excluded else str(len(verifying))
    named = [" ".join(check.id for check in verifying)] if checks else []
    return [row.id, row.level.value, row.profile, count, row.statement, *named]


def _table(rows: Iterable[Requirement], written: CheckReferences, *, checks: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("id", "level", "profile", "checks"):
        table.add_column(heading, no_wrap=True)
    table.add_column("statement", overflow="fold")
    for row in rows:
        *cells, statement = _columns(row, written, checks=False)
        verifying = written.verifying(row.id) if checks else []
        lines = [statement, *(f"  {check.id}" for check in verifying)]
        table.add_row(*(Text(cell) for cell in cells), Text("\n".join(lines)))
    return table
