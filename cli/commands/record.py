"""``plumbline record``: parses flags, and nothing else."""

from __future__ import annotations

import signal
import ssl
import sys
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from plumbline.captures.judging import LiveJudge
from plumbline.captures.rolling import CaptureFiles
from plumbline.cli.common import seconds, size
from plumbline.errors import ExitCode, UsageProblem
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.faults.control import Control
from plumbline.proxy.faults.language import parse_fault
from plumbline.proxy.live import Live
from plumbline.proxy.record import RecordingProxy
from plumbline.proxy.recorder import Recording, WhenFull
from plumbline.proxy.tls.certificates import default_folder, generated
from plumbline.proxy.tls.contexts import Side, for_clients, needed
from plumbline.wire.nats.secrets import SECRETS

EPILOG = """
Examples:

\b
  plumbline record nats://127.0.0.1:4222 --listen 127.0.0.1:4333 -o captures/
  plumbline record amqp://127.0.0.1:5672 --listen 127.0.0.1:5673 --live
  plumbline record URL --listen :4333 --fault 'drop +ACK every 10th'
"""

Server = Annotated[
    str, typer.Argument(metavar="URL", help="the server: nats://host:port, tcp://..., nats+unix:///path")
]
Listen = Annotated[
    str, typer.Option("--listen", "-l", help="where clients connect: host:port, [::1]:port, unix:/path")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="a folder, or a file that ends in .pcapng")]
Strict = Annotated[bool, typer.Option("--strict", help="write before forwarding; else at most 100 ms later")]
RollSize = Annotated[
    str,
    typer.Option(help="begin the next file at that size: 64M, 1GiB; 0: never"),
]
RollAfter = Annotated[str, typer.Option(help="begin the next file after that time: 10m, 1h; 0: never")]
Full = Annotated[
    WhenFull, typer.Option(help="if the capture cannot be written: close everything, or forward unrecorded")
]
Secrets = Annotated[bool, typer.Option("--keep-secrets", help=f"do not mask {', '.join(SECRETS)}")]
FaultTexts = Annotated[list[str] | None, typer.Option("--fault", help="like: latency 50ms ±10ms")]
Seed = Annotated[int, typer.Option(help="of what faults leave to chance")]
ControlPort = Annotated[int | None, typer.Option("--control", help="serve the control API; 0: any port")]
Generated = Annotated[bool, typer.Option("--tls", help="clients are to use TLS; make a certificate for them")]
TlsFolder = Annotated[
    Path | None,
    typer.Option(help="where --tls keeps its authority; mitmproxy's own works, too (~/.mitmproxy)"),
]
TlsFirst = Annotated[
    list[Side] | None, typer.Option("--tls-first", help="NATS: this side's TLS comes before INFO")
]
Certificate = Annotated[Path | None, typer.Option(help="PEM: clients are to use TLS, and are shown this")]
Key = Annotated[Path | None, typer.Option(help="PEM: the certificate's key, if it is a file of its own")]
Authority = Annotated[Path | None, typer.Option(help="PEM: who certifies a tls:// or amqps:// server")]
Insecure = Annotated[bool, typer.Option("--tls-insecure", help="take any certificate of the server")]
Told = Annotated[
    str,
    typer.Option(
        "--rewrite-info",
        metavar="here|HOST:PORT",
        help="NATS: INFO tells clients this host, port and connect_urls, and of TLS what they are to do",
    ),
]
LiveRules = Annotated[bool, typer.Option("--live", help="tell violations of the protocol as they happen")]
Drain = Annotated[str, typer.Option(help="after Ctrl-C, wait so long for clients to leave")]


def record(
    url: Server,
    listen: Listen,
    *,
    output: Output = Path("captures"),
    strict: Strict = False,
    roll_size: RollSize = "256M",
    roll_after: RollAfter = "1h",
    when_full: Full = WhenFull.CLOSE,
    keep_secrets: Secrets = False,
    fault: FaultTexts = None,
    seed: Seed = 0,
    control: ControlPort = None,
    tls: Generated = False,
    tls_folder: TlsFolder = None,
    tls_first: TlsFirst = None,
    tls_cert: Certificate = None,
    tls_key: Key = None,
    tls_ca: Authority = None,
    tls_insecure: Insecure = False,
    told: Told = "",
    live_rules: LiveRules = False,
    drain: Drain = "0s",
) -> None:
    """Stand between clients and a server, and write what passes to pcapng files, until Ctrl-C.

    Bytes are forwarded as they come. Secrets of CONNECT are masked in the files, at equal length. Faults are
    one line each: latency 50ms ±10ms, bandwidth 100k, slice 10 every 5ms, slow_close 500ms, limit 10k,
    reset 2s, timeout 2s, with "on upstream" or "on downstream" or both ways; and of operations: drop +ACK
    every 10th, duplicate MSG the 3rd, reorder HMSG with 5%, delay 200ms PUB where subject ~ "a.>".
    Sizes are as in the configuration of nats-server: 10k is 10,000 bytes; 10kb, 10Ki and 10KiB are 10,240.
    """
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
        shown = _shown(tls_cert, tls_key, tls_folder, address) if tls or tls_cert else Shown()
        recording = Recording(server.protocol, strict, not keep_secrets, when_full)
        live = Live(sys.stdout)
        proxy = RecordingProxy(
            server,
            address,
            files,
            recording,
            live.stopped,
            faults=faults,
            seed=seed,
            tls=needed(
                server, shown.context, tls_ca, trusts_anyone=tls_insecure, first=frozenset(tls_first or ())
            ),
            told=told,
        )
        controls = Control(proxy.relay, proxy.faults, control) if control is not None else None
    except OSError as error:
        raise UsageProblem(f"cannot record to {output}: {error.strerror or error}") from None
    for caught in (signal.SIGINT, signal.SIGTERM):
        signal.signal(caught, lambda *_: proxy.relay.stop(drain_s))
    judge = LiveJudge(files.path, server.protocol, live.violation) if live_rules else None
    serving = f"; control API at {controls.url}" if controls else ""
    live.start(proxy, serving + (f"; clients trust {shown.trusted}" if shown.trusted else ""))
    if judge:
        judge.start()
    proxy.run()
    if judge:
        judge.end()
    if controls:
        controls.close()
    live.end(None if judge is None else judge.found)
    if proxy.recorder.stopped:
        raise typer.Exit(ExitCode.HARNESS_ERROR)
    if judge and judge.found:
        raise typer.Exit(ExitCode.NOT_CONFORMANT)


class Shown(Struct, frozen=True):
    """What clients are shown, and the file that they have to trust, if the proxy made it."""

    context: ssl.SSLContext | None = None
    trusted: Path | None = None


def _shown(certificate: Path | None, key: Path | None, folder: Path | None, listen: Endpoint) -> Shown:
    if certificate is not None:
        return Shown(for_clients(certificate, key))
    return Shown(*generated((folder or default_folder()).expanduser(), [listen.host]))
