"""What a scenario uses, for every protocol: the client under test, the broker, and how to report evidence.

A scenario asks the client for something, waits for what the wire or the client then shows, and requires. What
it requires is evidence; one that gave none fails. ``Failed`` says what the client broke.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import msgspec

from plumbline.conformance.clients.client_under_test import ClientUnderTest
from plumbline.conformance.clients.protocol import AdapterAnswer, AdapterEvent, AdapterMessage
from plumbline.conformance.clients.scenario_broker import ScenarioBroker
from plumbline.conformance.outcomes import Failed
from plumbline.monitors import Observation
from plumbline.verdicts import WireLine
from plumbline.wire.sender import Sender

ADAPTER = "adapter"  # the connection's name in wire lines between Plumbline and the adapter
SOON_S = 8.0  # within which what nothing holds back has happened, on a busy machine too
POLL_INTERVAL_S = 0.1  # how long a command may be over before who waits beside it lets go
MAX_RAW_BYTES = 4096
NS = 1_000_000_000


class Scene:
    """One play of one scenario."""

    def __init__(self, client: ClientUnderTest, broker: ScenarioBroker) -> None:
        self.client = client
        self.broker = broker
        self.observations = 0
        self._started_ns = time.time_ns()
        self._offending: set[tuple[str, int]] = set()

    # -- the client --------------------------------------------------------------------------

    def try_command(self, command: str, *, within: float = 0.0, **fields: Any) -> AdapterAnswer:
        """One command; its answer may be an error. ``within``: its own time-out in seconds, which
        ``timeout_ms`` and ``expires_ms`` are as well. Raises ``AdapterError``."""
        own = max((fields[name] / 1000 for name in ("timeout_ms", "expires_ms") if name in fields), default=0)
        return self.client.send_command(command, within=max(within, own), **fields)

    def run_command(self, command: str, *, within: float = 0.0, **fields: Any) -> AdapterAnswer:
        """One command that must succeed. Raises ``Failed`` with the text of the library."""
        answer = self.try_command(command, within=within, **fields)
        if answer.error is not None:
            self.fail(
                f"{command} was answered with an error",
                expected=f"{command} succeeds",
                actual=str(answer.error),
            )
        return answer

    def connect(self, *, within: float = 5.0, query: str = "", **fields: Any) -> None:
        """Let the client connect to the broker. ``query``: what follows its URL."""
        if self.broker.authority is not None:
            fields["tls_ca"] = str(self.broker.authority)
        self.run_command("connect", within=within, url=self.broker.url + query, **fields)

    @property
    def events(self) -> list[AdapterEvent]:
        """What the library reported by itself so far."""
        return list(self.client.events)

    def messages(self, subscription: str) -> list[AdapterMessage]:
        """What was handed over for a subscription so far."""
        events = (event for event in self.events if event.event == "message")
        return [event.message for event in events if event.message and event.subscription == subscription]

    def events_named(self, *names: str) -> list[AdapterEvent]:
        """The events of these names so far."""
        return [event for event in self.events if event.event in names]

    def await_events(self, condition: Callable[[], Any], within: float = SOON_S) -> bool:
        """Whether ``condition()`` came true while the adapter wrote. Raises ``AdapterError``."""
        return self.client.wait_until(lambda: bool(condition()), within)

    # -- the wire ----------------------------------------------------------------------------

    @property
    def wire(self) -> list[Observation]:
        """All operations so far, of both sides."""
        return list(self.broker.observations)

    def sent_operations(self, *kinds: type[Any]) -> list[Observation]:
        """What the client sent so far: operations of these types, or all."""
        return [
            seen
            for seen in self.wire
            if seen.sender is Sender.CLIENT and isinstance(seen.operation, kinds or object)
        ]

    def received_operations(self, *kinds: type[Any]) -> list[Observation]:
        """What the client was sent so far."""
        return [
            seen
            for seen in self.wire
            if seen.sender is Sender.SERVER and isinstance(seen.operation, kinds or object)
        ]

    def await_wire(self, condition: Callable[[], Any], within: float = SOON_S) -> bool:
        """Whether ``condition()`` came true while operations passed."""
        return self.broker.wait_until(lambda: bool(condition()), within)

    @contextmanager
    def act_during(self, when: Callable[[], Any], act: Callable[[], None]) -> Iterator[None]:
        """While the block runs (a command that takes its time), ``act`` once ``when()`` is true on the wire.

        What ``act`` raises is raised at the end; if ``when()`` never comes true, nothing is done."""
        problems: list[BaseException] = []
        over = threading.Event()

        def wait() -> None:
            try:
                while not over.is_set():
                    if self.await_wire(when, POLL_INTERVAL_S):
                        act()
                        return
            except BaseException as problem:
                problems.append(problem)

        thread = threading.Thread(target=wait, name="plumbline-meanwhile", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if problems:
            raise problems[0]

    # -- evidence ----------------------------------------------------------------------------

    def count_observation(self) -> None:
        """Count one piece of evidence."""
        self.observations += 1

    def require(
        self, condition: object, message: str, *, expected: str, actual: object, at: Observation | None = None
    ) -> None:
        """Evidence: ``condition`` must hold. ``at``: the operation to point at if not. Raises ``Failed``."""
        if not condition:
            self.fail(message, expected=expected, actual=actual, at=at)
        self.count_observation()

    def fail(self, message: str, *, expected: str, actual: object, at: Observation | None = None) -> NoReturn:
        """The client broke it."""
        if at is not None:
            self._offending.add((at.connection, at.index))
        raise Failed(message, expected=expected, actual=str(actual) or "nothing")

    @contextmanager
    def collect_operations(self) -> Iterator[list[Observation]]:
        """Collects the operations that pass while the block runs."""
        before = len(self.broker.observations)
        collected: list[Observation] = []
        try:
            yield collected
        finally:
            collected += list(self.broker.observations)[before:]

    def transcript(self) -> tuple[WireLine, ...]:
        """Everything, for reports: wire, remarks, and what adapter and Plumbline wrote to each other."""
        found: list[tuple[int, WireLine]] = []
        for seen in self.broker.observations:
            raw = seen.operation.raw[:MAX_RAW_BYTES]
            line = WireLine(0.0, f"wire {seen.connection}", seen.sender.arrow, str(seen.operation), raw)
            offending = (seen.connection, seen.index) in self._offending
            found.append((seen.at, msgspec.structs.replace(line, offending=offending)))
        found += [
            (remark.at, WireLine(0.0, f"wire {remark.connection}", "!", remark.text))
            for remark in self.broker.remarks
        ]
        found += [
            (spoken.at, WireLine(0.0, ADAPTER, ">" if spoken.sent else "<", spoken.text))
            for spoken in self.client.spoken
        ]
        found.sort(key=lambda pair: pair[0])
        return tuple(msgspec.structs.replace(line, at=(at - self._started_ns) / NS) for at, line in found)

    def close(self) -> None:
        """Let go of what a protocol's scene holds."""
