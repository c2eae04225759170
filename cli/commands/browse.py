"""``plumbline list``, ``explain`` and ``variants``: what the suite holds, without a server.

Prints what the catalogue, the written checks and the variants say, as a table on a terminal, as
tab-separated lines in a pipe, or as JSON. It runs no check, so it knows no verdict and no defect.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plumbline.conformance import known_failures
from plumbline.conformance.requirements.catalogue import (
    PROFILES,
    Catalogue,
    Requirement,
)
from plumbline.conformance.requirements.references import Written, written_checks
from plumbline.conformance.variants import Variant, main_server, variants
from plumbline.errors import UsageProblem
from plumbline.verdicts import Level

WIDTH = 100
LABEL = 12  # columns that the labels of an explanation take


class Format(StrEnum):
    """How ``list`` prints."""

    TEXT = "text"
    JSON = "json"


LIST_EPILOG = """
Examples:

\b
  plumbline list                               every requirement
  plumbline list 'JS-PULL-*' --level MUST      what a server must do with pull requests
  plumbline list --group JS-ACK --checks       with the checks that verify each
  plumbline list 'CLIENT-*'                    what a client library must do (plumbline gate)
  plumbline list --format json | jq '.[] | select(.excluded)'
"""

EXPLAIN_EPILOG = """
Examples:

\b
  plumbline explain JS-PULL-021
  plumbline explain CORE-076 'JS-SEQ-*'
"""

VARIANTS_EPILOG = """
A stock server cannot show authentication, permissions or limits. Start the same server once more with
such a configuration, and name it to verify.

\b
Examples:

\b
  plumbline variants                           all of them, with the credentials they want
  plumbline variants auth > auth.json          the configuration of one, which nats-server reads
  nats-server -c auth.json -p 4300
  plumbline verify URL --variant auth=nats://plumb:line@127.0.0.1:4300
