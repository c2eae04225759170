"""Which check runs which lines of a core, and how long it takes: measured once, on the virtual target.

Only checks that pass on the virtual target every time count: in order, and in two random orders.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from plumbline.conformance.check import Check
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.reference_broker.shell import Core
from plumbline.verdicts import CheckResult, Outcome
from tests.adequacy.sources import import_all, modules
from tests.virtual.servers import VirtualServer, World
from tests.virtual.target import VirtualTarget

Result = TypeVar("Result")

SHUFFLES = 2
RUNS = 1 + SHUFFLES  # of each check


class CheckReach(Struct):
    """Of one check: seconds without tracing, and the lines it runs, by module."""

    seconds: float
    lines: dict[str, list[int]]


class Reach(Struct):
    """Of all checks of one protocol. ``unusable``: check -> why it cannot judge mutants.

    ``imported``: functions that run when the modules are imported, as (module, first line).
    """

    fingerprint: str
    checks: dict[str, CheckReach]
    unusable: dict[str, str]
    imported: list[tuple[str, int]] = []
    started: dict[str, list[int]] = {}  # lines that run when a broker starts, which every check needs

    def reaching(self, module: str, lines: Iterable[int]) -> list[str]:
        """The checks that run one of these lines; if a broker that starts does, every check."""
        if not set(lines).isdisjoint(self.started.get(module, ())):
            return list(self.checks)
        return self.running(module, lines)

    def running(self, module: str, lines: Iterable[int]) -> list[str]:
        """The checks that run one of these lines themselves."""
        wanted = set(lines)
        return [
            name for name, reach in self.checks.items() if not wanted.isdisjoint(reach.lines.get(module, ()))
        ]

    def reaching_any(self, module: str) -> list[str]:
        """The checks that run any line of a module."""
        return [name for name, reach in self.checks.items() if reach.lines.get(module)]


def load(path: Path, fingerprint: str) -> Reach | None:
    """What was measured before, if it was with the same sources."""
    try:
        reach = msgspec.json.decode(path.read_bytes(), type=Reach)
    except (OSError, msgspec.DecodeError):
        return None
    return reach if reach.fingerprint == fingerprint else None


class _Tracer:
    """Notes lines of the mutated modules."""

    def __init__(self, protocol: str) -> None:
        self._modules = {str(path): name for name, path in modules(protocol).items()}
        self.lines: dict[str, set[int]] = {}
        self.codes: set[CodeType] = set()
        self._files: dict[str, str] = {}

    def module_of(self, file: str) -> str:
        """By its file, whatever link leads there; empty if it is not mutated."""
        if file not in self._files:
            self._files[file] = self._modules.get(str(Path(file).resolve()), "")
        return self._files[file]

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        module = self.module_of(frame.f_code.co_filename)
        if not module:
            return None
        self.codes.add(frame.f_code)
        lines = self.lines.setdefault(module, set())

        def local(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return local

        return local

    def traced(self, action: Callable[[], Any]) -> dict[str, list[int]]:
        """The lines that an action runs."""
        self.lines = {}
        sys.settrace(self)
        try:
            action()
        finally:
            sys.settrace(None)
        return {module: sorted(lines) for module, lines in self.lines.items()}

    def apart(self, action: Callable[[], Result]) -> tuple[Result, dict[str, set[int]]]:
        """Within ``traced``: the result of an action, and the lines that it runs."""
        outer, self.lines = self.lines, {}
        try:
            result = action()
        finally:
            inner, self.lines = self.lines, outer
        self.add(inner)
        return result, inner

    def add(self, lines: Mapping[str, set[int]]) -> None:
        """As if these lines were run now."""
        for module, numbers in lines.items():
            self.lines.setdefault(module, set()).update(numbers)


class _Starts:
    """What the servers of variants run when they start: for the first check that uses one, and it counts for
    every check that does."""

    def __init__(self, tracer: _Tracer, world: World) -> None:
        self._tracer = tracer
        self._world = world
        self._lines: dict[VirtualServer, dict[str, set[int]]] = {}
        world.used.clear()
        world.make_core = self._make

    def _make(self, server: VirtualServer, make: Callable[[], Core]) -> Core:
        core, self._lines[server] = self._tracer.apart(make)
        return core

    def add_of_used(self) -> None:
        for server in self._world.used:
            self._tracer.add(self._lines.get(server, {}))
        self._world.used.clear()


def measure(
    protocol: str, checks: list[Check], fingerprint: str, done: Callable[[], None] = lambda: None
) -> Reach:
    """Run all checks: traced, then in random orders. Call it in a process that has imported no core."""
    catalogue = Catalogue.load()
    tracer = _Tracer(protocol)
    reach = Reach(fingerprint, {}, {})
    tracer.traced(lambda: import_all(protocol))
    reach.imported = sorted(
        (tracer.module_of(code.co_filename), code.co_firstlineno)
        for code in tracer.codes
        if code.co_name != "<module>"
    )
    target = VirtualTarget(protocol)
    with target.installed():
        reach.started = tracer.traced(lambda: target.access)
        starts = _Starts(tracer, target.world)
        for check in checks:
            results: list[CheckResult] = []

            def run(check: Check = check, results: list[CheckResult] = results) -> None:
                results.append(run_check(check, target.access, catalogue))
                starts.add_of_used()

            lines = tracer.traced(run)
            reach.checks[check.id] = CheckReach(0.0, lines)
            if results[0].outcome is not Outcome.PASSED:
                reach.unusable[check.id] = f"{results[0].outcome}: {results[0].message}"
            done()
    for seed in range(SHUFFLES):
        order = list(checks)
        random.Random(seed).shuffle(order)
        target = VirtualTarget(protocol)
        with target.installed():
            for check in order:
                began = time.process_time()
                result = run_check(check, target.access, catalogue)
                reach.checks[check.id].seconds = max(
                    reach.checks[check.id].seconds, time.process_time() - began
                )
                if result.outcome is not Outcome.PASSED:
                    reach.unusable.setdefault(check.id, f"{result.outcome}: {result.message}")
                done()
    for name in reach.unusable:
        del reach.checks[name]
    return reach
