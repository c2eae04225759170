"""``plumbline replay``: parses flags, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from proxy import diff_reports
from proxy.addresses import AddressError, Endpoint
from proxy.capture_reader import CaptureError
from proxy.captures import read
from proxy.cli_common import EXIT_FOUND, EXIT_UNREACHABLE, Captures, usage
from proxy.diff import compare, differs
from proxy.record import recorded
from proxy.replay import Pace, Replay, Unreachable, credentials_of

EPILOG = """
Example:

\b
  plumbline replay captures/ nats://host:4222
"""

Target = Annotated[str, typer.Argument(metavar="URL", help="nats://[user:pass@]host:port")]
SomeNumbers = Annotated[list[int] | None, typer.Option("--connection", help="only these")]
Speed = Annotated[Pace, typer.Option(help="with the pauses of the recording, or without")]
ReplayOutput = Annotated[Path, typer.Option("--output", "-o", help="the capture of the replay")]


def replay(
    captures: Captures,
    url: Target,
    connection: SomeNumbers = None,
    pace: Speed = Pace.FAST,
    output: ReplayOutput = Path("replay"),
) -> None:
    """Send once more what the NATS clients of a capture sent, record that, too, and tell what differs.

    The server gets the same names: streams that the clients made are made. Exit 1 if something differs.
    """
    try:
        chosen = [
            row for row in read(captures, "nats") if not connection or row.connection.number in connection
        ]
        server = Endpoint.parse(url)
        userinfo = url.partition("://")[2].rpartition("@")[0]
        with recorded(f"nats://{server}", output) as proxy:
            again = Replay(proxy.relay.address, credentials_of(userinfo), pace)
            again.run(chosen)
        pairs = compare(chosen, read([Path(name) for name in proxy.counters.files], "nats"))
    except Unreachable as error:
        typer.echo(f"{url.rpartition('@')[2]} cannot be reached: {error}", err=True)
        raise typer.Exit(EXIT_UNREACHABLE) from None
    except (AddressError, CaptureError) as error:
        raise usage(str(error)) from None
    typer.echo(
        f"{again.sent} operations sent, {again.late} of them without all that had come then; in {output}"
    )
    for line in diff_reports.as_text(pairs):
        sys.stdout.write(line + "\n")
    if differs(pairs):
        raise typer.Exit(EXIT_FOUND)
