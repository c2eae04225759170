"""Plays NATS' compatibility tests to the responder of a vendor, one test after the other on one broker."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from plumbline.conformance.clients.compat.responder import (
    ENDS_WITHIN_S,
    LOOK_EVERY_S,
    OTHERS_WITHIN_S,
    SUBSCRIBED_WITHIN_S,
    Judgement,
    Responder,
    ResponderScene,
    VendorFailedError,
    has_responder,
    hears_the_end,
)
from plumbline.conformance.clients.compat.suites import DATA, STREAMS, TESTS, CompatTest
from plumbline.conformance.clients.gate import catalogue
from plumbline.conformance.clients.scenario import BrokerSetup
from plumbline.conformance.clients.scenario_broker import ScenarioBroker, ScenarioBrokers
from plumbline.conformance.outcomes import CheckEnded
from plumbline.errors import UsageProblem
from plumbline.verdicts import Level

# The programme is of 2023. Since 2.12 a server refuses fields that it does not know, and the responder of
# nats.js sends one.
PROGRAMME_LEVEL = "2.11"


class CompatResult(Struct, frozen=True):
    """One test: whether the program has a responder for it, why the test of the vendor failed (empty: it
    passed), and what the wire shows."""

    test: str
    has_responder: bool
    failure: str = ""
    judgements: tuple[Judgement, ...] = ()

    def is_green(self, *, strict: bool) -> bool:
        """Whether both sides passed; a failed SHOULD counts with ``strict`` only."""
        levels = {row.id: row.level for row in catalogue().requirements}
        failed = [one.requirement for one in self.judgements if one.failure]
        return not self.failure and not any(strict or levels[name] is Level.MUST for name in failed)


class CompatRun(Struct, frozen=True):
    """All tests, and the exit code of the program: None if it had to be killed, which is no failure of a
    program that does not hear of the end."""

    results: tuple[CompatResult, ...]
    exit_code: int | None
    hears_the_end: bool

    @property
    def ended_well(self) -> bool:
        """Whether its exit code says no failure."""
        return self.exit_code == 0 or (self.exit_code is None and not self.hears_the_end)


def run_compat(
    command: Sequence[str],
    brokers: ScenarioBrokers,
    suites: Sequence[str],
    tell: Callable[[CompatResult], None],
) -> CompatRun:
    """Play the tests of these suites, or all. ``tell`` gets each result. Raises ``UsageProblem``."""
    known = sorted({test.suite for test in TESTS})
    if unknown := [suite for suite in suites if suite not in known]:
        raise UsageProblem(f"--select {unknown[0]!r}: write one of {', '.join(known)}")
    results: list[CompatResult] = []
    with (
        brokers.scenario_broker("nats", BrokerSetup({"level": PROGRAMME_LEVEL})) as broker,
        _file_server() as files,
        contextlib.ExitStack() as running,
    ):
        responder = Responder(command, broker.url)
        running.callback(responder.end)
        wanted = [test for test in TESTS if not suites or test.suite in suites]
        while (test := _next_test(wanted, responder, broker, has_begun=bool(results))) is not None:
            wanted.remove(test)
            results.append(_play(test, responder, broker, files))
            tell(results[-1])
        for test in wanted:
            results.append(CompatResult(test.id, has_responder=False))
            tell(results[-1])
        scene = ResponderScene(responder, broker, "", "")
        hears = hears_the_end(broker)
        try:
            scene.tell_end()
            code = responder.end(ENDS_WITHIN_S if hears else 0.0)
        finally:
            scene.close()
    return CompatRun(tuple(results), code, hears)


def _next_test(
    wanted: Sequence[CompatTest], responder: Responder, broker: ScenarioBroker, *, has_begun: bool
) -> CompatTest | None:
    """A test that the program is ready for. Some programs are so for all of them, others for one or two at a
    time, in an order of their own. None if it is ready for no other."""
    until = time.monotonic() + (OTHERS_WITHIN_S if has_begun else SUBSCRIBED_WITHIN_S)
    while time.monotonic() < until and responder.exit_code is None:
        for test in wanted:
            if has_responder(broker, test.suite, test.name):
                return test
        broker.wait_until(lambda: False, LOOK_EVERY_S)
    return None


def _play(test: CompatTest, responder: Responder, broker: ScenarioBroker, files: str) -> CompatResult:
    scene = ResponderScene(responder, broker, test.suite, test.name)
    scene.files = files
    try:
        failure = ""
        try:
            test.play(scene)
        except VendorFailedError as error:
            failure = str(error)
        except CheckEnded as ended:
            failure = ended.message
        scene.tell_result(failure)
        for stream in STREAMS:
            scene.stage.answer("STREAM.DELETE", stream)
        return CompatResult(test.id, has_responder=True, failure=failure, judgements=tuple(scene.judgements))
    finally:
        scene.close()


class _ObjectHandler(http.server.BaseHTTPRequestHandler):
    """Answers every GET with the object that is put."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        self.wfile.write(DATA)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _file_server() -> Iterator[str]:
    """The address of the object, on this machine alone, while the block runs."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _ObjectHandler) as server:
        thread = threading.Thread(target=server.serve_forever, name="plumbline-files", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/nats-server.zip"
        finally:
            server.shutdown()
            thread.join()
