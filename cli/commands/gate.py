"""``plumbline gate``: the scenarios for client libraries, run against an adapter."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from plumbline.bounds import MAX_TIME_S
from plumbline.cli.command import PassThroughCommand, after_dashes, command_app, started_at
from plumbline.cli.exits import exit_codes, exit_with
from plumbline.cli.options import (
    MaxTime,
    Select,
    ServeTls,
    Strict,
    Waivers,
    with_report_options,
)
from plumbline.cli.options import (
    max_time as read_max_time,
)
from plumbline.cli.output import print_line
from plumbline.cli.reporting import consumers
from plumbline.cli.scenario_services import ScenarioServices
from plumbline.conformance.clients.compat.run import CompatResult, run_compat
from plumbline.conformance.clients.gate import WORKERS, GateOptions
from plumbline.conformance.clients.gate import gate as run_gate
from plumbline.conformance.clients.new_adapter import LANGUAGES, write_adapter
from plumbline.conformance.runner.time_limit import TimeLimit
from plumbline.errors import ExitCode, UsageProblem
from plumbline.passwords import Passwords
from plumbline.proxy.tls.certificates import generated
from plumbline.reports import ReportOptions

EPILOG = """
COMMAND is an adapter: a small program around the library that reads commands from stdin and writes to stdout
what the library reports (conformance/clients/PROTOCOL.md).

\b
Examples:

\b
  plumbline gate -- python my_adapter.py                        all scenarios that the adapter supports
  plumbline gate --select 'CLIENT-PULL-*' -- node adapter.js    some of them
  plumbline gate --protocol amqp -- ./adapter                   for an adapter that supports both protocols
  plumbline gate --tls -- python my_adapter.py                  by tls:// or amqps://
  plumbline gate --waivers waivers.toml --junit gate.xml -- python my_adapter.py
  plumbline gate --new go my_adapter                            write an adapter to begin with, in Go
  plumbline gate --nats-compat -- ./compat.test                 NATS' own tests, for a program of a vendor
  plumbline list 'CLIENT-*'                                     list the requirements for clients

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "conformant",
        ExitCode.NOT_CONFORMANT: "not conformant",
        ExitCode.TARGET_LOST: "the adapter does not start, sends no hello, or the time limit was reached",
    }
)

app = command_app()


@app.command("gate", cls=PassThroughCommand, epilog=EPILOG)
@with_report_options
def gate(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[FOLDER]", help="Where --new writes the adapter. Default: here.", show_default=False
        ),
    ] = Path(),
    *,
    new: Annotated[
        str,
        typer.Option(
            "--new",
            metavar="LANGUAGE",
            help=f"Write a skeleton of an adapter that already supports the protocol of the gate, in "
            f"{', '.join(LANGUAGES)}.",
        ),
    ] = "",
    nats_compat: Annotated[
        bool,
        typer.Option(
            "--nats-compat",
            help="Play NATS' own compatibility tests: COMMAND is the responder of a vendor, no adapter. It "
            "finds the broker in NATS_URL. --select takes object-store, service or kv.",
        ),
    ] = False,
    protocol: Annotated[
        str, typer.Option(metavar="NAME", help="nats or amqp, for an adapter that supports both.")
    ] = "",
    select: Select = None,
    waivers: Waivers = None,
    strict: Strict = False,
    workers: Annotated[
        int,
        typer.Option("--workers", "-n", metavar="N", min=1, help="Number of scenarios that run in parallel."),
    ] = WORKERS,
    max_time: MaxTime = None,
    tls: ServeTls = False,
    reports: ReportOptions,
) -> None:
    """Verify a client library through an adapter around it."""
    Passwords.taken_from(os.environ)  # the adapter gets none of them
    if new:
        _write_adapter(new, folder, protocol)
        return
    if nats_compat:
        if tls:
            raise UsageProblem("--tls is for adapters: a responder cannot be given the certificate to trust")
        raise typer.Exit(_play_compat(after_dashes(context), select or [], strict=strict))
    wanted = GateOptions(
        command=after_dashes(context),
        protocol=protocol,
        select=tuple(select or ()),
        waivers=waivers,
        strict=strict,
        workers=workers,
        limit=TimeLimit(read_max_time(max_time) or MAX_TIME_S, started_at(context)),
        tls=tls,
    )
    raise typer.Exit(_gate(wanted, reports))


def _write_adapter(language: str, folder: Path, protocol: str) -> None:
    for path in write_adapter(language, folder, protocol or "nats"):
        print_line(f"wrote {path}")
    commands = LANGUAGES[language]
    steps = [f"cd {shlex.quote(str(folder))}"] if folder != Path() else []
    steps += [commands.build] if commands.build else []
    steps += [f"plumbline gate -- {commands.start}"]
    print_line("Add your library to it, then:")
    for step in steps:
        print_line(f"  {step}")


def _play_compat(command: tuple[str, ...], suites: list[str], *, strict: bool) -> ExitCode:
    if not command:
        raise UsageProblem("name the responder to start: plumbline gate --nats-compat -- ./compat.test")
    print_line(f"{'test':32} {'responder':9} wire")
    run = run_compat(command, ScenarioServices(), suites, _print_compat)
    if run.exit_code is None and not run.hears_the_end:
        print_line("The responder does not subscribe to tests.done, and was ended.")
    else:
        print_line(f"The responder ended with exit code {run.exit_code}.")
    if not any(result.has_responder for result in run.results):
        raise UsageProblem("the command has a responder for none of the tests")
    green = run.ended_well and all(result.is_green(strict=strict) for result in run.results)
    return ExitCode.CONFORMANT if green else ExitCode.NOT_CONFORMANT


def _print_compat(result: CompatResult) -> None:
    """One row, and a line for each failure."""
    failed = [one for one in result.judgements if one.failure]
    met = [one.requirement for one in result.judgements if not one.failure]
    verdict = ("failed" if result.failure else "passed") if result.has_responder else "none"
    wire = [*(f"{name} passed" for name in met), *(f"{one.requirement} failed" for one in failed)]
    print_line(f"{result.test:32} {verdict:9} {', '.join(wire) or '-'}")
    if result.failure:
        print_line(f"    responder: {result.failure}")
    for one in failed:
        print_line(f"    {one.requirement}: {one.failure}")


def _gate(wanted: GateOptions, reports: ReportOptions) -> ExitCode:
    if not wanted.command:
        raise UsageProblem("name the adapter to start: plumbline gate -- python my_adapter.py")
    with tempfile.TemporaryDirectory(prefix="plumbline-") as folder:
        certificate = generated(Path(folder), ()) if wanted.tls else None
        gated = run_gate(wanted, ScenarioServices(certificate), consumers(reports))
    for sentence in gated.problems:
        exit_with(gated.exit_code, sentence)
    if gated.exit_code is ExitCode.TARGET_LOST:
        exit_with(gated.exit_code, gated.result.summary.reasons[0])
    return gated.exit_code
