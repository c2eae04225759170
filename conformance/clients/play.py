"""Runs one scenario with an adapter process and returns its outcome. No waivers, no retry.

An adapter that can begin again plays one scenario after the other in its process. Only a scenario that passed
is followed by another one, and what does not pass in a process that has played before is played again in a
new one. ``play`` never raises but for KeyboardInterrupt: whatever goes wrong is an outcome.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from plumbline.conformance.check import Check
from plumbline.conformance.clients.amqp.scene import AmqpScene
from plumbline.conformance.clients.client_under_test import AdapterError, ClientUnderTest
from plumbline.conformance.clients.nats.scene import NatsScene
from plumbline.conformance.clients.protocol import RESET, AdapterHello
from plumbline.conformance.clients.rules import ScenarioTraffic, evidence
from plumbline.conformance.clients.scenario import Scenario
from plumbline.conformance.clients.scenario_broker import ScenarioBrokers
from plumbline.conformance.clients.scene import Scene
from plumbline.conformance.outcomes import CheckEnded, Failed, Inconclusive, Unsupported
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import outcome_of, result_of
from plumbline.conformance.sessions.journal import shortened_exchange
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
        self._idle: list[ClientUnderTest] = []  # started, and asked nothing since it began
        self._stopped = False

    def start_adapter(self) -> AdapterHello:
        """Start the adapter and hear what it is; the first scenario goes on with it. Raises
        ``AdapterError``."""
        client = self._started_client()
        client.start()
        hello = client.hello()
        self._idle.append(client)
        return hello

    def _started_client(self) -> ClientUnderTest:
        """A run of the adapter that ``stop`` ends."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_client()

    def _new_client(self) -> ClientUnderTest:
        client = ClientUnderTest(self._command, self._environment)
        self._running.add(client)
        return client

    def _let_go(self, client: ClientUnderTest, hello: AdapterHello) -> None:
        """After a scenario that passed: keep it for the next one if it can begin again, or end it."""
        if RESET in hello.features and not self._stopped:
            with contextlib.suppress(AdapterError):
                client.reset()
                self._idle.append(client)
                return
        self._end(client)

    def _end(self, client: ClientUnderTest) -> None:
        client.end()
        self._running.discard(client)

    def _run_check(self, check: Check, scene: Scene) -> None:
        try:
            check.run(scene)
        finally:
            scene.close()
        if scene.observations == 0:
            raise Failed("the scenario saw no evidence", expected="evidence", actual="none")

    def stop(self) -> None:
        """Nothing is played any more."""
        self._stopped = True
        running = list(self._running)
        for client in running:
            client.kill()
        for client in running:
            client.end()

    def _raise_if_stopped(self) -> None:
        if self._stopped:
            raise Inconclusive("the run was interrupted")

    def play(self, scenario: Scenario, hello: AdapterHello, *, anew: bool = False) -> ScenarioResult:
        """Play it, if the adapter claims what it needs; in a new process if it fails in a reused one, or with
        ``anew``."""
        check = scenario.check
        if missing := sorted(set(scenario.needs) - hello.features):
            why = Unsupported(f"the adapter does not claim {', '.join(missing)}")
            return ScenarioResult(result_of(check, self._catalogue, Outcome.UNSUPPORTED, why))
        client = self._new_client() if anew else self._started_client()
        played = self._play_with(client, scenario, hello)
        if client.is_reused and played.result.outcome is not Outcome.PASSED and not self._stopped:
            return self._play_with(self._new_client(), scenario, hello)
        return played

    def _play_with(self, client: ClientUnderTest, scenario: Scenario, hello: AdapterHello) -> ScenarioResult:
        check = scenario.check
        began = time.monotonic()
        scene: Scene | None = None

        def run() -> None:
            nonlocal scene
            self._raise_if_stopped()
            with self._brokers.scenario_broker(scenario.protocol, scenario.stage) as broker:
                try:
                    client.start()
                    self._raise_if_stopped()  # ``stop`` may have looked before it was started
                    client.hello()
                    scene = _SCENES[scenario.protocol](client, broker)
                    self._run_check(check, scene)
                except BaseException:
                    self._end(client)
                    raise
                self._let_go(client, hello)

        outcome, ended = _ending_of(run)
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
        # A crash, a hang, a flood, nonsense: no user of the library could do what the scenario requests.
        return Outcome.FAILED, Failed(problem.message, expected=problem.expected, actual=problem.actual)
    except Exception as error:
        return outcome_of(error)
    return Outcome.PASSED, None


def _client_violations(scene: Scene) -> tuple[Violation, ...]:
    """What the client broke of the rules that hold at any time."""
    watch = MonitorRunner()
    found = [violation for seen in scene.wire for violation in watch.observe(seen)]
    return tuple(violation for violation in found if violation.side is Side.CLIENT and violation.certain)
