"""``pytest --pyargs plumbline.conformance --target URL`` by hand, and a pytest run of another project."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from plumbline.conformance.suite import all_checks
from plumbline.reference_broker.nats.server import NatsBroker
from tests.cli.command import TABLED, Ended, pytest_by_hand, run, write_trace

pytestmark = pytest.mark.slow  # make test-all runs it

SUITE = ("--pyargs", "plumbline.conformance")
NEVER_COMES = "MSG a 1 || x"

OWN = """
from plumbline.conformance.check import verifies
from plumbline.wire.nats import Ping, Pong

@verifies("CORE-004")
def test_ping_is_answered(session):
    \"\"\"PING is answered.\"\"\"
    client = session.connect()
    client.send(Ping.make())
    client.expect(Pong)

@verifies("CORE-004")
def test_without_evidence(session):
    session.connect()

@verifies("CORE-004")
def test_that_raises(session):
    {}["what is missing"]

@verifies("CORE-004")
def test_that_dies(session):
    import os
    os._exit(0)

def test_of_the_users():
    pass

def test_of_the_users_that_fails():
    assert False
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with NatsBroker.in_thread(jetstream=True) as url:
        yield url


def _outcomes(ended: Ended) -> str:
    """The last line, without the time."""
    return ended.out.splitlines()[-1].strip("= ").rpartition(" in ")[0]


# -- the packaged suite ------------------------------------------------------------------------


def test_the_suite_runs_by_hand_from_an_empty_folder(tmp_path: Path, broker: str) -> None:
    ended = pytest_by_hand(tmp_path, *SUITE, "--target", broker, "-k", "JS-PULL-015")
    assert (ended.code, ended.err) == (0, "")
    assert "4 passed" in _outcomes(ended)
    assert "conformant: 4 requirements claimed, 4 tested, 4 passed" in ended.out
    assert list(tmp_path.iterdir()) == []


def test_workers_and_junit_of_pytest_itself(tmp_path: Path, broker: str) -> None:
    options = ("-n", "2", "--junitxml", "j.xml", "-m", "may")
    ended = pytest_by_hand(tmp_path, *SUITE, "--target", broker, *options)
    assert ended.code == 0, ended.out
    (suite,) = ET.parse(tmp_path / "j.xml").getroot()
    levels = {row.get("value") for row in suite.iterfind(".//property[@name='level']")}
    assert levels == {"MAY"}
    assert len(suite.findall(".//property[@name='requirement']")) >= int(suite.get("tests", 0)) > 5
    assert (tmp_path / "j.xml").stat().st_size < 100_000


@pytest.mark.parametrize("level", ["must", "should", "may"])
def test_levels_are_marks(tmp_path: Path, level: str) -> None:
    ended = pytest_by_hand(tmp_path, *SUITE, "--target", "nats://127.0.0.1:1", "--collect-only", "-qm", level)
    assert ended.code == 0
    found = int(_outcomes(ended).partition("/")[0])
    assert 0 < found < len(all_checks("nats"))


def test_it_runs_without_xdist(tmp_path: Path, broker: str) -> None:
    ended = pytest_by_hand(tmp_path, *SUITE, "--target", broker, "-p", "no:xdist", "-k", "CORE-00")
    assert ended.code == 0, ended.out


def test_one_packaged_file_can_be_named(tmp_path: Path, broker: str) -> None:
    ended = pytest_by_hand(
        tmp_path, "--pyargs", "plumbline.conformance.checks.nats.core.test_core_publish", "--target", broker
    )
    assert ended.code == 0, ended.out


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_error_without_target_names_the_option(tmp_path: Path, options: tuple[str, ...]) -> None:
    ended = pytest_by_hand(tmp_path, *SUITE, *options)
    assert (ended.code, ended.out) == (2, "")
    assert "add --target nats://" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (("--target", "http://h"), 2, "nats://127.0.0.1:4222"),
        (("--target", "nats://127.0.0.1:1"), 3, "Nothing listens at 127.0.0.1:1"),
        (("--target", "nats://h", "--plumbline-select", "JS-PUL-015"), 2, "did you mean JS-PULL-015"),
        (("--target", "nats://h", "--plumbline-waivers", "none.toml"), 2, "No such file"),
        (("--target", "nats://h", "--plumbline-level", "new"), 2, "for example 2.9"),
        (("--target", "nats://h", "--plumbline-variant", "aut=nats://h"), 2, "did you mean auth"),
        (("--target", "nats://h", "--plumbline-tls-ca", "ca.pem"), 2, "begins with tls://"),
        (("--target", "nats://h", "--plumbline-inbox-prefix", "a b"), 2, "expected tokens of a subject"),
        (("--target", "nats://h", "--plumbline-auth-mechanism", "PLAIN"), 2, "a URL of an AMQP server"),
    ],
)
def test_exit_codes_and_sentences_are_those_of_verify(
    tmp_path: Path, options: tuple[str, ...], code: int, error: str
) -> None:
    ended = pytest_by_hand(tmp_path, *SUITE, *options)
    assert (ended.code, ended.out) == (code, "")
    assert error in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_empty_selection_is_usage_error(tmp_path: Path, broker: str, options: tuple[str, ...]) -> None:
    ended = pytest_by_hand(tmp_path, *SUITE, "--target", broker, "-k", "no_check_is_called_so", *options)
    assert ended.code == 2
    assert "no check was selected: -k, -m and the arguments match no check" in ended.out


