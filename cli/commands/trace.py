"""``plumbline trace``: a trace made from recorded traffic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from plumbline.captures import trace_writer
from plumbline.captures.files import read
from plumbline.captures.trace_text import TraceHeader as TraceSource
from plumbline.cli.command import command_app
from plumbline.cli.options import CaptureProtocol, Captures, Connections, output_option
from plumbline.errors import UsageProblem

EPILOG = """
Edit the trace before you use it: it expects exactly what the recorded server sent, in the same order.

\b
Examples:

\b
  plumbline trace captures/ --connection 3 -o my.trace
  plumbline verify URL --trace my.trace
"""

app = command_app()


@app.command("trace", epilog=EPILOG)
def trace(
    captures: Captures,
    connection: Connections,
    output: Annotated[
        Path | None, output_option("FILE", "Write the trace to this file. Default: standard output.")
    ] = None,
    verifies: Annotated[
        list[str] | None,
        typer.Option(
            "--verifies", metavar="ID", help="Id of the requirement that the trace verifies. Repeatable."
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="Title of the trace, one line.")
    ] = None,
    protocol: CaptureProtocol = None,
) -> None:
    """Write recorded traffic as a trace for verify."""
    wanted = connection or []
    found = [row for row in read(captures, protocol) if row.connection.number in wanted]
    missing = sorted(set(wanted) - {row.connection.number for row in found})
    if missing:
        raise UsageProblem(f"no connection {', '.join(map(str, missing))} in {', '.join(map(str, captures))}")
    named = f"connection {', '.join(map(str, wanted))} of {', '.join(path.name for path in captures)}"
    about = TraceSource(
        title or f"Recorded: {named}", trace_writer.source_of(named, found), tuple(verifies or ())
    )
    try:
        text = trace_writer.write(found, about)
    except ValueError as error:
        raise UsageProblem(f"{named}: {error}") from None
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text)
