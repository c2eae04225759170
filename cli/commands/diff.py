"""``plumbline diff``: parses flags, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from plumbline.captures import diff_reports
from plumbline.captures.diff import compare, differs
from plumbline.captures.files import read
from plumbline.captures.filters import parse
from plumbline.cli.common import Spoken
from plumbline.errors import ExitCode

EPILOG = """
Example:

\b
  plumbline diff good.pcapng bad.pcapng --html d.html
"""

Asked = Annotated[str, typer.Option("--filter", help='like: subject ~ "ORDERS.*" and op in (MSG, HMSG)')]
FirstCapture = Annotated[Path, typer.Argument(help="a capture, or a folder of one recording")]
SecondCapture = Annotated[Path, typer.Argument(help="the one to compare it with")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="write the differences as JSON")]
HtmlFile = Annotated[Path | None, typer.Option("--html", help="write the two side by side")]


def diff(
    first: FirstCapture,
    second: SecondCapture,
    where: Asked = "",
    protocol: Spoken = None,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """Compare two recordings by what was said, not by inboxes, ids and times. Exit 1 if they differ."""
    wanted = parse(where)
    one, other = (filter(lambda row: wanted(row.fields), read([side], protocol)) for side in (first, second))
    pairs = compare(one, other)
    for line in diff_reports.as_text(pairs):
        sys.stdout.write(line + "\n")
    if json is not None:
        json.write_text(diff_reports.as_json(pairs))
    if html is not None:
        html.write_text(diff_reports.as_html(pairs, str(first), str(second)))
    if differs(pairs):
        raise typer.Exit(ExitCode.NOT_CONFORMANT)