def test_a_users_configuration_loses_no_check(tmp_path: Path, broker: str) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\n"
        "addopts = -ra -x --strict-markers --strict-config --doctest-modules --import-mode=importlib\n"
        "python_files = *.py\n"
        "python_functions = check_*\n"
        "norecursedirs = checks traces core\n"
        "filterwarnings = error\n"
        "xfail_strict = true\n"
    )
    listed = pytest_by_hand(tmp_path, *SUITE, "--target", broker, "--collect-only", "-q")
    assert _outcomes(listed) == f"{len(all_checks('nats'))} tests collected"
    ended = pytest_by_hand(tmp_path, *SUITE, "--target", broker, "-k", "CORE-00 or JS-PULL-00")
    assert ended.code == 0, ended.out


# -- checks of one's own -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "code", "line"),
    [
        ("ping_is_answered", 0, "conformant: 1 requirement claimed, 1 tested, 1 passed"),
        ("ping_is_answered or of_the_users_that_fails", 1, "test_of_the_users_that_fails"),
        ("without_evidence", 1, "the check made no observation"),
        ("that_raises", 4, "KeyError: 'what is missing'"),
    ],
)
def test_a_marked_function_is_a_check(tmp_path: Path, broker: str, chosen: str, code: int, line: str) -> None:
    (tmp_path / "test_own.py").write_text(OWN)
    ended = pytest_by_hand(tmp_path, "test_own.py", "--target", broker, "-k", chosen)
    assert ended.code == code
    assert line in ended.out


def test_a_worker_that_dies_is_an_error_of_plumbline(tmp_path: Path, broker: str) -> None:
    (tmp_path / "test_own.py").write_text(OWN)
    options = ("-n", "2", "-k", "that_dies or is_answered")
    ended = pytest_by_hand(tmp_path, "test_own.py", "--target", broker, *options)
    assert ended.code == 4
    assert "test_own.py::that_dies ended with an internal error of Plumbline: worker" in ended.out
    assert "1 passed" in _outcomes(ended)


def test_marked_function_without_target_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(OWN)
    ended = pytest_by_hand(tmp_path, "test_own.py")
    assert ended.code == 2
    assert "add --target nats://" in ended.out


def test_unknown_requirement_error_suggests_ids(tmp_path: Path, broker: str) -> None:
    (tmp_path / "test_own.py").write_text(OWN.replace("CORE-004", "CORE-04"))
    ended = pytest_by_hand(tmp_path, "test_own.py", "--target", broker)
    assert ended.code == 2
    assert "CORE-04 is not a requirement: CORE-" in ended.out


def test_traces_of_ones_own_show_the_line_that_failed(tmp_path: Path, broker: str) -> None:
    write_trace(tmp_path / "passes.trace", "CORE-004")
    write_trace(tmp_path / "fails.trace", "CORE-004", expects=NEVER_COMES)
    ended = pytest_by_hand(tmp_path, "passes.trace", "fails.trace", "--target", broker)
    assert ended.code == 1
    assert _outcomes(ended) == "1 failed, 1 passed"
    assert "fails.trace:6: failed: client: operation: expected MSG, got PONG" in ended.out
    assert "Actual:   PONG" in ended.out


def test_each_case_of_a_table_is_an_item(tmp_path: Path, broker: str) -> None:
    (tmp_path / "my.trace").write_text(TABLED)
    ended = pytest_by_hand(tmp_path, "my.trace", "--target", broker)
    assert ended.code == 1
    assert _outcomes(ended) == "1 failed, 1 passed"
    ended = pytest_by_hand(tmp_path, "my.trace::passes", "--target", broker, "-v")
    assert _outcomes(ended) == "1 passed"
    assert "my.trace::passes PASSED" in ended.out
    ended = pytest_by_hand(tmp_path, "my.trace", "--target", broker, "-k", "fails", "-n", "2")
    assert _outcomes(ended) == "1 failed"


def test_the_first_failure_can_be_the_last(tmp_path: Path, broker: str) -> None:
    for name in "abc":
        write_trace(tmp_path / f"{name}.trace", "CORE-004", expects=NEVER_COMES)
    for options in (("-x",), ("-x", "-n", "2")):
        ended = pytest_by_hand(tmp_path, "a.trace", "b.trace", "c.trace", "--target", broker, *options)
        assert ended.code == 1
        assert "not conformant: 1 requirement claimed, 1 tested, 0 passed" in ended.out


# -- without options of Plumbline ---------------------------------------------------------------

UNRELATED = {
    "conftest.py": """
        def pytest_addoption(parser):
            parser.addoption("--target", default="nothing")
        """,
    "test_unrelated.py": """
        from unittest.mock import MagicMock
        anything = MagicMock()

        def test_target_is_theirs(request):
            assert request.config.getoption("target") == "theirs"

        def test_a_mock_is_no_check():
            assert anything.plumbline_check
        """,
}


def test_options_do_not_clash_with_other_projects(tmp_path: Path) -> None:
    for name, text in UNRELATED.items():
        (tmp_path / name).write_text("\n".join(line[8:] for line in text.splitlines()))
    ended = pytest_by_hand(tmp_path, "--target", "theirs", "-q")
    assert ended.code == 0, ended.out
    assert "Plumbline" not in ended.out


def test_loading_the_plugin_costs_an_unrelated_run_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, pytest\n"
        "had = set(sys.modules)\n"
        "import plumbline.pytest_plugin\n"
        "print(sorted(set(sys.modules) - had))"
    )
    answer = run((sys.executable, "-c", script), tmp_path)
    # access_options has the names and texts of options, and imports nothing.
    assert answer.out == "['plumbline', 'plumbline.access_options', 'plumbline.pytest_plugin']\n"
