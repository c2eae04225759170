"""``plumbline observe``: a program of the user's, run with reference brokers whose traffic is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli.command import PassThroughCommand, after_dashes, command_app
from plumbline.cli.exits import exit_codes, exit_with
from plumbline.cli.options import Faults
from plumbline.cli.output import print_line, print_lines, warn
from plumbline.cli.scenario_services import ScenarioServices
from plumbline.conformance.clients.observe import observe as run_observed
from plumbline.errors import ExitCode, UsageProblem

MAX_VIOLATIONS_SHOWN = 20  # violations in full

EPILOG = """
The program finds the brokers in the environment variables NATS_URL and AMQP_URL. The traffic is recorded
(--capture DIR keeps it) and checked against the rules that clients must follow at any time.

\b
Examples:

\b
  plumbline observe -- pytest tests/
  plumbline observe --capture out -- npm test                   then: plumbline show out/nats
  plumbline observe --fault 'latency 50ms' -- ./my-program      the faults of plumbline record

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "no violation and the program succeeded",
        ExitCode.NOT_CONFORMANT: "a client broke a rule, the program failed, or it connected to "
        "neither broker",
    }
)

app = command_app()


@app.command("observe", cls=PassThroughCommand, epilog=EPILOG)
def observe(
    context: typer.Context,
    fault: Faults = None,
    capture: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the recorded traffic as pcapng in this folder.")
    ] = None,
) -> None:
    """Run a program with reference brokers and check its traffic."""
    command = after_dashes(context)
    raise typer.Exit(_observe(command, fault or [], capture))


def _observe(command: tuple[str, ...], faults: list[str], capture: Path | None) -> ExitCode:
    if not command:
        raise UsageProblem("name the program to run: plumbline observe -- pytest tests/")
    observed = run_observed(command, ScenarioServices(), faults, capture, warn)
    for violation in observed.violations[:MAX_VIOLATIONS_SHOWN]:
        print_lines(str(violation))
    if len(observed.violations) > MAX_VIOLATIONS_SHOWN:
        print_line(f"... and {len(observed.violations) - MAX_VIOLATIONS_SHOWN} more")
    print_line(observed.summary)
    code = ExitCode.NOT_CONFORMANT if observed.reasons else ExitCode.CONFORMANT
    for reason in observed.reasons:
        exit_with(code, reason)
    return code
