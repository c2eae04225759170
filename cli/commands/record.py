"""``plumbline record``: a proxy that records traffic, and can inject faults."""

from __future__ import annotations

import signal
import ssl
import sys
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from plumbline.captures.judging import RecordingJudge
from plumbline.captures.rolling import CaptureFiles
from plumbline.cli.command import command_app
from plumbline.cli.exits import exit_codes
from plumbline.cli.options import Faults, Seed, ServeTls, output_option, seconds, size
from plumbline.cli.output import warn
from plumbline.errors import ExitCode, UsageProblem
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.faults.control import ControlApi
from plumbline.proxy.faults.language import parse_fault
from plumbline.proxy.live_display import LiveDisplay
from plumbline.proxy.record import RecordingProxy
from plumbline.proxy.recorder import Recording, WhenFull
from plumbline.proxy.tls.certificates import default_folder, generated
from plumbline.proxy.tls.contexts import ProxySide, client_context, tls_settings
from plumbline.tls import TlsOptions
from plumbline.wire.nats.secrets import SECRETS

EPILOG = """
Bytes are forwarded as they arrive. Secrets are masked in the files, by as many characters.

\b
Faults of the connection, one per --fault, on both directions or with "on upstream" or "on downstream":
  latency 50ms ±10ms, bandwidth 100k, slice 10 every 5ms, slow_close 500ms, limit 10k, reset 2s, timeout 2s

\b
Faults of operations:
  drop +ACK every 10th, duplicate MSG the 3rd, reorder HMSG with 5%, delay 200ms PUB where subject ~ "a.>",
  rewrite MSG the 3rd set payload="x"

\b
Examples:

\b
  plumbline record nats://127.0.0.1:4222 --listen 127.0.0.1:4333 -o captures/
  plumbline record amqp://127.0.0.1:5672 --listen 127.0.0.1:5673 --live
  plumbline record URL --listen :4333 --fault 'drop +ACK every 10th'

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "ended by Ctrl-C or SIGTERM",
        ExitCode.NOT_CONFORMANT: "violations (with --live)",
        ExitCode.HARNESS_ERROR: "the recording failed",
        ExitCode.INTERRUPTED: "",
    }
)

app = command_app()


@app.command("record", epilog=EPILOG)
def record(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="The server: nats://, tls://, amqp:// or amqps://host:port, tcp://host:port, nats+unix:///path.",
        ),
    ],
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            "-l",
            metavar="ADDRESS",
            help="Listen for clients here: host:port, [::1]:port or unix:/path. :port is a port of "
            "127.0.0.1, 0.0.0.0:port one of all addresses.",
        ),
    ],
    *,
    output: Annotated[
        Path, output_option("PATH", "Write captures to this folder, or to a file that ends in .pcapng.")
    ] = Path("captures"),
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Write data before it is forwarded. Default: at most 100 ms later."),
    ] = False,
    roll_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Begin a new file at this size, e.g. 64M or 1G; 0: never.")
    ] = "256M",
    roll_after: Annotated[
        str, typer.Option(metavar="TIME", help="Begin a new file after this time, e.g. 10m or 1h; 0: never.")
    ] = "1h",
    when_full: Annotated[
        WhenFull,
        typer.Option(
            help="If the capture cannot be written: close all connections, or forward without recording."
        ),
    ] = WhenFull.CLOSE,
    keep_secrets: Annotated[
        bool,
        typer.Option("--keep-secrets", help=f"Do not mask {', '.join(SECRETS)} and responses of SASL."),
    ] = False,
    fault: Faults = None,
    seed: Seed = 0,
    control: Annotated[
        int | None,
        typer.Option("--control", metavar="PORT", help="Serve the control API on this port; 0: any port."),
    ] = None,
    tls: ServeTls = False,
    tls_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the certificate authority of --tls; that of mitmproxy works, too (~/.mitmproxy).",
        ),
    ] = None,
    tls_first: Annotated[
        list[ProxySide] | None,
        typer.Option(
            "--tls-first",
            metavar="SIDE",
            help="NATS: start TLS before INFO on this side: client or server. Repeatable.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use TLS with clients, with this certificate (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Key of --tls-cert (PEM), if it is in a file of its own."),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificate authority of a tls:// or amqps:// server (PEM). Default: those of the system.",
        ),
    ] = None,
    tls_name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Name of the server in its certificate, and in SNI. Default: the host of the URL.",
        ),
    ] = "",
    tls_client_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificate to show to the server (PEM), with its key."),
    ] = None,
    tls_client_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Key of --tls-client-cert (PEM), if it is in a file of its own."),
    ] = None,
    tls_insecure: Annotated[
        bool, typer.Option("--tls-insecure", help="Accept any certificate of the server.")
    ] = False,
    rewrite_info: Annotated[
        str,
        typer.Option(
            "--rewrite-info",
            metavar="here|HOST:PORT",
            help="NATS: rewrite host, port and connect_urls in INFO to this address, and whether to use TLS.",
        ),
    ] = "",
    live_rules: Annotated[
        bool, typer.Option("--live", help="Print violations of the protocol as they happen.")
    ] = False,
    drain: Annotated[
        str, typer.Option(metavar="TIME", help="After Ctrl-C, wait at most this long for clients to leave.")
    ] = "0s",
) -> None:
    """Proxy a server and record the traffic as pcapng, until Ctrl-C."""
    try:
        server, address = Endpoint.parse(url), Endpoint.parse(listen, Endpoint.parse(url).protocol)
        faults = [parse_fault(text) for text in fault or []]
        drain_s = seconds(drain, "--drain")
        files = CaptureFiles(
            output,
            f"before {server}",
            roll_bytes=size(roll_size, "--roll-size"),
            roll_s=seconds(roll_after, "--roll-after"),
        )
        certificate = (
            _shown(tls_cert, tls_key, tls_folder, address) if tls or tls_cert else PresentedCertificate()
        )
        recording = Recording(server.protocol, strict, not keep_secrets, when_full)
        live = LiveDisplay(sys.stdout)
        proxy = RecordingProxy(
            server,
            address,
            files,
            recording,
            live.on_recording_stopped,
            faults=faults,
            seed=seed or 0,
            tls=tls_settings(
                server,
                certificate.context,
                TlsOptions(tls_ca, tls_client_cert, tls_client_key, tls_name, tls_insecure),
                first=frozenset(tls_first or ()),
            ),
            info_address=rewrite_info,
        )
        controls = ControlApi(proxy.relay, proxy.faults, control) if control is not None else None
    except OSError as error:
        raise UsageProblem(f"cannot record to {output}: {error.strerror or error}") from None
    for caught in (signal.SIGINT, signal.SIGTERM):
        signal.signal(caught, lambda *_: proxy.relay.stop(drain_s))
    judge = (
        RecordingJudge(files.path, server.protocol, live.on_violation, _warn_of_failed_judge)
        if live_rules
        else None
    )
    serving = f"; control API at {controls.url}" if controls else ""
    live.start(proxy, serving + (f"; clients trust {certificate.trusted}" if certificate.trusted else ""))
    if judge:
        judge.start()
    proxy.run()
    if judge:
        judge.end()
    if controls:
        controls.close()
    live.end(None if judge is None else judge.violation_count)
    if proxy.recorder.stopped or proxy.counters.failed:
        raise typer.Exit(ExitCode.HARNESS_ERROR)
    if judge and judge.violation_count:
        raise typer.Exit(ExitCode.NOT_CONFORMANT)


def _warn_of_failed_judge(error: Exception) -> None:
    warn(f"judging has stopped: {error}; recording goes on")


class PresentedCertificate(Struct, frozen=True):
    """The certificate for clients, and the file that they have to trust, if the proxy made it."""

    context: ssl.SSLContext | None = None
    trusted: Path | None = None


def _shown(
    certificate: Path | None, key: Path | None, folder: Path | None, listen: Endpoint
) -> PresentedCertificate:
    if certificate is not None:
        return PresentedCertificate(client_context(certificate, key))
    return PresentedCertificate(*generated((folder or default_folder()).expanduser(), [listen.host]))
