"""``plumbline show``: parses flags, and nothing else."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from plumbline.captures.dialects import known
from plumbline.captures.files import Source, rows
from plumbline.captures.filters import parse
from plumbline.captures.judging import Judge, violation_json
from plumbline.captures.operations import Reader
from plumbline.captures.show import as_json, as_text
from plumbline.cli.common import Captures, Spoken
from plumbline.errors import ExitCode, UsageProblem

EPILOG = """
Examples:

\b
  plumbline show captures/ --follow --filter 'subject ~ "ORDERS.*" and op in (MSG, HMSG)'
  plumbline show captures/ --violations
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
