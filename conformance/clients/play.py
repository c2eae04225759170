"""Runs one scenario with one adapter process and returns its outcome. No waivers, no retry.

``play`` never raises but for KeyboardInterrupt: whatever goes wrong is an outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from plumbline.conformance.clients.amqp.scene import AmqpScene
from plumbline.conformance.clients.client_under_test import AdapterError, ClientUnderTest
from plumbline.conformance.clients.nats.scene import NatsScene
from plumbline.conformance.clients.protocol import AdapterHello
from plumbline.conformance.clients.rules import ScenarioTraffic, evidence
from plumbline.conformance.clients.scenario import Scenario
from plumbline.conformance.clients.scenario_broker import ScenarioBrokers
from plumbline.conformance.clients.scene import Scene
from plumbline.conformance.journal import shortened_exchange
from plumbline.conformance.outcomes import CheckEnded, Failed, Inconclusive, Unsupported
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import outcome_of, result_of
from plumbline.monitors import MonitorRunner, Side, Violation
from plumbline.verdicts import CheckResult, Outcome

# What a scenario is given, by protocol.
_SCENES: dict[str, type[Scene]] = {"nats": NatsScene, "amqp": AmqpScene}


class ScenarioResult(Struct, frozen=True):
    """The end of one scenario: its result, and what it let pass, for the rules that hold at any time."""

    result: CheckResult
    traffic: ScenarioTraffic | None = None


class ScenarioPlayer:
    """Plays scenarios with one adapter. ``stop`` ends whatever runs, from any thread."""

    def __init__(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        stands: ScenarioBrokers,
        catalogue: Catalogue,
    ) -> None:
        self._command = tuple(command)
        self._environment = environment
        self._brokers = stands
        self._catalogue = catalogue
        self._running: set[ClientUnderTest] = set()
        self._met: list[ClientUnderTest] = []  # started, and asked nothing yet
        self._stopped = False

    def start_adapter(self) -> AdapterHello:
        """Start the adapter and hear what it is; the first scenario goes on with it. Raises
        ``AdapterError``."""
        testee = self._started_client()
        testee.start()
        hello = testee.hello()
        self._met.append(testee)
        return hello

    def _started_client(self) -> ClientUnderTest:
        """A run of the adapter that ``stop`` ends."""
        try:
            return self._met.pop()
        except IndexError:
            testee = ClientUnderTest(self._command, self._environment)
            self._running.add(testee)
            return testee

    def stop(self) -> None:
        """Nothing is played any more."""
        self._stopped = True
        running = list(self._running)
        for testee in running:
            testee.kill()
        for testee in running:
            testee.end()

    def play(self, scenario: Scenario, hello: AdapterHello) -> ScenarioResult:
        """Play it once, if the adapter claims what it needs."""
        check = scenario.check
        if missing := sorted(set(scenario.needs) - hello.features):
            why = Unsupported(f"the adapter does not claim {', '.join(missing)}")
            return ScenarioResult(result_of(check, self._catalogue, Outcome.UNSUPPORTED, why))
        began = time.monotonic()
        scene: Scene | None = None
        testee = self._started_client()

        def run() -> None:
            nonlocal scene
            if self._stopped:
                raise Inconclusive("the run was interrupted")
            with self._brokers.scenario_broker(scenario.protocol, scenario.stage) as stand, testee:
                testee.hello()
                scene = _SCENES[scenario.protocol](testee, stand)
                try:
                    check.run(scene)
                finally:
                    scene.close()
                if scene.observations == 0:
                    raise Failed("the scenario saw no evidence", expected="evidence", actual="none")

        outcome, ended = _ending_of(run)
        self._running.discard(testee)
        result = msgspec.structs.replace(
            result_of(check, self._catalogue, outcome, ended),
            wire=shortened_exchange(scene.transcript()) if scene is not None else (),
            observations=scene.observations if scene is not None else 0,
            duration_s=time.monotonic() - began,
        )
        if scene is None:
            return ScenarioResult(result)
        passed = ScenarioTraffic(scenario.id, _client_violations(scene), evidence(scene.wire), result.wire)
        return ScenarioResult(result, passed)


def _ending_of(run: Callable[[], None]) -> tuple[Outcome, CheckEnded | None]:
    try:
        run()
    except AdapterError as problem:
        # A crash, a hang, a flood, nonsense: nobody who uses the library could do what the scenario asks.
        return Outcome.FAILED, Failed(problem.message, expected=problem.expected, actual=problem.actual)
    except Exception as error:
        return outcome_of(error)
    return Outcome.PASSED, None


def _client_violations(scene: Scene) -> tuple[Violation, ...]:
    """What the testee broke of the rules that hold at any time."""
    watch = MonitorRunner()
    found = [violation for seen in scene.wire for violation in watch.observe(seen)]
    return tuple(violation for violation in found if violation.side is Side.CLIENT and violation.certain)
