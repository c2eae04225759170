"""Gates a client library: what was asked for, the scenarios played side by side, events, the result.

What is composed of other packages (brokers, proxies, reports) is handed in as ``Stands``. The requirements
are those of ``clients/requirements``; the rules of ``monitors`` are judged over all scenarios.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import msgspec
from msgspec import Struct

from plumbline.conformance.clients.play import Played, Player
from plumbline.conformance.clients.protocol import FEATURES, Hello
from plumbline.conformance.clients.rules import RULES, Rule, judged
from plumbline.conformance.clients.scenario import Scenario, all_scenarios
from plumbline.conformance.clients.stand import Stands
from plumbline.conformance.clients.testee import TesteeProblem
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.events import Consumer, Emitter
from plumbline.conformance.runner.prepare import require_known
from plumbline.conformance.runner.run import Finish, concluded, suite_of
from plumbline.conformance.suite import select
from plumbline.conformance.waivers import Waiver, apply, load_waivers
from plumbline.errors import TargetUnreachable, UsageProblem
from plumbline.interrupts import uninterrupted
from plumbline.verdicts import (
    CheckFinished,
    CheckResult,
    CheckStarted,
    ExitCode,
    Outcome,
    RunFinished,
    RunResult,
    RunStarted,
    Target,
    with_red,
)

REQUIREMENTS = Path(__file__).parent / "requirements"
PROTOCOL_VARIABLE = "PLUMBLINE_PROTOCOL"  # tells an adapter of several protocols which one is wanted
WORKERS = 6  # scenarios mostly wait


def catalogue() -> Catalogue:
    """The requirements of client libraries, which are a set of their own. Raises ``CatalogueError``."""
    return Catalogue.load(REQUIREMENTS)


class Wanted(Struct, frozen=True):
    """What a user asked for."""

    command: tuple[str, ...]
    protocol: str = ""
    select: tuple[str, ...] = ()
    waivers: Path | None = None
    strict: bool = False
    workers: int = WORKERS


class Gated(Struct, frozen=True):
    """The end of ``gate``."""

    exit_code: ExitCode
    result: RunResult
    problems: tuple[str, ...] = ()


def gate(wanted: Wanted, stands: Stands, consumers: Iterable[Consumer]) -> Gated:
    """Raises ``UsageProblem``, ``TargetUnreachable`` if the adapter never says hello, ``KeyboardInterrupt``
    once everything that was started has ended."""
    if wanted.protocol and wanted.protocol not in FEATURES:
        raise UsageProblem(f"--protocol {wanted.protocol!r}: write one of {', '.join(FEATURES)}")
    return _Gate(wanted, stands, Emitter(consumers)).run()


class _Gate:
    """One run."""

    def __init__(self, wanted: Wanted, stands: Stands, emitter: Emitter) -> None:
        self._wanted = wanted
        self._catalogue = catalogue()
        self._emitter = emitter
        environment = {PROTOCOL_VARIABLE: wanted.protocol} if wanted.protocol else {}
        self._player = Player(wanted.command, environment, stands, self._catalogue)
        self._started = datetime.datetime.now(datetime.UTC)
        self._began = time.monotonic()
        self._waivers: tuple[Waiver, ...] = ()
        self._lock = threading.Lock()

    def run(self) -> Gated:
        try:
            hello = self._hello()
            scenarios, rules = self._chosen(hello)
            target = self._target(hello)
            count = len(scenarios) + len(rules)
            self._emitter.emit(RunStarted(suite_of(), target, count, self._wanted.workers))
            results = self._play(scenarios, rules, hello)
        finally:
            with uninterrupted():
                self._player.stop()
        return self._end(results, target)

    # -- before ------------------------------------------------------------------------------

    def _hello(self) -> Hello:
        try:
            hello = self._player.meet()
        except TesteeProblem as problem:
            raise TargetUnreachable(
                f"{problem.message}; expected {problem.expected}: {problem.actual}"
            ) from None
        if self._wanted.protocol not in ("", hello.protocol):
            raise UsageProblem(
                f"--protocol {self._wanted.protocol}: the adapter says hello for {hello.protocol}; "
                f"it finds the protocol in the environment variable {PROTOCOL_VARIABLE}"
            )
        return hello

    def _chosen(self, hello: Hello) -> tuple[list[Scenario], list[Rule]]:
        """What to play, and the rules to judge what passes by. A rule alone needs every scenario."""
        scenarios = all_scenarios(hello.protocol)
        rules = [rule for rule in RULES if rule.protocol == hello.protocol]
        checks = [scenario.check for scenario in scenarios] + [rule.check for rule in rules]
        require_known(checks, self._catalogue)
        chosen = {check.id for check in select(checks, self._wanted.select)}
        if self._wanted.waivers is not None:
            self._waivers = load_waivers(self._wanted.waivers, checks)
        played = [scenario for scenario in scenarios if scenario.id in chosen]
        return played or scenarios, [rule for rule in rules if rule.check.id in chosen]

    def _target(self, hello: Hello) -> Target:
        protocol = ("--protocol", self._wanted.protocol) if self._wanted.protocol else ()
        return Target(
            url="",
            protocol=hello.protocol,
            server_name=hello.library,
            version=hello.version,
            features=tuple(sorted(hello.features)),
            arguments=(*protocol, "--", *self._wanted.command),
            kind="client",
        )

    # -- the run -----------------------------------------------------------------------------

    def _play(self, scenarios: Sequence[Scenario], rules: Sequence[Rule], hello: Hello) -> list[CheckResult]:
        """Side by side; what stays inconclusive is played once more, alone. Rules are judged at the end."""
        played = self._side_by_side(scenarios, hello)
        for scenario in scenarios:
            if played[scenario.id].result.outcome is Outcome.INCONCLUSIVE:
                again = self._player.play(scenario, hello)
                retried = msgspec.structs.replace(again.result, retried=True)
                played[scenario.id] = msgspec.structs.replace(again, result=retried)
                self._tell(retried, hello)
        passed = [one.passed for one in played.values() if one.passed is not None]
        results = [self._waived(played[scenario.id].result, hello) for scenario in scenarios]
        return results + [self._tell(judged(rule, passed, self._catalogue), hello) for rule in rules]

    def _side_by_side(self, scenarios: Sequence[Scenario], hello: Hello) -> dict[str, Played]:
        played: dict[str, Played] = {}
        with ThreadPoolExecutor(self._wanted.workers, "plumbline-gate") as pool:
            waiting = {pool.submit(self._one, scenario, hello): scenario for scenario in scenarios}
            try:
                for future in as_completed(waiting):
                    one = played[waiting[future].id] = future.result()
                    if one.result.outcome is not Outcome.INCONCLUSIVE:
                        self._tell(one.result, hello)
            except BaseException:
                with uninterrupted():
                    self._player.stop()
                    pool.shutdown(wait=True, cancel_futures=True)
                raise
        return played

    def _one(self, scenario: Scenario, hello: Hello) -> Played:
        with self._lock:
            self._emitter.emit(CheckStarted(scenario.id, scenario.check.title))
        return self._player.play(scenario, hello)

    def _tell(self, result: CheckResult, hello: Hello) -> CheckResult:
        final = self._waived(result, hello)
        with self._lock:
            self._emitter.emit(CheckFinished(final))
        return final

    def _waived(self, result: CheckResult, hello: Hello) -> CheckResult:
        waived = apply(self._waivers, result, hello.version, self._started.date())
        return with_red(waived, strict=self._wanted.strict)

    def _end(self, results: Sequence[CheckResult], target: Target) -> Gated:
        finish = Finish(
            suite=suite_of(),
            target=target,
            started=self._started,
            duration_s=time.monotonic() - self._began,
            strict=self._wanted.strict,
            waivers=self._waivers,
        )
        rows = [row for row in self._catalogue.requirements if row.profile == f"client-{target.protocol}"]
        result = concluded(results, rows, self._catalogue.published(folder=REQUIREMENTS).ids, finish)
        self._emitter.emit(RunFinished(result))
        code = ExitCode.USAGE if self._emitter.problems else ExitCode(result.summary.exit_code)
        return Gated(code, result, tuple(self._emitter.problems))
