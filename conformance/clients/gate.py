"""One run of ``plumbline gate``: options, scenarios in parallel, events, result.

What is composed of other packages (brokers, proxies, reports) is handed in as ``ScenarioBrokers``. The
requirements are those of ``clients/requirements``; the rules of ``monitors`` are judged over all scenarios.
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

from plumbline.conformance.clients.client_under_test import AdapterError
from plumbline.conformance.clients.play import ScenarioPlayer, ScenarioResult
from plumbline.conformance.clients.protocol import FEATURES, RECONNECT, TLS, AdapterHello
from plumbline.conformance.clients.rules import RULES, ClientRule, judge_rule
from plumbline.conformance.clients.scenario import Scenario, all_scenarios
from plumbline.conformance.clients.scenario_broker import ScenarioBrokers
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import not_run_result
from plumbline.conformance.runner.events import Emitter, EventListener
from plumbline.conformance.runner.prepare import require_known
from plumbline.conformance.runner.run import RunEnd, conclude_for, suite_of
from plumbline.conformance.runner.time_limit import TimeLimit
from plumbline.conformance.suite import select
from plumbline.conformance.waivers import Waiver, apply_waivers, load_waivers
from plumbline.errors import TargetUnreachable, UsageProblem
from plumbline.interrupts import TimeIsUp, ended_after, uninterrupted
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
WORKERS = 8  # scenarios mostly wait


def catalogue() -> Catalogue:
    """The requirements of client libraries, which are a set of their own. Raises ``CatalogueError``."""
    return Catalogue.load(REQUIREMENTS)


class GateOptions(Struct, frozen=True):
    """What a user asked for."""

    command: tuple[str, ...]
    protocol: str = ""
    select: tuple[str, ...] = ()
    waivers: Path | None = None
    strict: bool = False
    workers: int = WORKERS
    limit: TimeLimit | None = None
    tls: bool = False  # what the brokers that are handed in want


class GateResult(Struct, frozen=True):
    """The end of ``gate``."""

    exit_code: ExitCode
    result: RunResult
    problems: tuple[str, ...] = ()


def gate(options: GateOptions, stands: ScenarioBrokers, consumers: Iterable[EventListener]) -> GateResult:
    """Raises ``UsageProblem``, ``TargetUnreachable`` if the adapter never says hello, ``KeyboardInterrupt``
    once everything that was started has ended."""
    if options.protocol and options.protocol not in FEATURES:
        raise UsageProblem(f"--protocol {options.protocol!r}: write one of {', '.join(FEATURES)}")
    return _GateRun(options, stands, Emitter(consumers)).run()


class _GateRun:
    """One run."""

    def __init__(self, wanted: GateOptions, stands: ScenarioBrokers, emitter: Emitter) -> None:
        self._options = wanted
        self._catalogue = catalogue()
        self._emitter = emitter
        environment = {PROTOCOL_VARIABLE: wanted.protocol} if wanted.protocol else {}
        self._player = ScenarioPlayer(wanted.command, environment, stands, self._catalogue)
        self._started = datetime.datetime.now(datetime.UTC)
        self._started_at = time.monotonic()
        self._waivers: tuple[Waiver, ...] = ()
        self._played: dict[str, ScenarioResult] = {}  # by scenario
        self._time_limit = ""  # which one was reached, if so
        self._lock = threading.Lock()

    def run(self) -> GateResult:
        try:
            hello = self._hello()
            scenarios, rules = self._select_scenarios(hello)
            target = self._target(hello)
            count = len(scenarios) + len(rules)
            self._emitter.emit(RunStarted(suite_of(), target, count, self._options.workers))
            results = self._play_in_time(scenarios, rules, hello)
        finally:
            with uninterrupted():
                self._player.stop()
        return self._finish_run(results, target)

    # -- before ------------------------------------------------------------------------------

    def _hello(self) -> AdapterHello:
        try:
            hello = self._player.start_adapter()
        except AdapterError as problem:
            raise TargetUnreachable(
                f"{problem.message}; expected {problem.expected}: {problem.actual}"
            ) from None
        if self._options.protocol not in ("", hello.protocol):
            raise UsageProblem(
                f"--protocol {self._options.protocol}: the adapter's hello names the protocol "
                f"{hello.protocol}; "
                f"it finds the protocol in the environment variable {PROTOCOL_VARIABLE}"
            )
        if self._options.tls and TLS not in hello.features:
            raise UsageProblem(
                f"--tls: the adapter does not claim the feature {TLS}; it is for adapters that connect to "
                "tls:// or amqps:// and trust the certificates of tls_ca (PROTOCOL.md)"
            )
        return hello

    def _select_scenarios(self, hello: AdapterHello) -> tuple[list[Scenario], list[ClientRule]]:
        """What to play, and the rules to judge what passes by. A rule alone needs every scenario."""
        scenarios = all_scenarios(hello.protocol)
        rules = [rule for rule in RULES if rule.protocol == hello.protocol]
        checks = [scenario.check for scenario in scenarios] + [rule.check for rule in rules]
        require_known(checks, self._catalogue)
        chosen = {check.id for check in select(checks, self._options.select)}
        if self._options.waivers is not None:
            self._waivers = load_waivers(self._options.waivers, checks)
        played = [scenario for scenario in scenarios if scenario.id in chosen]
        return played or scenarios, [rule for rule in rules if rule.check.id in chosen]

    def _target(self, hello: AdapterHello) -> Target:
        protocol = ("--protocol", self._options.protocol) if self._options.protocol else ()
        tls = ("--tls",) if self._options.tls else ()
        return Target(
            url="",
            protocol=hello.protocol,
            server_name=hello.library,
            version=hello.version,
            features=tuple(sorted(hello.features)),
            arguments=(*protocol, *tls, "--", *self._options.command),
            kind="client",
        )

    # -- the run -----------------------------------------------------------------------------

    def _play_in_time(
        self, scenarios: Sequence[Scenario], rules: Sequence[ClientRule], hello: AdapterHello
    ) -> list[CheckResult]:
        """As ``_play``. When the time is over, what was not played is inconclusive."""
        limit = self._options.limit
        if limit is None:
            return self._play(scenarios, rules, hello)
        try:
            with ended_after(limit.left_for_checks(time.monotonic())):
                return self._play(scenarios, rules, hello)
        except TimeIsUp:
            self._time_limit = limit.sentence
        return [
            self._apply_waivers(self._played[check.id].result, hello)
            if check.id in self._played
            else self._apply_waivers(not_run_result(check, self._catalogue, self._time_limit), hello)
            for check in (*(scenario.check for scenario in scenarios), *(rule.check for rule in rules))
        ]

    def _play(
        self, scenarios: Sequence[Scenario], rules: Sequence[ClientRule], hello: AdapterHello
    ) -> list[CheckResult]:
        """Side by side, those that wait longest first. What stays inconclusive is played once more, alone.
        Rules are judged at the end."""
        played = self._played
        self._play_parallel(sorted(scenarios, key=self._wait_rank), hello)
        for scenario in scenarios:
            if played[scenario.id].result.outcome is Outcome.INCONCLUSIVE:
                again = self._player.play(scenario, hello)
                retried = msgspec.structs.replace(again.result, retried=True)
                played[scenario.id] = msgspec.structs.replace(again, result=retried)
                self._emit_result(retried, hello)
        passed = [one.traffic for one in played.values() if one.traffic is not None]
        results = [self._apply_waivers(played[scenario.id].result, hello) for scenario in scenarios]
        return results + [
            self._emit_result(judge_rule(rule, passed, self._catalogue), hello) for rule in rules
        ]

    def _play_parallel(self, scenarios: Sequence[Scenario], hello: AdapterHello) -> None:
        with ThreadPoolExecutor(self._options.workers, "plumbline-gate") as pool:
            waiting = {pool.submit(self._play_one, scenario, hello): scenario for scenario in scenarios}
            try:
                for future in as_completed(waiting):
                    one = self._played[waiting[future].id] = future.result()
                    if one.result.outcome is not Outcome.INCONCLUSIVE:
                        self._emit_result(one.result, hello)
            except BaseException:
                with uninterrupted():
                    self._player.stop()
                    pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _play_one(self, scenario: Scenario, hello: AdapterHello) -> ScenarioResult:
        with self._lock:
            self._emitter.emit(CheckStarted(scenario.id, scenario.check.title))
        return self._player.play(scenario, hello, anew=self._is_waived(scenario))

    def _wait_rank(self, scenario: Scenario) -> int:
        """0: known to fail, so it waits for what does not come; 1: a recovery; 2: anything else."""
        if self._is_waived(scenario):
            return 0
        return 1 if any(need.startswith(RECONNECT) for need in scenario.needs) else 2

    def _is_waived(self, scenario: Scenario) -> bool:
        """Whether a failure of it is expected."""
        return any(waiver.names(scenario.check) for waiver in self._waivers)

    def _emit_result(self, result: CheckResult, hello: AdapterHello) -> CheckResult:
        final = self._apply_waivers(result, hello)
        with self._lock:
            self._emitter.emit(CheckFinished(final))
        return final

    def _apply_waivers(self, result: CheckResult, hello: AdapterHello) -> CheckResult:
        waived = apply_waivers(self._waivers, result, hello.version, self._started.date())
        return with_red(waived, strict=self._options.strict)

    def _finish_run(self, results: Sequence[CheckResult], target: Target) -> GateResult:
        finish = RunEnd(
            suite=suite_of(),
            target=target,
            started=self._started,
            duration_s=time.monotonic() - self._started_at,
            strict=self._options.strict,
            waivers=self._waivers,
            time_limit=self._time_limit,
        )
        rows = [row for row in self._catalogue.requirements if row.profile == f"client-{target.protocol}"]
        result = conclude_for(results, rows, self._catalogue.published(folder=REQUIREMENTS).ids, finish)
        self._emitter.emit(RunFinished(result))
        code = ExitCode.USAGE if self._emitter.problems else ExitCode(result.summary.exit_code)
        return GateResult(code, result, tuple(self._emitter.problems))
