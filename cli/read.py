"""``plumbline show``, ``trace`` and ``diff``: parses flags, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from plumbline.captures import diff_reports, trace_writer
from plumbline.captures.dialects import known
from plumbline.captures.diff import compare, differs
from plumbline.captures.files import Source, read, rows
from plumbline.captures.filters import parse
from plumbline.captures.judging import Judge, violation_json
from plumbline.captures.operations import Reader
from plumbline.captures.show import as_json, as_text
from plumbline.captures.trace_text import Source as TraceSource
from plumbline.cli.common import Captures, Spoken
from plumbline.errors import ExitCode, UsageProblem

SHOW_EPILOG = """
Examples:

\b
  plumbline show captures/ --follow --filter 'subject ~ "ORDERS.*" and op in (MSG, HMSG)'
  plumbline show captures/ --violations
"""
TRACE_EPILOG = """
Example:

\b
  plumbline trace captures/ --connection 3 -o my.trace
"""
DIFF_EPILOG = """
Example:

\b
  plumbline diff good.pcapng bad.pcapng --html d.html
"""

Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="go on with what is being recorded, until Ctrl-C")
]
Asked = Annotated[str, typer.Option("--filter", help='like: subject ~ "ORDERS.*" and op in (MSG, HMSG)')]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line")]


Rules = Annotated[
    bool,
    typer.Option("--violations", help="only what breaks the protocol's rules; exit code 1 if any"),
]


def show(
    captures: Captures,
    *,
    follow: Follow = False,
    where: Asked = "",
    violations: Rules = False,
    json: Json = False,
    protocol: Spoken = None,
) -> None:
    """Decode captures, of plumbline record or of tcpdump: one operation a line.

    A filter compares fields: op, subject, reply, sid, payload, header.NAME, status, size, connection,
    sender (client, server); of AMQP also channel and every argument of the method. Remarks have the op
    opened, closed, reset, lost, undecodable, entered, note. With --violations the filter does not matter:
    a rule needs all that was said.
    """
    judge = Judge() if violations else None
    found = 0
    try:
        wanted = parse(where)
        source = Source(captures)
        if protocol is not None and protocol not in known():
            raise UsageProblem(f"--protocol {protocol}: known are {', '.join(known())}")
        reader = Reader(protocol)
        form = as_json if json else as_text
        packets = source.follow(lambda: False) if follow else source.packets()
        for row in rows(packets, reader):
            if row is None:
                sys.stdout.flush()
            elif judge is not None:
                for violation in judge.observe(row):
                    found += 1
                    sys.stdout.write((violation_json(violation) if json else str(violation)) + "\n")
            elif wanted(row.fields):
                sys.stdout.write(form(row) + "\n")
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        sys.stderr.close()  # whoever read has seen enough
        return
    for remark in source.remarks:
        typer.echo(f"plumbline: {remark}", err=True)
    if reader.lost or reader.undecodable:
        typer.echo(
            f"plumbline: {reader.lost} bytes lost, {reader.undecodable} places that are not the protocol",
            err=True,
        )
    if found:
        raise typer.Exit(ExitCode.NOT_CONFORMANT)


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
