"""Runs a program with reference brokers and judges what its clients send.

The program finds the brokers in ``NATS_URL`` and ``AMQP_URL``, each behind a recording proxy. It needs no
adapter: clients have to keep the rules of ``monitors`` at any time.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from plumbline.errors import UsageProblem
from plumbline.monitors import MONITORS, Side, Violation

ENDS_WITHIN_S = 5.0  # after Ctrl-C


class ObservedBrokers(Protocol):
    """Brokers behind recording proxies, and what their monitors found."""

    urls: dict[str, str]
    """By protocol."""

    violations: list[Violation]
    """Whole once the block has ended."""

    @property
    def connections(self) -> int:
        """How many there were, once the block has ended."""


class BrokerObservers(Protocol):
    """Makes them."""

    def observe(self, faults: Sequence[str], capture: Path | None) -> AbstractContextManager[ObservedBrokers]:
        """Reference brokers for both protocols while the block runs. Raises ``UsageProblem``."""


class ObserveResult(Struct, frozen=True):
    """The exit code of the program, the violations of its clients, and how many connections it opened."""

    exit_code: int
    violations: tuple[Violation, ...]
    connections: int

    @property
    def summary(self) -> str:
        """Connections, rules and violations in one line."""
        rules = sum(monitor.side is Side.CLIENT for monitor in MONITORS)
        counts = [
            _plural(self.connections, "connection"),
            _plural(rules, "rule for clients", "rules for clients"),
            _plural(len(self.violations), "violation"),
        ]
        return ", ".join(counts)

    @property
    def reasons(self) -> list[str]:
        """Why the run is red, in sentences."""
        reasons = []
        if self.violations:
            rules = sorted({violation.rule for violation in self.violations})
            reasons.append(f"{_plural(len(self.violations), 'violation')} of {', '.join(rules)}")
        if self.exit_code:
            reasons.append(f"the program ended with exit code {self.exit_code}")
        if not self.connections:
            reasons.append("nothing was observed: the program connected to neither NATS_URL nor AMQP_URL")
        return reasons


def _plural(number: int, one: str, several: str = "") -> str:
    return f"{number or 'no'} {one if number == 1 else several or one + 's'}"


def observe(
    command: Sequence[str],
    observers: BrokerObservers,
    faults: Sequence[str],
    capture: Path | None,
    tell: Callable[[str], None],
) -> ObserveResult:
    """Run the program to its end. ``tell`` gets the variables that it is started with.

    Raises ``UsageProblem``, and ``KeyboardInterrupt`` once the program has ended.
    """
    with observers.observe(faults, capture) as observed:
        environment = {f"{protocol.upper()}_URL": url for protocol, url in observed.urls.items()}
        for name, url in environment.items():
            tell(f"{name}={url}")
        code = _run(command, environment)
    broken = [one for one in observed.violations if one.side is Side.CLIENT and one.certain]
    return ObserveResult(code, tuple(broken), observed.connections)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        program = subprocess.Popen(command, env={**os.environ, **environment})
    except OSError as error:
        raise UsageProblem(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        return program.wait()
    except KeyboardInterrupt:  # a terminal sends it to the program, too
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(ENDS_WITHIN_S)
        raise
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
