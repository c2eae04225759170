"""``plumbline gate --nats-compat``: NATS' compatibility tests, played to a responder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plumbline.conformance.clients.compat.suites import TESTS
from plumbline.verdicts import ExitCode
from tests.patience import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # make test-all runs it

ROOT = Path(__file__).parents[3]
RESPONDER = (sys.executable, "-m", "tests.conformance.clients.twin_responder")


def gate(*arguments: str, command: tuple[str, ...] = RESPONDER) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "plumbline", "gate", "--nats-compat", *arguments, "--", *command]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)


def rows(ran: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The verdict of the responder's side by test."""
    lines = [line.split() for line in ran.stdout.splitlines()]
    known = {test.id for test in TESTS}
    return {words[0]: words[1] for words in lines if words and words[0] in known}


def test_a_library_that_keeps_the_protocol_passes_on_both_sides() -> None:
    ran = gate("--strict")
    assert ran.returncode == ExitCode.CONFORMANT, ran.stdout + ran.stderr
    assert rows(ran) == {test.id: "passed" for test in TESTS}
    assert "CLIENT-OBJ-001 passed" in ran.stdout
    assert "CLIENT-SERVICE-012 passed" in ran.stdout
    assert "CLIENT-KV-009 passed" in ran.stdout


def test_a_responder_that_knows_tests_by_their_order_and_hears_of_no_end_passes() -> None:
    ran = gate("--strict", command=(*RESPONDER, "by-position"))
    assert ran.returncode == ExitCode.CONFORMANT, ran.stdout + ran.stderr
    expected = {test.id: "passed" if test.suite == "object-store" else "none" for test in TESTS}
    assert rows(ran) == expected
    assert "The responder does not subscribe to tests.done, and was ended." in ran.stdout


def test_a_broken_library_fails_on_both_sides_and_the_output_shows_it() -> None:
    ran = gate(command=(*RESPONDER, "broken"))
    assert ran.returncode == ExitCode.NOT_CONFORMANT
    failed = {name for name, verdict in rows(ran).items() if verdict == "failed"}
    assert failed == {"object-store.get-object", "object-store.get-link"}
    assert "CLIENT-OBJ-007: other bytes were handed over" in ran.stdout
    assert "The responder ended with exit code 1." in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "command", "error"),
    [
        ((), (), "name the responder to start"),
        ((), ("/nonexistent/responder",), "cannot be started"),
        (("--select", "smtp"), RESPONDER, "write one of kv, object-store, service"),
        ((), (sys.executable, "-c", "pass"), "a responder for none of the tests"),
    ],
)
def test_usage_errors_are_one_sentence(
    arguments: tuple[str, ...], command: tuple[str, ...], error: str
) -> None:
    ran = gate(*arguments, command=command)
    assert ran.returncode == ExitCode.USAGE
    assert error in ran.stderr
