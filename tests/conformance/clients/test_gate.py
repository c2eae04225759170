"""``plumbline gate`` as a command: exit codes, reports, waivers, selection, and how it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from plumbline.conformance.check import Check
from plumbline.conformance.clients.client_references import scenario_references
from plumbline.conformance.clients.gate import REQUIREMENTS, catalogue
from plumbline.conformance.clients.rules import RULES
from plumbline.conformance.clients.scenario import all_scenarios
from plumbline.conformance.requirements.coverage import problems
from plumbline.reports.result_json import decode
from plumbline.verdicts import ExitCode, Outcome
from tests.conformance.clients.libraries import python_adapter
from tests.patience import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # make test-all runs it

ROOT = Path(__file__).parents[3]
WHOLE = (sys.executable, "-m", "tests.mutation.clients")
HELLO = """
import json, sys, time
def say(**line): print(json.dumps(line), flush=True)
say(hello="plumbline.adapter/1", protocol="nats", library="lib", version="1.2", features=["fetch"])
"""


def gate(*arguments: object, command: tuple[str, ...] = WHOLE) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "plumbline", "gate", *map(str, arguments), "--", *command]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)


def test_a_library_that_keeps_the_protocol_is_conformant(tmp_path: Path) -> None:
    files = {name: tmp_path / f"out.{name}" for name in ("json", "junit", "html")}
    ran = gate("--select", "CLIENT-CORE-00[12]", *(f"--{name}={path}" for name, path in files.items()))
    assert ran.returncode == ExitCode.CONFORMANT, ran.stdout + ran.stderr
    assert "Verifying client twin 1.0.0 by " in ran.stdout
    result = json.loads(files["json"].read_text())
    assert result["target"]["kind"] == "client"
    assert result["target"]["version"] == "1.0.0"
    assert result["summary"]["passed"] == 2
    assert len(ElementTree.parse(files["junit"]).getroot().findall(".//testcase")) == 2
    assert "CLIENT-CORE-001" in files["html"].read_text()


def test_a_broken_library_is_not_and_the_wire_around_the_failure_is_shown() -> None:
    ran = gate("--select", "CLIENT-ACK-001", command=(*WHOLE, "ack-is-ok"))
    assert ran.returncode == ExitCode.NOT_CONFORMANT
    assert "CLIENT-ACK-001 MUST: An acknowledgement is an empty payload or +ACK" in ran.stdout
    assert "| +ok" in ran.stdout
    assert 'adapter > {"id":' in ran.stdout
    assert "run again: plumbline gate --select nats_ack::an_ack_is_empty_or_says_so -- " in ran.stdout


def test_a_waived_failure_is_green_and_a_stale_waiver_is_not(tmp_path: Path) -> None:
    waivers = tmp_path / "waivers.toml"
    waivers.write_text('[[waiver]]\nrequirement = "CLIENT-ACK-001"\nreason = "known"\nversions = ">=1, <2"\n')
    arguments = ("--select", "CLIENT-ACK-001", "--waivers", waivers)
    waived = gate(*arguments, command=(*WHOLE, "ack-is-ok"))
    assert waived.returncode == ExitCode.CONFORMANT, waived.stdout
    assert "1 failed and are waived" in waived.stdout
    assert gate(*arguments).returncode == ExitCode.NOT_CONFORMANT


def test_a_failed_should_is_red_only_with_strict() -> None:
    arguments = ("--select", "CLIENT-PULL-001")
    broken = (*WHOLE, "lingers-at-once")
    assert gate(*arguments, command=broken).returncode == ExitCode.CONFORMANT
    assert gate(*arguments, "--strict", command=broken).returncode == ExitCode.NOT_CONFORMANT


@pytest.mark.parametrize(
    ("name", "select"), [("nats_py", "CLIENT-CONN-00[1-3]"), ("pika", "CLIENT-LOSS-00[1-5]")]
)
def test_scenarios_are_played_over_tls(name: str, select: str, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    ran = gate("--tls", "--select", select, f"--json={report}", command=python_adapter(name))
    assert ran.returncode == ExitCode.CONFORMANT, ran.stdout + ran.stderr
    result = decode(report.read_bytes())
    assert result.summary.passed
    assert (result.target.arguments or ("",))[0] == "--tls"


def test_a_library_that_does_not_trust_the_authority_does_not_connect() -> None:
    """So the certificate is one that has to be verified, and the bytes are those of TLS."""
    program = UNTRUSTING.format(folder=str(REQUIREMENTS.parent / "adapters" / "nats_py"))
    ran = gate("--tls", "--select", "CLIENT-CORE-001", command=(sys.executable, "-c", program))
    assert ran.returncode == ExitCode.NOT_CONFORMANT
    assert "connect was answered with an error" in ran.stdout
    assert "certificate verify failed" in ran.stdout.lower()


def test_adapter_crash_fails_scenario_with_stderr() -> None:
    program = HELLO + "sys.stdin.readline(); print('segmentation of faults', file=sys.stderr); sys.exit(9)"
    ran = gate("--select", "CLIENT-STATUS-001", command=(sys.executable, "-c", program))
    assert ran.returncode == ExitCode.NOT_CONFORMANT
    assert "the adapter ended" in ran.stdout
    assert "segmentation of faults" in ran.stdout


ANEW = """
import asyncio, os, sys
sys.path.insert(0, {folder!r})
import adapter
open({pids!r}, "a").write(str(os.getpid()) + chr(10))
{more}
asyncio.run(adapter.main())
"""
UNTRUSTING = """
import asyncio, ssl, sys
sys.path.insert(0, {folder!r})
import adapter
trusting = ssl.create_default_context
ssl.create_default_context = lambda **_: trusting()
asyncio.run(adapter.main())
"""
NO_FLUSH_AFTER_RESET = """
end = adapter.Adapter.end
async def flush(self): raise RuntimeError("it has played before")
async def end_and_break(self):
    adapter.Adapter.flush = flush
    await end(self)
