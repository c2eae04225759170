"""``plumbline replay``: recorded clients played against a server, or the recorded server against clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from plumbline.captures import diff_reports
from plumbline.captures.diff import compare, differs
from plumbline.captures.files import read
from plumbline.captures.operations import OperationRow
from plumbline.cli.access import with_tls_options
from plumbline.cli.command import command_app
from plumbline.cli.exits import exit_codes
from plumbline.cli.options import CaptureProtocol, Captures, Connections, output_option
from plumbline.cli.output import conceal, flush, print_line
from plumbline.cli.passwords import PasswordFile, given_passwords
from plumbline.conformance.targets.links import open_link
from plumbline.conformance.targets.urls import parse_url
from plumbline.errors import ExitCode, TargetUnreachable, UsageProblem
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.record import recorded
from plumbline.proxy.replay.client import ReplayCredentials, ReplayStoppedError, ServerUnreachableError
from plumbline.proxy.replay.playback import Pace, Replay
from plumbline.proxy.replay.server import ReplayedServer
from plumbline.proxy.tls.contexts import TlsSettings, settings_before
from plumbline.tls import TlsOptions

EPILOG = """
The replay uses the same names: it creates the streams and queues that the recorded clients created. Names,
tags and subjects that the server chooses are replaced by those that it chooses now. With --serve the
clients are real and the recording answers: the n-th client to connect gets the answers of the n-th recorded
connection.

\b
Examples:

\b
  plumbline replay captures/ nats://host:4222
  plumbline replay captures/ amqp://guest:guest@host:5672 --pace original
  plumbline replay captures/ nats://user@host:4222 --password-file FILE
  plumbline replay captures/ tls://host:4222 --tls-ca ca.pem
  plumbline replay captures/ nats://127.0.0.1:4222 --serve

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "the answers are the same",
        ExitCode.NOT_CONFORMANT: "differences",
        ExitCode.TARGET_LOST: "server unreachable",
    }
)

app = command_app()


@app.command("replay", epilog=EPILOG)
@with_tls_options
def replay(
    captures: Captures,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Server to replay to, or with --serve the address to listen on: "
            "nats:// or amqp://[user:password@]host:port[/vhost]; with TLS tls:// and amqps://.",
        ),
    ],
    *,
    password_file: PasswordFile = None,
    tls: TlsOptions,
    connection: Connections = None,
    pace: Annotated[
        Pace, typer.Option(help="Keep the pauses of the recording (original) or leave them out (fast).")
    ] = Pace.FAST,
    output: Annotated[
        Path, output_option("PATH", "Record the replay to this folder, or file that ends in .pcapng.")
    ] = Path("replay"),
    serve: Annotated[
        bool, typer.Option("--serve", help="Replay the server instead, to clients that connect to URL.")
    ] = False,
    protocol: CaptureProtocol = None,
) -> None:
    """Replay recorded clients to a server and compare the answers."""
    login = ReplayCredentials.of(url, given_passwords(url, password_file).url)
    conceal(login.mask)
    encrypted = settings_before(Endpoint.parse(url), tls)
    if serve and encrypted is not None:
        raise UsageProblem("--serve answers without TLS: write nats:// or amqp://")
    if encrypted is not None:
        _require_tls(url, tls)
    try:
        chosen = [
            row for row in read(captures, protocol) if not connection or row.connection.number in connection
        ]
        again = (
            _replay_server(chosen, url, output, pace)
            if serve
            else _replay_clients(chosen, url, login, output, pace, encrypted)
        )
        pairs = compare(chosen, again)
    except ServerUnreachableError as error:
        place = url.rpartition("@")[2]
        raise TargetUnreachable(f"{place} is not reachable: {error}") from None
    except ReplayStoppedError as error:
        raise TargetUnreachable(f"{url.rpartition('@')[2]}: {error}") from None
    for line in diff_reports.as_text(pairs):
        print_line(line)
    if differs(pairs):
        raise typer.Exit(ExitCode.NOT_CONFORMANT)


def _require_tls(url: str, tls: TlsOptions) -> None:
    """Raises ``PlumblineError`` with one sentence if the server's TLS is refused, before anything is sent."""
    named = parse_url(url).with_tls(tls)
    try:
        open_link(named).close()
    except OSError as error:
        raise TargetUnreachable(f"{named.address} is not reachable: {error.strerror or error}") from None


def _replay_clients(
    chosen: list[OperationRow],
    url: str,
    login: ReplayCredentials,
    output: Path,
    pace: Pace,
    encrypted: TlsSettings | None,
) -> Iterator[OperationRow]:
    """Replay the clients; gives the rows of the new recording."""
    with recorded(url, output, tls=encrypted) as proxy:
        again = Replay(proxy.relay.address, login, pace)
        again.run(chosen)
    late = f"{again.late} of them before all earlier answers had arrived"
    print_line(f"{again.sent} operations sent, {late}; recorded in {output}")
    return read([Path(name) for name in proxy.counters.files], Endpoint.parse(url).protocol)


def _replay_server(chosen: list[OperationRow], url: str, output: Path, pace: Pace) -> Iterator[OperationRow]:
    """Replay the server; gives the rows of the new recording."""
    address = Endpoint.parse(url)
    server = ReplayedServer(chosen, pace)
    with recorded(f"{address.protocol}://{server.address}", output, listen=str(address)) as proxy:
        print_line(f"{proxy.url}: waiting for {server.clients} clients")
        flush()
        server.run()
    print_line(f"{server.sent_count} operations sent to {server.accepted} clients; recorded in {output}")
    for line in server.unheard:
        print_line(line)
    return read([Path(name) for name in proxy.counters.files], address.protocol)
