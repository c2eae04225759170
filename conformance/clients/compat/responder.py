"""The program of a vendor that answers the commands of the compatibility tests, and what it is judged by.

A command is a message on ``tests.<suite>.<test>.<step>.command`` with a reply subject. The responder does it
with its library and replies with nothing, or with a digest. Then it is sent the result, on
``tests.<suite>.<test>.pass.result`` or ``.fail.result``; ``tests.done`` ends it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from plumbline.conformance.clients.client_under_test import ClientUnderTest
from plumbline.conformance.clients.nats.scene import NatsScene, payload_of
from plumbline.conformance.clients.scenario_broker import ScenarioBroker
from plumbline.conformance.outcomes import CheckEnded, Failed
from plumbline.errors import UsageProblem
from plumbline.interrupts import kept_from_children
from plumbline.monitors import Observation
from plumbline.wire.nats import HMsg, HPub, Msg, Pub, Sub, Unsub
from plumbline.wire.nats.subjects import covers

SUBSCRIBED_WITHIN_S = 60.0  # from the start of the program: it may be compiled first
OTHERS_WITHIN_S = 3.0  # after the first test that has a responder
ANSWERED_WITHIN_S = 20.0
ENDS_WITHIN_S = 10.0  # after tests.done
LOOK_EVERY_S = 0.2  # whether the program still runs
DONE = "tests.done"
OWN_SUITE = "kv"  # it is Plumbline's
# Of a service: nats.net looks at the last name. Others are free: no responder looks at them.
STEPS = {"add service": "setup", "stop service": "destroy"}
ANY_STEP = "step"


class VendorFailedError(Exception):
    """The test of the vendor is not passed; the text says why."""


class Judgement(Struct, frozen=True):
    """One requirement, as the wire of one test shows it; ``failure`` is empty if it is met."""

    requirement: str
    failure: str = ""


class Responder:
    """A running program of a vendor, in a process group of its own."""

    def __init__(self, command: Sequence[str], url: str) -> None:
        """Raises ``UsageProblem`` if it cannot be started."""
        try:
            with kept_from_children():
                self._process = subprocess.Popen(
                    command,
                    start_new_session=True,
                    env={**os.environ, "NATS_URL": url},
                    stdout=sys.stderr.fileno(),  # the rows of the result go to stdout
                )
        except OSError as error:
            raise UsageProblem(f"{command[0]} cannot be started: {error.strerror}") from None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def end(self, within: float = 0.0) -> int | None:
        """Its exit code; None if it had to be killed."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(within)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return code


class ResponderScene(NatsScene):
    """One test: its commands, and the wire since it began."""

    def __init__(self, responder: Responder, broker: ScenarioBroker, suite: str, test: str) -> None:
        super().__init__(ClientUnderTest(()), broker)
        self.responder = responder
        self.suite, self.test = suite, test
        self.judgements: list[Judgement] = []
        self.files = ""  # the address where objects are fetched
        self._began = len(broker.observations)
        self._numbers = itertools.count(1)

    @property
    def wire(self) -> list[Observation]:
        return list(self.broker.observations)[self._began :]

    @property
    def subject(self) -> str:
        return f"tests.{self.suite}.{self.test}"

    def send(self, name: str, meanwhile: Callable[[], None] = lambda: None, **fields: Any) -> bytes:
        """One command; its answer, once the broker has read all that the responder sent before it. Raises
        ``VendorFailedError``."""
        number = next(self._numbers)
        reply = f"plumbline.{self.suite}.{self.test}.{number}"
        command = json.dumps({"suite": self.suite, "test": self.test, "command": name, **fields}).encode()
        subject = f"{self.subject}.{STEPS.get(name, name.replace(' ', '-'))}.command"
        client = self.direct_session.connect("tester")
        client.send(Sub.make(reply, number), Unsub.make(number, 1))
        client.flush()  # the proxy shows a subscription before the broker has read it
        client.send(Pub.make(subject, b"" if name == "stop service" else command, reply))
        passed = client.flush()
        meanwhile()
        deadline = time.monotonic() + ANSWERED_WITHIN_S
        while not (answers := self.published_to(reply)):
            if self.responder.exit_code is not None:
                raise VendorFailedError(f"the program ended with exit code {self.responder.exit_code}")
            if time.monotonic() > deadline:
                raise VendorFailedError(f"{name} is not answered within {ANSWERED_WITHIN_S:g} s")
            self.await_wire(lambda: self.published_to(reply), LOOK_EVERY_S)
        # The broker passes it on after it has read what the command subscribed to.
        while not any(isinstance(one, Msg | HMsg) for one in passed):
            arrived = client.take(max(deadline - time.monotonic(), 0.0))
            if arrived is None:
                raise VendorFailedError(f"the answer to {name} has not passed the broker in time")
            passed.append(arrived)
        return payload_of(answers[0]).payload

    def published_to(self, subject: str) -> list[Observation]:
        """What the responder published there."""
        return [seen for seen in self.sent_operations(Pub, HPub) if payload_of(seen).subject == subject]

    def compare(self, what: str, expected: object, actual: object) -> None:
        """As the tester of the vendors does. Raises ``VendorFailedError``."""
        if actual != expected:
            raise VendorFailedError(f"{what}: expected {expected!r}, found {actual!r}")

    @contextmanager
    def judging(self, requirement: str) -> Iterator[None]:
        """What the block requires of the wire decides this requirement."""
        try:
            yield
        except CheckEnded as ended:
            actual = f"; expected {ended.expected}, found {ended.actual}" if isinstance(ended, Failed) else ""
            self.judgements.append(Judgement(requirement, f"{ended.message}{actual}"))
        else:
            self.judgements.append(Judgement(requirement))

    def tell_result(self, failure: str) -> None:
        """To the responder: passed, or the failure. A failure has headers, which some of them look at."""
        client = self.direct_session.connect("tester")
        subject = f"{self.subject}.{'fail' if failure else 'pass'}.result"
        client.send(HPub.make(subject, [("Failure", failure)]) if failure else Pub.make(subject))
        client.flush()

    def tell_end(self) -> None:
        """No test follows."""
        client = self.direct_session.connect("tester")
        client.send(Pub.make(DONE))
        client.flush()


def has_responder(broker: ScenarioBroker, suite: str, test: str) -> bool:
    """Whether the program has subscribed to the commands of that test. For the suite that NATS does not have,
    a subscription to all suites says nothing."""
    prefix = f"tests.{suite}." if suite == OWN_SUITE else ""
    return any(
        subject.startswith(prefix) and covers(subject, f"tests.{suite}.{test}.{ANY_STEP}.command")
        for subject in _subjects(broker)
    )


def hears_the_end(broker: ScenarioBroker) -> bool:
    """Whether the program has subscribed to ``tests.done``."""
    return any(covers(subject, DONE) for subject in _subjects(broker))


def _subjects(broker: ScenarioBroker) -> list[str]:
    """What the program has subscribed to."""
    operations = [seen.operation for seen in list(broker.observations)]
    return [one.subject for one in operations if isinstance(one, Sub)]
