"""``plumbline audit``: parses flags, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from plumbline.captures.dialects import known
from plumbline.errors import UsageProblem
from plumbline.pipeline.audit.captures import Captures
from plumbline.pipeline.audit.reports import as_json, as_text, exit_code

Places = Annotated[list[Path], typer.Argument(help="recordings: pcapng or pcap files, or folders of them")]
Complete = Annotated[
    bool, typer.Option("--complete", help="take it that receivers read on until nothing was left for them")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="write every message that is not ok as JSON")]
Most = Annotated[int, typer.Option("--most", help="messages of each kind that are printed for a receiver")]
Spoken = Annotated[
    str | None, typer.Option("--protocol", help="nats or amqp, where the capture does not say")
]


def audit(
    captures: Places,
    complete: Complete = False,
    json: JsonFile = None,
    most: Most = 10,
    protocol: Spoken = None,
) -> None:
    """Tell what was lost, duplicated or made up between publishers and consumers, by payload.

    Give the captures of all publishers and consumers. Each JetStream consumer, AMQP queue and subscription is
    told apart: ok, lost (prefix, middle, postfix), duplicated, unexpected, indeterminate. What came last and
    was not delivered is indeterminate, unless the capture shows that nothing was left; --complete says so.
    Exit 1 if anything is lost, duplicated or unexpected, or nothing could be told.
    """
    if protocol is not None and protocol not in known():
        raise UsageProblem(f"--protocol {protocol}: known are {', '.join(known())}")
    found = Captures(captures, protocol)
    audited = found.audit(complete=complete)
    for remark in found.remarks:
        typer.echo(f"plumbline: {remark}", err=True)
    for line in as_text(audited, found.attempts, most):
        sys.stdout.write(line + "\n")
    if json is not None:
        json.write_bytes(as_json(audited))
    raise typer.Exit(exit_code(audited))


EXAMPLES = """
Examples:

\b
  plumbline audit captures/
  plumbline audit publisher.pcapng consumer-1/ consumer-2/ --complete --json audit.json
"""


def register(app: typer.Typer) -> None:
    """Mounts the command."""
    app.command(epilog=EXAMPLES)(audit)
