"""``plumbline diff``: two recordings, compared operation by operation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plumbline.captures import diff_reports
from plumbline.captures.diff import compare, differs
from plumbline.captures.files import read
from plumbline.captures.filters import parse
from plumbline.cli.command import command_app
from plumbline.cli.exits import exit_codes
from plumbline.cli.options import CaptureProtocol, Filter, JsonFile
from plumbline.cli.output import print_line
from plumbline.errors import ExitCode

EPILOG = """
Inboxes, ids and times are not compared: they differ from run to run.

\b
Examples:

\b
  plumbline diff good.pcapng bad.pcapng
  plumbline diff good/ bad/ --filter 'subject ~ "ORDERS.*"' --html diff.html

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "no differences",
        ExitCode.NOT_CONFORMANT: "differences",
    }
)

app = command_app()


@app.command("diff", epilog=EPILOG)
def diff(
    first: Annotated[
        Path, typer.Argument(metavar="FIRST", help="A capture, or a folder with one recording.")
    ],
    second: Annotated[Path, typer.Argument(metavar="SECOND", help="The capture or folder to compare with.")],
    where: Filter = "",
    protocol: CaptureProtocol = None,
    json: JsonFile = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write both recordings side by side as HTML."),
    ] = None,
) -> None:
    """Compare the operations of two recordings."""
    filter_ = parse(where)
    one, other = (filter(lambda row: filter_(row.fields), read([side], protocol)) for side in (first, second))
    pairs = compare(one, other)
    for line in diff_reports.as_text(pairs):
        print_line(line)
    if json is not None:
        json.write_text(diff_reports.as_json(pairs))
    if html is not None:
        html.write_text(diff_reports.as_html(pairs, str(first), str(second)))
    if differs(pairs):
        raise typer.Exit(ExitCode.NOT_CONFORMANT)
