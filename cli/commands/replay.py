"""``plumbline replay``: parses flags, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from plumbline.captures import diff_reports
from plumbline.captures.diff import compare, differs
from plumbline.captures.files import read
from plumbline.captures.operations import Row
from plumbline.cli.common import Captures, Spoken
from plumbline.errors import ExitCode, TargetUnreachable
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.record import recorded
from plumbline.proxy.replay.client import Login, Unreachable
from plumbline.proxy.replay.playback import Pace, Replay
from plumbline.proxy.replay.server import ReplayedServer

EPILOG = """
Example:

\b
  plumbline replay captures/ nats://host:4222
  plumbline replay captures/ amqp://guest:guest@host:5672 --pace original
  plumbline replay captures/ nats://127.0.0.1:4222 --serve
"""

Target = Annotated[str, typer.Argument(metavar="URL", help="nats:// or amqp://[user:pass@]host:port[/vhost]")]
SomeNumbers = Annotated[list[int] | None, typer.Option("--connection", help="only these")]
Speed = Annotated[Pace, typer.Option(help="with the pauses of the recording, or without")]
ReplayOutput = Annotated[Path, typer.Option("--output", "-o", help="the capture of the replay")]
Serve = Annotated[
    bool, typer.Option("--serve", help="play the server instead, for clients that connect to URL")
]


def replay(
    captures: Captures,
    url: Target,
    *,
    connection: SomeNumbers = None,
    pace: Speed = Pace.FAST,
    output: ReplayOutput = Path("replay"),
    serve: Serve = False,
    protocol: Spoken = None,
) -> None:
    """Send once more what the clients of a capture sent, record that, too, and tell what differs.

    The server gets the same names: streams and queues that the clients made are made. Names, tags and
    subjects that it chooses are those that it chooses now. With --serve the clients are real and the server
    is the recording: the n-th client to connect is answered as the n-th was. Exit 1 if something differs.
    """
    try:
        chosen = [
            row for row in read(captures, protocol) if not connection or row.connection.number in connection
        ]
        again = _served(chosen, url, output, pace) if serve else _sent(chosen, url, output, pace)
        pairs = compare(chosen, again)
    except Unreachable as error:
        raise TargetUnreachable(f"{url.rpartition('@')[2]} cannot be reached: {error}") from None
    for line in diff_reports.as_text(pairs):
        sys.stdout.write(line + "\n")
    if differs(pairs):
        raise typer.Exit(ExitCode.NOT_CONFORMANT)


def _sent(chosen: list[Row], url: str, output: Path, pace: Pace) -> Iterator[Row]:
    """The recording of what the clients say now, and hear."""
    with recorded(url, output) as proxy:
        again = Replay(proxy.relay.address, Login.of(url), pace)
        again.run(chosen)
    late = f"{again.late} of them without all that had come then"
    typer.echo(f"{again.sent} operations sent, {late}; in {output}")
    return read([Path(name) for name in proxy.counters.files], Endpoint.parse(url).protocol)


def _served(chosen: list[Row], url: str, output: Path, pace: Pace) -> Iterator[Row]:
    """The recording of what the clients hear now, and say."""
    address = Endpoint.parse(url)
    server = ReplayedServer(chosen, pace)
    with recorded(f"{address.protocol}://{server.address}", output, listen=str(address)) as proxy:
        typer.echo(f"{proxy.url}: waiting for {server.clients} clients")
        sys.stdout.flush()
        server.run()
    typer.echo(f"{server.said} operations sent to {server.accepted} clients; in {output}")
    for line in server.unheard:
        typer.echo(line)
    return read([Path(name) for name in proxy.counters.files], address.protocol)