adapter.Adapter.end = end_and_break
"""


@pytest.mark.parametrize(("more", "processes"), [("", 1), (NO_FLUSH_AFTER_RESET, 2)])
def test_a_process_plays_several_scenarios_and_the_result_of_a_new_one_counts(
    more: str, processes: int, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    folder = str(REQUIREMENTS.parent / "adapters" / "nats_py")
    program = ANEW.format(folder=folder, pids=str(pids), more=more)
    selected = (word for name in ("1", "2", "8") for word in ("--select", f"CLIENT-CORE-00{name}"))
    ran = gate("-n", "1", *selected, command=(sys.executable, "-c", program))
    assert ran.returncode == ExitCode.CONFORMANT, ran.stdout + ran.stderr
    assert len(pids.read_text().split()) == processes


def test_an_adapter_without_hello_is_a_lost_target() -> None:
    ran = gate(command=(sys.executable, "-c", "import sys; sys.exit('cannot import lib')"))
    assert ran.returncode == ExitCode.TARGET_LOST
    assert "cannot import lib" in ran.stderr


def test_unclaimed_feature_is_unsupported() -> None:
    program = HELLO + "sys.stdin.read()"
    ran = gate("--select", "CLIENT-PUB-*", command=(sys.executable, "-c", program))
    assert ran.returncode == ExitCode.NOT_CONFORMANT  # no requirement was tested
    assert "the adapter does not claim js.publish" in ran.stdout
    assert "not supported by this client" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "command", "error"),
    [
        (("--select", "CLIENT-PULL-999"), WHOLE, "matches no requirement and no check"),
        (("--protocol", "smtp"), WHOLE, "write one of nats, amqp"),
        (("--protocol", "amqp"), WHOLE, "the adapter's hello names the protocol nats"),
        (("--waivers", "/nonexistent.toml"), WHOLE, "No such file"),
        ((), (), "name the adapter to start"),
        (
            ("--tls",),
            (sys.executable, "-c", HELLO + "sys.stdin.readline()"),
            "the adapter does not claim the feature tls",
        ),
        (("--tls", "--nats-compat"), WHOLE, "a responder cannot be given the certificate"),
    ],
)
def test_usage_errors_are_one_sentence(
    arguments: tuple[str, ...], command: tuple[str, ...], error: str
) -> None:
    ran = gate(*arguments, command=command)
    assert ran.returncode == ExitCode.USAGE
    assert error in ran.stderr


def test_ctrl_c_ends_the_adapters_with_the_run(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        f"import os; open({str(pids)!r}, 'a').write(str(os.getpid()) + chr(10))\n" + HELLO + "time.sleep(60)"
    )
    words = [sys.executable, "-m", "plumbline", "gate", "--", sys.executable, "-c", program]
    running = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not pids.exists() or len(pids.read_text().split()) < 3:
        assert time.monotonic() < deadline, "no scenario was started"
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=HANGS_AFTER_S)
    assert running.returncode == ExitCode.INTERRUPTED
    assert b"interrupted" in stderr
    for pid in map(int, pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_end_of_the_time_lists_what_was_not_played(tmp_path: Path) -> None:
    program = HELLO + "sys.stdin.read()"
    report = tmp_path / "r.json"
    ran = gate("--max-time=2s", f"--json={report}", command=(sys.executable, "-c", program))
    assert ran.returncode == ExitCode.TARGET_LOST
    assert "plumbline: the time limit of 2s was reached (--max-time)" in ran.stderr
    result = decode(report.read_bytes())
    assert {check.id for check in result.checks} == {check.id for check in checks_of("nats")}
    cut_off = [check for check in result.checks if check.outcome is Outcome.INCONCLUSIVE]
    assert cut_off
    assert all("time limit" in check.message or "interrupted" in check.message for check in cut_off)


def checks_of(protocol: str) -> list[Check]:
    """All that a run of the gate is about."""
    rules = [rule.check for rule in RULES if rule.protocol == protocol]
    return [*(scenario.check for scenario in all_scenarios(protocol)), *rules]


def test_client_requirements_and_scenarios_match() -> None:
    assert list(problems(catalogue(), scenario_references(), frozenset())) == []


def test_the_published_set_names_every_requirement_of_clients() -> None:
    known = catalogue()
    assert known.published(folder=REQUIREMENTS).ids == set(known.by_id)


def test_a_scenario_speaks_the_protocol_of_its_requirements() -> None:
    known = catalogue().by_id
    for scenario in all_scenarios():
        profiles = {known[name].profile for name in scenario.check.requirements}
        assert profiles == {f"client-{scenario.protocol}"}, scenario.id
