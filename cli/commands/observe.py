"""``plumbline observe``: somebody's own program with reference brokers, and monitors over what passes.

The program finds the brokers in ``NATS_URL`` and ``AMQP_URL``, each behind a recording proxy. Nothing is
asked of it: the rules of ``monitors`` hold at any time, whatever it does.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Protocol

import typer
from msgspec import Struct

from plumbline.cli.pass_through import FOLLOWING, BeforeCommand
from plumbline.errors import UsageProblem
from plumbline.interrupts import terminated_as_interrupted
from plumbline.monitors import MONITORS, Side, Violation
from plumbline.verdicts import ExitCode

ENDS_WITHIN_S = 5.0  # after Ctrl-C
SHOWN = 20  # violations in full

EPILOG = """
The program finds the brokers at NATS_URL and AMQP_URL. What passes is recorded (--capture DIR keeps it) and
judged by the rules that clients have to keep at any time.

\b
Examples:

\b
  plumbline observe -- pytest tests/
  plumbline observe --capture out -- npm test                   then: plumbline show out
  plumbline observe --fault 'latency 50ms' -- ./my-program      the faults of plumbline record

\b
Exit codes: 0 nothing was broken and the program ended well, 1 a client broke a rule, or the program failed,
or it used neither broker, 2 usage or configuration, 4 error of Plumbline itself.
"""


class Observed(Protocol):
    """Brokers behind recording proxies, and what their monitors found."""

    urls: dict[str, str]
    """By protocol."""

    violations: list[Violation]
    """Whole once the block has ended."""

    @property
    def connections(self) -> int:
        """How many there were, once the block has ended."""


class Observers(Protocol):
    """Makes them. ``plumbline_parts`` has brokers and proxies."""

    def observed(self, faults: Sequence[str], capture: Path | None) -> AbstractContextManager[Observed]:
        """Reference brokers for both protocols while the block runs. Raises ``UsageProblem``."""


class Ended(Struct, frozen=True):
    """How it went: the program's exit code, what clients broke, how many connections there were."""

    program: int
    violations: tuple[Violation, ...]
    connections: int

    @property
    def reasons(self) -> list[str]:
        """Why the run is red, in sentences."""
        reasons = []
        if self.violations:
            rules = sorted({violation.rule for violation in self.violations})
            reasons.append(f"{_counted(len(self.violations), 'violation')} of {', '.join(rules)}")
        if self.program:
            reasons.append(f"the program ended with exit code {self.program}")
        if not self.connections:
            reasons.append("nothing was observed: the program connected to neither NATS_URL nor AMQP_URL")
        return reasons


def _counted(number: int, one: str, several: str = "") -> str:
    return f"{number or 'no'} {one if number == 1 else several or one + 's'}"


def observe(
    command: Sequence[str], observers: Observers, faults: Sequence[str], capture: Path | None
) -> Ended:
    """Run the program to its end. Raises ``UsageProblem``, and ``KeyboardInterrupt`` once it has ended."""
    with observers.observed(faults, capture) as observed:
        environment = {f"{protocol.upper()}_URL": url for protocol, url in observed.urls.items()}
        for name, url in environment.items():
            typer.echo(f"plumbline: {name}={url}", err=True)
        code = _run(command, environment)
    broken = [one for one in observed.violations if one.side is Side.CLIENT and one.certain]
    return Ended(code, tuple(broken), observed.connections)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        program = subprocess.Popen(command, env={**os.environ, **environment})
    except OSError as error:
        raise UsageProblem(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        return program.wait()
    except KeyboardInterrupt:  # which a terminal sends to the program, too
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(ENDS_WITHIN_S)
        raise
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()


def register(app: typer.Typer, observers: Observers) -> None:
    """Mount ``observe`` on ``app``."""

    @app.command("observe", cls=BeforeCommand, epilog=EPILOG)
    def observe_command(
        context: typer.Context,
        fault: Annotated[
            list[str] | None, typer.Option(metavar="FAULT", help="As of plumbline record. Repeatable.")
        ] = None,
        capture: Annotated[
            Path | None, typer.Option(metavar="DIR", help="Keep what passed, as pcapng, in this folder.")
        ] = None,
    ) -> None:
        """Run a program of yours against reference brokers and judge what its clients put on the wire."""
        raise typer.Exit(_observe(observers, context.meta[FOLLOWING], fault or (), capture))


def _observe(
    observers: Observers, command: Sequence[str], faults: Sequence[str], capture: Path | None
) -> int:
    try:
        with terminated_as_interrupted():
            if not command:
                raise UsageProblem("say what to run: plumbline observe -- pytest tests/")
            ended = observe(command, observers, faults, capture)
    except KeyboardInterrupt:
        typer.echo("plumbline: interrupted", err=True)
        return ExitCode.INTERRUPTED
    for violation in ended.violations[:SHOWN]:
        typer.echo(str(violation))
    if len(ended.violations) > SHOWN:
        typer.echo(f"... and {len(ended.violations) - SHOWN} more")
    rules = sum(monitor.side is Side.CLIENT for monitor in MONITORS)
    counts = [
        _counted(ended.connections, "connection"),
        _counted(rules, "rule of clients", "rules of clients"),
    ]
    typer.echo(", ".join([*counts, _counted(len(ended.violations), "violation")]))
    for reason in ended.reasons:
        typer.echo(f"plumbline: {reason}", err=True)
    return ExitCode.NOT_CONFORMANT if ended.reasons else ExitCode.CONFORMANT
