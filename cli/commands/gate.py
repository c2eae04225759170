"""``plumbline gate``: the scenarios for client libraries, run against an adapter."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from plumbline.bounds import MAX_TIME_S
from plumbline.cli.command import PassThroughCommand, after_dashes, command_app
from plumbline.cli.exits import exit_with
from plumbline.cli.options import (
    MaxTime,
    Select,
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
from plumbline.conformance.clients.gate import WORKERS, GateOptions
from plumbline.conformance.clients.gate import gate as run_gate
from plumbline.conformance.clients.new_adapter import LANGUAGES, write_adapter
from plumbline.errors import ExitCode, UsageProblem
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
  plumbline gate --waivers waivers.toml --junit gate.xml -- python my_adapter.py
  plumbline gate --new go my_adapter                            write an adapter to begin with, in Go
  plumbline list 'CLIENT-*'                                     list the requirements for clients

\b
Exit codes: 0 conformant, 1 not conformant, 2 usage or configuration,
3 the adapter does not start, sends no hello, or the time limit was reached,
4 error of Plumbline itself, 130 interrupted.
"""

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
    reports: ReportOptions,
) -> None:
    """Verify a client library through an adapter around it."""
    if new:
        _write_adapter(new, folder, protocol)
        return
    wanted = GateOptions(
        command=after_dashes(context),
        protocol=protocol,
        select=tuple(select or ()),
        waivers=waivers,
        strict=strict,
        workers=workers,
        max_time_s=read_max_time(max_time) or MAX_TIME_S,
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


def _gate(wanted: GateOptions, reports: ReportOptions) -> ExitCode:
    if not wanted.command:
        raise UsageProblem("name the adapter to start: plumbline gate -- python my_adapter.py")
    gated = run_gate(wanted, ScenarioServices(), consumers(reports))
    for sentence in gated.problems:
        exit_with(gated.exit_code, sentence)
    if gated.exit_code is ExitCode.TARGET_LOST:
        exit_with(gated.exit_code, gated.result.summary.reasons[0])
    return gated.exit_code
