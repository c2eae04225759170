"""The table of known bugs: each row is a command that can run, of a failure that is listed as known."""

from __future__ import annotations

import pytest

from plumbline.cluster.plan import parse_faults
from plumbline.versions import numbers
from tests.cluster import bugs
from tests.cluster.bugs import KnownBug, known_bugs, main
from tests.cluster.known import known_failures

BUGS = {bug.name: bug for bug in known_bugs()}


def test_names_differ() -> None:
    assert len(BUGS) == len(known_bugs())


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_a_known_failure_of_the_affected_release_only(name: str) -> None:
    bug = BUGS[name]
    assert bug.requirement in known_failures(bug.affected)
    assert bug.requirement not in known_failures(bug.fixed)
    assert numbers(bug.affected) < numbers(bug.fixed)
    words = bug.command(bug.affected)
    assert parse_faults(words[words.index("--faults") + 1])
    assert words[-2:] == ["--seed", str(bug.seed)]


@pytest.mark.parametrize(
    ("affected", "fixed", "code"),
    [
        ([True, False], [False, False], 0),
        ([False, False], [False, False], 1),
        ([True, True], [False, True], 1),
    ],
    ids=["as the table says", "never convicted", "the fixed release is convicted"],
)
def test_the_code_says_whether_the_table_is_right(
    affected: list[bool],
    fixed: list[bool],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bug = BUGS["two-updates"]
    ends = {bug.affected: list(affected), bug.fixed: list(fixed)}

    def convicted(known: KnownBug, release: str) -> bool:
        return ends[release].pop(0)

    monkeypatch.setattr(bugs, "is_convicted", convicted)
    assert main(["--tries", "2", "--only", bug.name]) == code
    printed = capsys.readouterr().out
    assert f"{sum(affected)} of 2 convicted: plumbline cluster --server nats-server@2.9.20" in printed
    assert ("not as the table says" in printed) is bool(code)
