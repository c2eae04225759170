"""``plumbline audit``: what happened to each message between publishers and consumers."""

from __future__ import annotations

from typing import Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.exits import exit_codes
from plumbline.cli.options import CaptureProtocol, Captures, JsonFile
from plumbline.cli.output import print_line, warn
from plumbline.errors import ExitCode
from plumbline.pipeline.audit.captures import AuditReader as AuditedCaptures
from plumbline.pipeline.audit.reports import as_json, as_text, exit_code

EPILOG = """
Give the captures of all publishers and consumers. Messages are identified by their payload. For each
JetStream consumer, AMQP queue and subscription a message is ok, lost (prefix, middle or postfix),
duplicated, unexpected or indeterminate. The last messages are indeterminate if they were not delivered,
unless the capture shows that nothing was left to deliver; --complete asserts that.

\b
Examples:

\b
  plumbline audit captures/
  plumbline audit publisher.pcapng consumer-1/ consumer-2/ --complete --json audit.json

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "nothing is lost, duplicated or unexpected",
        ExitCode.NOT_CONFORMANT: "something is, or nothing could be decided",
    }
)

app = command_app()


@app.command("audit", epilog=EPILOG)
def audit(
    captures: Captures,
    complete: Annotated[
        bool, typer.Option("--complete", help="Assume that receivers drained their queues.")
    ] = False,
    json: JsonFile = None,
    most: Annotated[
        int, typer.Option("--most", metavar="N", help="Print at most N messages of each kind per receiver.")
    ] = 10,
    protocol: CaptureProtocol = None,
) -> None:
    """Find lost, duplicated and unexpected messages in captures."""
    found = AuditedCaptures(captures, protocol)
    audited = found.audit(complete=complete)
    for remark in found.remarks:
        warn(remark)
    for line in as_text(audited, found.attempts, most):
        print_line(line)
    if json is not None:
        json.write_bytes(as_json(audited))
    raise typer.Exit(exit_code(audited))
