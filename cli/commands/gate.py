"""``plumbline gate``: flags in, exit code out. ``plumbline_parts`` hands in brokers, proxies and reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli.commands.verify import Paths
from plumbline.cli.exits import ended, ending
from plumbline.cli.pass_through import FOLLOWING, BeforeCommand
from plumbline.conformance.clients.gate import WORKERS, Wanted, gate
from plumbline.conformance.clients.stand import Stands
from plumbline.errors import UsageProblem
from plumbline.verdicts import ExitCode

EPILOG = """
COMMAND is an adapter: a small program around the library that reads commands from stdin and writes to stdout
what the library reports (conformance/clients/PROTOCOL.md).

\b
Examples:

\b
  plumbline gate -- python my_adapter.py                        all scenarios for what it says it can do
  plumbline gate --select 'CLIENT-PULL-*' -- node adapter.js    some of them
  plumbline gate --protocol amqp -- ./adapter                   for an adapter that speaks both
  plumbline gate --waivers waivers.toml --junit gate.xml -- python my_adapter.py
  plumbline list 'CLIENT-*'                                     what is required of a client

\b
Exit codes: 0 conformant, 1 not conformant, 2 usage or configuration,
3 the adapter does not start or says no hello, 4 error of Plumbline itself.
"""


def register(app: typer.Typer, stands: Stands) -> None:
    """Mount ``gate`` on ``app``."""

    @app.command("gate", cls=BeforeCommand, epilog=EPILOG)
    def gate_command(
        context: typer.Context,
        protocol: Annotated[
            str, typer.Option(metavar="NAME", help="nats or amqp, for an adapter that speaks both.")
        ] = "",
        select: Annotated[
            list[str] | None,
            typer.Option(metavar="PATTERN", help="Only these requirements or scenarios. Repeatable."),
        ] = None,
        waivers: Annotated[Path | None, typer.Option(metavar="FILE", help="Known failures (TOML).")] = None,
        strict: Annotated[
            bool, typer.Option("--strict", help="A failed SHOULD turns the run red too.")
        ] = False,
        json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as JSON.")] = None,
        junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None,
        html: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML page.")
        ] = None,
        markdown: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Write a Markdown summary.")
        ] = None,
        workers: Annotated[
            int, typer.Option("--workers", "-n", metavar="N", min=1, help="Scenarios at a time.")
        ] = WORKERS,
    ) -> None:
        """Hold a client library up against its protocol, through an adapter around it."""
        wanted = Wanted(
            command=tuple(context.meta[FOLLOWING]),
            protocol=protocol,
            select=tuple(select or ()),
            waivers=waivers,
            strict=strict,
            workers=workers,
        )
        raise typer.Exit(ending(lambda: _gate(stands, wanted, Paths(json, junit, html, markdown))))


def _gate(stands: Stands, wanted: Wanted, paths: Paths) -> ExitCode:
    if not wanted.command:
        raise UsageProblem("say what to start: plumbline gate -- python my_adapter.py")
    gated = gate(wanted, stands, stands.consumers(paths))
    for sentence in gated.problems:
        ended(gated.exit_code, sentence)
    return gated.exit_code
