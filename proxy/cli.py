"""``plumbline record``, ``show``, ``trace``, ``diff`` and ``replay``: parses flags, and nothing else."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from proxy import diff_reports, trace_writer
from proxy.addresses import AddressError, Endpoint
from proxy.capture_file import CaptureFiles
from proxy.capture_reader import CaptureError
from proxy.captures import Source, read, rows
from proxy.control import Control
from proxy.dialects import known
from proxy.diff import compare, differs
from proxy.fault_language import FaultError, parse_fault
from proxy.filters import FilterError, parse
from proxy.judging import Judge, LiveJudge, violation_json
from proxy.live import Live
from proxy.operations import Reader
from proxy.record import RecordingProxy, recorded
from proxy.recorder import Recording, WhenFull
from proxy.replay import Pace, Replay, Unreachable, credentials_of
from proxy.show import as_json, as_text
from proxy.tls import TlsError, needed

EXIT_FOUND, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_HARNESS = 1, 2, 3, 4  # found: violations, differences
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Server = Annotated[
    str, typer.Argument(metavar="URL", help="the server: nats://host:port, tcp://..., nats+unix:///path")
]
Listen = Annotated[
    str, typer.Option("--listen", "-l", help="where clients connect: host:port, [::1]:port, unix:/path")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="a folder, or a file that ends in .pcapng")]
Strict = Annotated[bool, typer.Option("--strict", help="write before forwarding; else at most 100 ms later")]
RollSize = Annotated[str, typer.Option(help="begin the next file at that size: 64M, 1G; 0: never")]
RollAfter = Annotated[str, typer.Option(help="begin the next file after that time: 10m, 1h; 0: never")]
Full = Annotated[
    WhenFull, typer.Option(help="if the capture cannot be written: close everything, or forward unrecorded")
]
Secrets = Annotated[bool, typer.Option("--keep-secrets", help="do not mask pass, auth_token, jwt, sig, nkey")]
FaultTexts = Annotated[list[str] | None, typer.Option("--fault", help="like: latency 50ms ±10ms")]
Seed = Annotated[int, typer.Option(help="of what faults leave to chance")]
ControlPort = Annotated[int | None, typer.Option("--control", help="serve the control API; 0: any port")]
Certificate = Annotated[Path | None, typer.Option(help="PEM: clients are to use TLS, and are shown this")]
Key = Annotated[Path | None, typer.Option(help="PEM: the certificate's key, if it is a file of its own")]
Authority = Annotated[Path | None, typer.Option(help="PEM: who certifies a tls:// or amqps:// server")]
Insecure = Annotated[bool, typer.Option("--tls-insecure", help="take any certificate of the server")]
LiveRules = Annotated[bool, typer.Option("--live", help="tell violations of the protocol as they happen")]
Drain = Annotated[str, typer.Option(help="after Ctrl-C, wait so long for clients to leave")]


def record(
    url: Server,
    listen: Listen,
    output: Output = Path("captures"),
    strict: Strict = False,
    roll_size: RollSize = "256M",
    roll_after: RollAfter = "1h",
    when_full: Full = WhenFull.CLOSE,
    keep_secrets: Secrets = False,
    fault: FaultTexts = None,
    seed: Seed = 0,
    control: ControlPort = None,
    tls_cert: Certificate = None,
    tls_key: Key = None,
    tls_ca: Authority = None,
    tls_insecure: Insecure = False,
    live_rules: LiveRules = False,
    drain: Drain = "0s",
) -> None:
    """Stand between clients and a server, and write what passes to pcapng files, until Ctrl-C.

    Bytes are forwarded as they come. Secrets of CONNECT are masked in the files, at equal length. Faults are
    one line each: latency 50ms ±10ms, bandwidth 100k, slice 10 every 5ms, slow_close 500ms, limit 10k,
    reset 2s, timeout 2s, with "on upstream" or "on downstream" or both ways; and of operations: drop +ACK
    every 10th, duplicate MSG the 3rd, reorder HMSG with 5%, delay 200ms PUB where subject ~ "a.>".
    """
    try:
        server, address = Endpoint.parse(url), Endpoint.parse(listen, Endpoint.parse(url).protocol)
        faults = [parse_fault(text) for text in fault or []]
        drain_s = _number(drain, _SECONDS, "--drain")
        files = CaptureFiles(
            output,
            f"before {server}",
            roll_bytes=int(_number(roll_size, _BYTES, "--roll-size")),
            roll_s=_number(roll_after, _SECONDS, "--roll-after"),
        )
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
            tls=needed(server, tls_cert, tls_key, tls_ca, trusts_anyone=tls_insecure),
        )
        controls = Control(proxy.relay, proxy.faults, control) if control is not None else None
    except (AddressError, FaultError, TlsError) as error:
        raise _usage(str(error)) from None
    except OSError as error:
        raise _usage(f"cannot record to {output}: {error.strerror or error}") from None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: proxy.relay.stop(drain_s))
    judge = LiveJudge(files.path, server.protocol, live.violation) if live_rules else None
    live.start(proxy, f"; control API at {controls.url}" if controls else "")
    if judge:
        judge.start()
    proxy.run()
    if judge:
        judge.end()
    if controls:
        controls.close()
    live.end(None if judge is None else judge.found)
    if proxy.recorder.stopped:
        raise typer.Exit(EXIT_HARNESS)
    if judge and judge.found:
        raise typer.Exit(EXIT_FOUND)


Captures = Annotated[list[Path], typer.Argument(help="pcapng or pcap files, or folders of them")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="go on with what is being recorded, until Ctrl-C")
]
Asked = Annotated[str, typer.Option("--filter", help='like: subject ~ "ORDERS.*" and op in (MSG, HMSG)')]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line")]
Spoken = Annotated[
    str | None, typer.Option("--protocol", help="nats or amqp, where the capture does not say")
]


Rules = Annotated[
    bool,
    typer.Option("--violations", help="only what breaks the protocol's rules; exit code 1 if any"),
]


def show(
    captures: Captures,
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
            raise _usage(f"--protocol {protocol}: known are {', '.join(known())}")
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
    except (FilterError, CaptureError) as error:
        raise _usage(str(error)) from None
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
        raise typer.Exit(EXIT_FOUND)


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
) -> None:
    """Write recorded NATS traffic as a trace, to be played against any server: plumbline verify URL --trace.

    Edit it afterwards: it expects what the recorded server did, in the order in which it came.
    """
    try:
        found = [row for row in read(captures, "nats") if row.connection.number in connection]
    except CaptureError as error:
        raise _usage(str(error)) from None
    missing = sorted(set(connection) - {row.connection.number for row in found})
    if missing:
        raise _usage(f"no connection {', '.join(map(str, missing))} in {', '.join(map(str, captures))}")
    named = f"connection {', '.join(map(str, connection))} of {', '.join(path.name for path in captures)}"
    about = trace_writer.Source(
        title or f"Recorded: {named}", trace_writer.source_of(named, found), tuple(verifies or ["CORE-001"])
    )
    try:
        text = trace_writer.write(found, about)
    except ValueError as error:
        raise _usage(f"{named}: {error}") from None
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
    try:
        wanted = parse(where)
        one, other = (
            filter(lambda row: wanted(row.fields), read([side], protocol)) for side in (first, second)
        )
        pairs = compare(one, other)
    except (FilterError, CaptureError) as error:
        raise _usage(str(error)) from None
    for line in diff_reports.as_text(pairs):
        sys.stdout.write(line + "\n")
    if json is not None:
        json.write_text(diff_reports.as_json(pairs))
    if html is not None:
        html.write_text(diff_reports.as_html(pairs, str(first), str(second)))
    if differs(pairs):
        raise typer.Exit(EXIT_FOUND)


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
        raise _usage(str(error)) from None
    typer.echo(
        f"{again.sent} operations sent, {again.late} of them without all that had come then; in {output}"
    )
    for line in diff_reports.as_text(pairs):
        sys.stdout.write(line + "\n")
    if differs(pairs):
        raise typer.Exit(EXIT_FOUND)


def _number(text: str, units: dict[str, float] | dict[str, int], flag: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text.strip())
    unit = (
        found[2].lower().removesuffix("ib").removesuffix("b")
        if found and "k" in units
        else found and found[2]
    )
    if found is None or (unit not in units and float(found[1]) != 0):
        raise _usage(
            f"{flag} {text}: expected a number and one of {', '.join(name for name in units if name)}"
        )
    return float(found[1]) * units.get(unit or "", 1)


def _usage(message: str) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(EXIT_USAGE)


# Below the help of each command.
EXAMPLES: dict[Callable[..., None], str] = {
    record: """
Examples:

\b
  plumbline record nats://127.0.0.1:4222 --listen 127.0.0.1:4333 -o captures/
  plumbline record amqp://127.0.0.1:5672 --listen 127.0.0.1:5673 --live
  plumbline record URL --listen :4333 --fault 'drop +ACK every 10th'
""",
    show: """
Examples:

\b
  plumbline show captures/ --follow --filter 'subject ~ "ORDERS.*" and op in (MSG, HMSG)'
  plumbline show captures/ --violations
""",
    trace: """
Example:

\b
  plumbline trace captures/ --connection 3 -o my.trace
""",
    diff: """
Example:

\b
  plumbline diff good.pcapng bad.pcapng --html d.html
""",
    replay: """
Example:

\b
  plumbline replay captures/ nats://host:4222
""",
}


def register(app: typer.Typer) -> None:
    """Mounts the commands of this package."""
    for command, examples in EXAMPLES.items():
        app.command(epilog=examples)(command)
