"""``plumbline trace``: parses flags, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from plumbline.captures import trace_writer
from plumbline.captures.files import read
from plumbline.captures.trace_text import Source as TraceSource
from plumbline.cli.common import Captures, Spoken
from plumbline.errors import UsageProblem

EPILOG = """
Example:

\b
  plumbline trace captures/ --connection 3 -o my.trace
"""

Numbers = Annotated[list[int], typer.Option("--connection", help="as show numbers it; may be given again")]
TraceFile = Annotated[Path | None, typer.Option("--output", "-o", help="instead of standard output")]
Verifies = Annotated[list[str] | None, typer.Option("--verifies", help="the requirement that it shows")]
Title = Annotated[str | None, typer.Option("--title", help="one line")]


def trace(
    captures: Captures,
    connection: Numbers,
    output: TraceFile = None,
    verifies: Verifies = None,
    title: Title = None,
    protocol: Spoken = None,
) -> None:
    """Write recorded traffic as a trace, to be played against any server: plumbline verify URL --trace.

    Edit it afterwards: it expects what the recorded server did, in the order in which it came.
    """
    found = [row for row in read(captures, protocol) if row.connection.number in connection]
    missing = sorted(set(connection) - {row.connection.number for row in found})
    if missing:
        raise UsageProblem(f"no connection {', '.join(map(str, missing))} in {', '.join(map(str, captures))}")
    named = f"connection {', '.join(map(str, connection))} of {', '.join(path.name for path in captures)}"
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
