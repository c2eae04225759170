"""``plumbline show``: the operations in captures, one line each."""

from __future__ import annotations

from typing import Annotated

import typer

from plumbline.captures.files import CaptureSource, rows
from plumbline.captures.filters import parse
from plumbline.captures.judging import CaptureJudge, violation_json, violation_text
from plumbline.captures.operations import OperationReader
from plumbline.captures.show import as_json, as_text
from plumbline.cli.command import command_app
from plumbline.cli.options import CaptureProtocol, Captures, Filter, Follow
from plumbline.cli.output import flush, print_json, print_line, print_lines, warn
from plumbline.errors import ExitCode

EPILOG = """
Fields of a filter: op, subject, reply, sid, payload, header.NAME, status, size, connection, sender (client
or server); for AMQP also channel and every argument of a method. Events of a connection have the op opened,
closed, reset, lost, undecodable, entered or note. --violations ignores the filter: a rule needs all
operations.

\b
Examples:

\b
  plumbline show captures/
  plumbline show captures/ --follow --filter 'subject ~ "ORDERS.*" and op in (MSG, HMSG)'
  plumbline show captures/ --violations

\b
Exit codes: 0 no violations, 1 violations (with --violations), 2 usage or configuration.
"""

app = command_app()


@app.command("show", epilog=EPILOG)
def show(
    captures: Captures,
    *,
    follow: Follow = False,
    where: Filter = "",
    violations: Annotated[
        bool, typer.Option("--violations", help="Show only operations that break a rule of the protocol.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    protocol: CaptureProtocol = None,
) -> None:
    """Show the operations in captures, one per line."""
    judge = CaptureJudge() if violations else None
    found = seen = 0
    try:
        filter_ = parse(where)
        source = CaptureSource(captures)
        reader = OperationReader(protocol)
        form, show_row = (as_json, print_json) if json else (as_text, print_line)
        packets = source.follow(lambda: False) if follow else source.packets()
        for row in rows(packets, reader):
            if row is None:
                flush()
                continue
            seen += 1
            if judge is not None:
                for violation in judge.observe(row):
                    found += 1
                    if json:
                        print_json(violation_json(violation))
                    else:
                        print_lines(violation_text(violation))
            elif filter_(row.fields):
                show_row(form(row))
    except KeyboardInterrupt:
        return
    for remark in source.remarks:
        warn(remark)
    if not seen:
        warn("no operations of NATS or AMQP were found")
    if reader.lost or reader.undecodable:
        warn(f"{reader.lost} bytes lost, {reader.undecodable} places that could not be decoded")
    if found:
        raise typer.Exit(ExitCode.NOT_CONFORMANT)
