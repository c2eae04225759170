"""What the static analysis of the checks finds, and its errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.requirements.coverage import problems, summary
from plumbline.conformance.requirements.references import CONFORMANCE, CheckReferences, check_references
from plumbline.conformance.suite import all_checks

ROWS = """
[group]
id = "G"
title = "A group"
[[requirement]]
id = "G-001"
level = "MUST"
profile = "nats-core"
statement = "A server answers."
source = "a document"
[[requirement]]
id = "G-002"
level = "SHOULD"
profile = "nats-core"
statement = "A server is kind."
source = "a document"
excluded = "kindness is not on the wire"
"""

TRACE = """title     A trace
source    a document
verifies  {ids}
variant   {variant}

> PING
< PONG
verifies  G-999
"""

CASES = """title     A trace {name}
source    a document
verifies  G-001 {more}
variant   {variant}
cases
| name    | more  | variant |
| plain   |       |         |
| guarded | G-009 | auth    |

> PING
< PONG
"""

FUNCTION = '''
from conformance import check
from plumbline.conformance.check import verifies


@verifies("G-001", {arguments})
def test_it_answers(session):
    """It answers."""


def helps(session):
    pass
'''


def folder(path: Path, *, trace: str = "", function: str = "") -> Path:
    for name in ("requirements", "traces/deep", "checks"):
        (path / name).mkdir(parents=True)
    (path / "requirements" / "g.toml").write_text(ROWS)
    if trace:
        (path / "traces" / "deep" / "answer.trace").write_text(trace)
    if function:
        (path / "checks" / "test_answers.py").write_text(function)
    return path


def problems_of(path: Path) -> list[str]:
    return list(problems(Catalogue.load(path / "requirements"), check_references(path), frozenset({"auth"})))


def test_a_trace_is_read_by_its_header(tmp_path: Path) -> None:
    path = folder(tmp_path, trace=TRACE.format(ids="G-001", variant="auth"))
    (check,) = check_references(path).checks
    assert check.id == "deep/answer"
    assert [(r.name, r.where) for r in check.requirements] == [
        ("G-001", "conformance/traces/deep/answer.trace:3")
    ]
    assert check.variant is not None
    assert check.variant.name == "auth"
    assert problems_of(path) == []


def test_a_function_is_read_by_its_decorator(tmp_path: Path) -> None:
    path = folder(tmp_path, function=FUNCTION.format(arguments='variant="auth"'))
    (check,) = check_references(path).checks
    assert (check.id, check.where) == ("answers::it_answers", "conformance/checks/test_answers.py:7")
    assert [(r.name, r.where) for r in check.requirements] == [
        ("G-001", "conformance/checks/test_answers.py:6")
    ]
    assert check.variant is not None
    assert problems_of(path) == []


def test_a_name_for_a_text_is_read_as_the_text(tmp_path: Path) -> None:
    named = 'VARIANT = "auth"\n' + FUNCTION.format(arguments="variant=VARIANT")
    assert problems_of(folder(tmp_path, function=named)) == []


def test_unverified_requirement_is_reported(tmp_path: Path) -> None:
    (problem,) = problems_of(folder(tmp_path))
    assert problem == (
        "conformance/requirements/g.toml:5: no check verifies G-001 (MUST); "
        "name it in a trace or @verifies, or give the reason in excluded"
    )


def test_excluded_but_verified_requirement_is_reported(tmp_path: Path) -> None:
    (problem,) = problems_of(folder(tmp_path, trace=TRACE.format(ids="G-001 G-002", variant="auth")))
    assert problem.startswith(
        "conformance/requirements/g.toml:11: G-002 is excluded and conformance/traces/deep"
    )


def test_a_sample_beside_a_trace_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = folder(tmp_path, trace=TRACE.format(ids="G-001", variant="auth"))
    rows = path / "requirements" / "g.toml"
    rows.write_text(ROWS.replace('source = "a document"\n', 'source = "a document"\nsample = "> PING"\n', 1))
    assert problems_of(path) == [
        "conformance/requirements/g.toml:5: G-001 has a sample, and conformance/traces/deep/answer.trace:1 "
        "shows the exchange that is run; drop the sample: it is for requirements that only functions verify"
    ]


def test_a_sample_beside_a_function_is_not_refused(tmp_path: Path) -> None:
    path = folder(tmp_path, function=FUNCTION.format(arguments='variant="auth"'))
    rows = path / "requirements" / "g.toml"
    rows.write_text(ROWS.replace('source = "a document"\n', 'source = "a document"\nsample = "> PING"\n', 1))
    assert problems_of(path) == []


def test_each_case_of_a_table_is_a_check(tmp_path: Path) -> None:
    path = folder(tmp_path, trace=CASES)
    first, second = check_references(path).checks
    assert [(check.id, check.where) for check in (first, second)] == [
        ("deep/plain", "conformance/traces/deep/answer.trace:7"),
        ("deep/guarded", "conformance/traces/deep/answer.trace:8"),
    ]
    assert [(r.name, r.where) for r in second.requirements] == [
        ("G-001", "conformance/traces/deep/answer.trace:3"),
        ("G-009", "conformance/traces/deep/answer.trace:8"),
    ]
    assert first.variant is None
    assert second.variant is not None
    assert (second.variant.name, second.variant.where) == ("auth", "conformance/traces/deep/answer.trace:8")
    assert second.exchange == ("> PING", "< PONG")
    (problem,) = problems_of(path)
    assert problem.startswith("conformance/traces/deep/answer.trace:8: G-009 is not a requirement")


def test_a_table_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    found = problems_of(folder(tmp_path, trace=CASES.replace("| auth    |", "| auth")))
    assert found[0].startswith(
        'conformance/traces/deep/answer.trace:8:25: expected a "|" at the end of the row'
    )


def test_two_checks_with_one_id_are_reported(tmp_path: Path) -> None:
    path = folder(tmp_path, trace=CASES.replace("G-009", ""))
    (path / "traces" / "deep" / "plain.trace").write_text(TRACE.format(ids="G-001", variant="auth"))
    assert problems_of(path) == [
        "conformance/traces/deep/plain.trace:1: conformance/traces/deep/answer.trace:7 is the check "
        "deep/plain, too; rename one of them"
    ]


def test_unknown_id_is_reported_with_location(tmp_path: Path) -> None:
    (problem,) = problems_of(folder(tmp_path, trace=TRACE.format(ids="G-001 G-01", variant="auth")))
    assert problem.startswith(
        "conformance/traces/deep/answer.trace:3: G-01 is not a requirement; did you mean"
    )


def test_unknown_variant_is_reported_with_location(tmp_path: Path) -> None:
    (problem,) = problems_of(folder(tmp_path, function=FUNCTION.format(arguments='variant="outh"')))
    assert problem == (
        "conformance/checks/test_answers.py:6: no variant 'outh' in variants.toml; there are: auth"
    )


def test_check_without_requirement_is_reported(tmp_path: Path) -> None:
    forgotten = FUNCTION.format(arguments="since=None") + "\n\ndef test_forgotten(session):\n    pass\n"
    (problem,) = problems_of(folder(tmp_path, function=forgotten))
    assert problem.endswith("answers::forgotten verifies no requirement; name at least one")


def test_computed_ids_are_reported(tmp_path: Path) -> None:
    (problem,) = problems_of(folder(tmp_path, function=FUNCTION.format(arguments='"G-" + "002"')))
    assert problem.endswith("write ids and variants of @verifies as plain text")


def test_invalid_python_file_is_reported(tmp_path: Path) -> None:
    found = problems_of(folder(tmp_path, function="def ("))
    assert found[0].startswith("conformance/checks/test_answers.py:1: not Python: ")


def test_the_summary_counts(tmp_path: Path) -> None:
    path = folder(tmp_path, trace=TRACE.format(ids="G-001", variant="auth"))
    text = summary(Catalogue.load(path / "requirements"), check_references(path))
    assert text == "2 requirements: 1 verified, 1 excluded; 1 checks"


def test_the_packaged_checks_are_seen_as_the_suite_runs_them() -> None:
    written: CheckReferences = check_references()
    assert written.problems == ()
    seen = {check.id: {r.name for r in check.requirements} for check in written.checks}
    assert seen == {check.id: set(check.requirements) for check in all_checks()}


def test_the_command_exits_with_what_it_found() -> None:
    command = [sys.executable, "-m", "plumbline.conformance.requirements.coverage"]
    ran = subprocess.run(command, cwd=CONFORMANCE.parent, capture_output=True, text=True, check=False)
    *lines, total = ran.stdout.splitlines()
    assert ran.returncode == (1 if lines else 0), ran.stderr
    assert " requirements: " in total
