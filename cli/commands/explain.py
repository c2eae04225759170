"""``plumbline explain``: everything that is known about some requirements."""

from __future__ import annotations

from typing import Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.requirements import requirements_and_checks
from plumbline.conformance.requirements.explanation import explanation

EPILOG = """
Examples:

\b
  plumbline explain JS-PULL-021
  plumbline explain CORE-076 'JS-SEQ-*'
"""

app = command_app()


@app.command("explain", epilog=EPILOG)
def explain(
    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID", help="Ids of requirements, or patterns such as 'JS-PULL-*'."),
    ],
) -> None:
    """Explain requirements: statement, source, checks, an example."""
    catalogue, written = requirements_and_checks(ids)
    rows = catalogue.select(ids)
    titles = {group.id: group.title for group in catalogue.groups}
    typer.echo("\n\n".join(_in_bold(explanation(row, titles[row.group], written)) for row in rows))


def _in_bold(text: str) -> str:
    heading, line_end, rest = text.partition("\n")
    return typer.style(heading, bold=True) + line_end + rest
