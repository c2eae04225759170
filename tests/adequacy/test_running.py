"""``make adequacy`` on a few checks and mutants of the AMQP core: results, going on, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from plumbline.conformance import suite
from plumbline.conformance.suite import select
from tests.adequacy import running
from tests.adequacy.mutants import Candidate, Source, mutants_of
from tests.adequacy.reach import CheckReach, Reach, measure
from tests.adequacy.results import (
    Killed,
    Result,
    ResultsFile,
    Status,
    equivalents,
    score,
    survivors,
    survivors_by_id,
)
from tests.adequacy.running import Runner, Selection
from tests.adequacy.sources import PACKAGE, ROOT, import_all, sources

# Workers of pytest-xdist have threads. Nothing that a forked process calls needs one of their locks.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

CHECKS = ["AMQP-ACK-001"]
all_checks = cache(suite.all_checks)
PUBLISHING = "amqp.messages.publishing"
ACKNOWLEDGING = "amqp.messages.acknowledging"


@pytest.fixture(scope="module")
def reach() -> Reach:
    return measure("amqp", select(all_checks("amqp"), CHECKS), "now")


@pytest.fixture(scope="module")
def candidates() -> list[Candidate]:
    import_all("amqp")
    wanted = (PUBLISHING, ACKNOWLEDGING)
    return [each for source in sources("amqp") if source.module in wanted for each in mutants_of(source)]


def candidate(candidates: list[Candidate], function: str, operator: str, before: str = "") -> Candidate:
    """The first mutant that is so."""
    return next(
        each
        for each in candidates
        if (each.mutant.function, each.mutant.operator) == (function, operator)
        and each.mutant.before.startswith(before)
    )


def run(reach: Reach, *chosen: Candidate) -> list[Result]:
    """The results, in the order of ``chosen``."""
    selection = Selection(reach, select(all_checks("amqp"), CHECKS))
    runner = Runner("amqp", reach, "now", 2)
    runner.use_imported()
    found = {result.id: result for result in runner.run(selection.job(each, {}) for each in chosen)}
    return [found[each.mutant.id] for each in chosen]


def test_a_mutant_is_killed_by_the_check_that_sees_it(reach: Reach, candidates: list[Candidate]) -> None:
    (result,) = run(reach, candidate(candidates, "Acknowledging.on_basic_ack", "return early"))
    assert (result.status, result.how) == (Status.KILLED, Killed.FAILED)
    assert result.killer in reach.checks


def test_a_mutant_of_what_no_check_looks_at_survives(reach: Reach, candidates: list[Candidate]) -> None:
    at_the_limit = candidate(candidates, "Publishing.on_basic_publish", "off by one", "len(operation.raw)")
    (result,) = run(reach, at_the_limit)
    assert result.status is Status.SURVIVED
    assert result.checks == result.reaching > 0


def test_a_mutant_where_no_check_comes_is_not_reached(reach: Reach, candidates: list[Candidate]) -> None:
    (result,) = run(reach, candidate(candidates, "Transactions.on_tx_commit", "skip a statement"))
    assert (result.status, result.checks) == (Status.UNREACHED, 0)


def test_a_core_that_raises_an_exception_is_killed(reach: Reach, candidates: list[Candidate]) -> None:
    no_outbox = candidate(candidates, "Publishing.__init__", "skip a statement", "self.deliveries")
    (result,) = run(reach, no_outbox)
    assert (result.status, result.how) == (Status.KILLED, Killed.CRASH)
    assert "AttributeError" in result.evidence


def test_a_core_that_does_not_come_to_an_end_is_killed(reach: Reach, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CHECK_S", 0.2)
    endless = "def on_basic_ack(self, channel, operation, now):\n    while False: pass\n"
    module = sys.modules[f"{PACKAGE}.{ACKNOWLEDGING}"]
    path = Path(str(module.__file__))
    first_line = vars(module)["Acknowledging"].on_basic_ack.__code__.co_firstlineno
    above = "\n" * (first_line - 2) + "class Acknowledging:\n"
    text = above + "".join(f"    {line}\n" for line in endless.splitlines())
    mutants = mutants_of(Source(ACKNOWLEDGING, path, text))
    forever = next(each for each in mutants if each.mutant.operator == "negate")
    forever = msgspec.structs.replace(forever, lines=tuple(range(first_line, first_line + 9)))
    (result,) = run(reach, forever)
    assert (result.status, result.how) == (Status.KILLED, Killed.TIMEOUT)
    assert result.killer in reach.checks


def test_the_process_that_forks_stays_as_it_was(reach: Reach, candidates: list[Candidate]) -> None:
    killed = candidate(candidates, "Acknowledging.on_basic_ack", "return early")
    again = run(reach, killed, killed)
    assert [result.status for result in again] == [Status.KILLED] * 2


def test_checks_are_selected_by_the_lines_they_run(candidates: list[Candidate]) -> None:
    chosen = candidate(candidates, "Acknowledging.on_basic_ack", "return early")
    (line, *_) = chosen.lines
    checks = all_checks("amqp")[:4]
    lines = [[line], [], [line, 1], [line]]
    reach = Reach(
        "now",
        {
            check.id: CheckReach(seconds, {ACKNOWLEDGING: of, "amqp.core": [line]})
            for check, seconds, of in zip(checks, (0.3, 0.1, 0.2, 0.1), lines, strict=True)
        },
        {},
    )
    by_time = Selection(reach, checks).job(chosen, {})
    assert [check.id for check in by_time.checks] == [checks[3].id, checks[2].id, checks[0].id]
    killers = [(ACKNOWLEDGING, "Acknowledging.on_basic_ack", checks[0].id)]
    assert Selection(reach, checks, killers).job(chosen, {}).checks[0].id == checks[0].id
    few = Selection(reach, checks, most=1).job(chosen, {})
    assert (len(few.checks), few.reaching) == (1, 3)


def test_what_runs_when_a_broker_starts_is_reached_by_every_check() -> None:
    reach = Reach("now", {"a": CheckReach(0.0, {}), "b": CheckReach(0.0, {})}, {}, started={"amqp.core": [7]})
    assert reach.reaching("amqp.core", [7]) == ["a", "b"]
    assert reach.reaching("amqp.core", [8]) == []


def test_results_are_kept_and_the_end_of_a_killed_run_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    result = Result("a", "now", Status.SURVIVED, "m", "f")
    ResultsFile(path).add(result)
    with path.open("ab") as file:
        file.write(b'{"id":"b","fing')
    results = ResultsFile(path)
    assert results.current("a", "now") == result
    assert results.current("a", "later") is None
    assert results.current("b", "now") is None


def test_equivalent_mutants_do_not_count() -> None:
    statuses = [Status.KILLED] * 3 + [Status.SURVIVED, Status.EQUIVALENT]
    of = score([Result(str(number), "now", status, "m", "f") for number, status in enumerate(statuses)])
    assert (of.mutants, of.percent) == (5, 75.0)


def test_the_list_of_equivalents_has_reasons() -> None:
    assert all(len(each.reason) > 20 and each.change for each in equivalents().values())


def test_the_lists_of_survivors_have_reasons_and_name_no_equivalents() -> None:
    groups = survivors()
    assert all(len(group.reason) > 20 for group in groups)
    listed = survivors_by_id(groups)
    assert len(listed) == sum(len(group.mutants) for group in groups)
    assert listed.keys().isdisjoint(equivalents())


# The program

PATTERN = f"{PUBLISHING}.Publishing.on_basic_publish"


def program(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it on one function, with one check."""
    command = _command(folder, PATTERN, *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _command(folder: Path, pattern: str, *arguments: str) -> list[str]:
    options = ["--protocol", "amqp", "--select", CHECKS[0], "--jobs", "2", "--folder", str(folder)]
    return [sys.executable, "-m", "tests.adequacy", pattern, *options, *arguments]


def results_file(folder: Path) -> Path:
    (found,) = folder.rglob("results.jsonl")
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_goes_on_where_it_was_and_lists_what_survived(tmp_path: Path) -> None:
    first = program(tmp_path)
    assert first.returncode == 0, first.stderr
    kept = results_file(tmp_path).read_bytes()
    results = ResultsFile(results_file(tmp_path)).by_id.values()
    assert Status.KILLED in {result.status for result in results}
    survivor = next(result for result in results if result.status is Status.SURVIVED)
    second = program(tmp_path)
    assert second.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    assert results_file(tmp_path).read_bytes() == kept
    assert f"{survivor.id} {PUBLISHING}" in program(tmp_path, "--list", "survived").stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_listed_survivor_is_equivalent_and_a_killed_one_must_not_be_listed(tmp_path: Path) -> None:
    program(tmp_path)
    results = ResultsFile(results_file(tmp_path)).by_id.values()
    survivor, killed = (
        next(each.id for each in results if each.status is status)
        for status in (Status.SURVIVED, Status.KILLED)
    )
    listed = tmp_path / "equivalents.toml"
    rest = f'module = "{PUBLISHING}"\nfunction = "f"\nchange = "c"\nreason = "nothing differs"\n'
    listed.write_text(f'[[equivalent]]\nid = "{survivor}"\n{rest}')
    run = program(tmp_path, "--equivalents", str(listed))
    assert "; 1 equivalent" in run.stdout
    assert run.returncode == 0
    listed.write_text(f'[[equivalent]]\nid = "{killed}"\n{rest}[[equivalent]]\nid = "none"\n{rest}')
    run = program(tmp_path, "--equivalents", str(listed))
    assert run.returncode == 1
    assert f"not equivalent: {killed}" in run.stdout
    assert "no such mutant any more: none" in run.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_ends_it_and_keeps_what_was_done(tmp_path: Path) -> None:
    command = _command(tmp_path, "amqp.*")
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        output = ""
        begun = False
        for line in process.stdout:
            output += line
            if line.startswith("mutants of amqp: 1 of ") and not begun:
                begun = True  # a busy machine prints it twice
                os.killpg(process.pid, signal.SIGINT)
        errors = process.stderr.read()
    assert process.returncode == 130, errors
    assert "interrupted; run it again to go on" in output
    assert "Traceback" not in errors
    assert ResultsFile(results_file(tmp_path)).by_id