"""


def register(app: typer.Typer) -> None:
    """Mount the commands on ``app``."""
    app.command("list", epilog=LIST_EPILOG)(list_requirements)
    app.command("explain", epilog=EXPLAIN_EPILOG)(explain_requirements)
    app.command("variants", epilog=VARIANTS_EPILOG)(show_variants)


def list_requirements(
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="PATTERN", help="Ids or patterns of ids: 'JS-PULL-*'.")
    ] = None,
    level: Annotated[
        list[Level] | None, typer.Option(case_sensitive=False, help="Only this level. Repeatable.")
    ] = None,
    group: Annotated[list[str] | None, typer.Option(help="Only this group: JS-PULL. Repeatable.")] = None,
    profile: Annotated[
        list[str] | None, typer.Option(help=f"Only this profile: {', '.join(PROFILES)}. Repeatable.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Text, or JSON with every field.")] = Format.TEXT,
    checks: Annotated[bool, typer.Option("--checks", help="Name the checks that verify each.")] = False,
) -> None:
    """List requirements: id, level, profile, how many checks verify it, statement."""
    catalogue, written = _asked(*(patterns or ()), *(group or ()), *(profile or ()))
    _known("--group", group, [known.id for known in catalogue.groups])
    _known("--profile", profile, PROFILES)
    rows = [
        row
        for row in _selected(catalogue, patterns or [])
        if (not level or row.level in level)
        and (not group or row.group in {name.upper() for name in group})
        and (not profile or row.profile in profile)
    ]
    if not rows:
        raise UsageProblem("no requirement matches all of these together")
    if form is Format.JSON:
        typer.echo(json.dumps([as_json(row, written) for row in rows], indent=2, ensure_ascii=False))
        return
    console = Console()
    if console.is_terminal:
        console.print(_table(rows, written, checks=checks))
    else:
        for row in rows:
            typer.echo("\t".join(_columns(row, written, checks=checks)))


def explain_requirements(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids or patterns of ids.")],
) -> None:
    """Explain requirements: statement, source, what documents and servers say, checks, an exchange."""
    catalogue, written = _asked(*ids)
    rows = _selected(catalogue, ids)
    titles = {group.id: group.title for group in catalogue.groups}
    typer.echo("\n\n".join(explanation(row, titles[row.group], written) for row in rows))


def show_variants(
    name: Annotated[str | None, typer.Argument(help="Print the configuration of this one.")] = None,
) -> None:
    """List the server configurations that some checks need, or print one to start a server with."""
    known = {"main": main_server(), **variants()}
    if name is None:
        typer.echo("\n\n".join(_described(variant) for variant in known.values()))
        return
    _known("NAME", [name], known)
    typer.echo(json.dumps(known[name].config, indent=2, ensure_ascii=False))


def as_json(row: Requirement, written: Written) -> dict[str, Any]:
    """A requirement with all its fields, and the checks that verify it. A trace among them is the sample."""
    fields: dict[str, Any] = msgspec.to_builtins(row)
    sample = "\n".join(_exchange(row, written)[1])
    checks = [{"id": check.id, "where": check.where} for check in written.verifying(row.id)]
    return {**fields, "sample": sample, "checks": checks}


def explanation(row: Requirement, group: str, written: Written) -> str:
    """What ``plumbline explain`` prints for one requirement."""
    heading = typer.style(f"{row.id}  {row.level}", bold=True) + f"  {group}"
    verifying = [f"{check.id}  ({check.where})" for check in written.verifying(row.id)]
    facts = [
        ("source", row.source),
        ("profile", f"{row.profile}: {PROFILES[row.profile]}"),
        ("since", row.since and f"protocol level {row.since}"),
        ("until", row.until and f"before protocol level {row.until}"),
        ("documented", row.documented),
        ("observed", row.observed),
        *[("failure", known_failures.said(failure)) for failure in row.known_failures],
        ("excluded", row.excluded),
        *[("checks" if number == 0 else "", check) for number, check in enumerate(verifying)],
    ]
    if not verifying and not row.excluded:
        facts.append(("checks", "none"))
    lines = [heading, *textwrap.wrap(row.statement, WIDTH), ""]
    for label, text in facts:
        lines += _labelled(label, text)
    heading, exchange = _exchange(row, written)
    if exchange:
        lines += ["", heading, *(f"    {line}".rstrip() for line in exchange)]
    return "\n".join(lines)


def _exchange(row: Requirement, written: Written) -> tuple[str, Sequence[str]]:
    """What passes on the wire: the first trace that verifies it, else its sample. A heading, and lines."""
    played = written.played(row.id)
    if played is None:
        return "a sample exchange", row.sample.splitlines()
    return f"the exchange that is run: {played.where}", played.exchange


def _labelled(label: str, text: str) -> list[str]:
    """Nothing for an empty text. A path is never broken."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"{label:<{LABEL}}",
        subsequent_indent=" " * LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _columns(row: Requirement, written: Written, *, checks: bool) -> list[str]:
    verifying = written.verifying(row.id)
    count = "excluded" if row.excluded else str(len(verifying))
    named = [" ".join(check.id for check in verifying)] if checks else []
    return [row.id, row.level.value, row.profile, count, row.statement, *named]


def _table(rows: Iterable[Requirement], written: Written, *, checks: bool) -> Table:
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


def _described(variant: Variant) -> str:
    texts = [variant.description]
    for role, fields in variant.credentials.items():
        texts.append(f"{role}: " + ", ".join(f"{field} {value}" for field, value in fields.items()))
    wrapped = (textwrap.fill(t, WIDTH, initial_indent="    ", subsequent_indent="    ") for t in texts)
    return "\n".join([typer.style(variant.name, bold=True), *wrapped])


def _asked(*names: str) -> tuple[Catalogue, Written]:
    """The requirements of servers and their checks; those of clients with them if a name asks for one."""
    from plumbline.conformance.clients.written import is_about_clients, with_clients

    catalogue, written = Catalogue.load(), written_checks()
    return with_clients(catalogue, written) if is_about_clients(names) else (catalogue, written)


def _selected(catalogue: Catalogue, patterns: Sequence[str]) -> list[Requirement]:
    return catalogue.select(patterns)


def _known(option: str, values: Sequence[str] | None, known: Iterable[str]) -> None:
    names = list(known)
    for value in values or []:
        if value not in names and value.upper() not in names:
            raise UsageProblem(f"{option} {value!r} is not known; there are: {', '.join(names)}")
