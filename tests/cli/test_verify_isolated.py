"""A run imports nothing that lies beside a trace or in the working folder, unless the user asks for it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.cli.command import PLUMBLINE, ROOT, environment, run, verify, write_trace

pytestmark = pytest.mark.slow  # make test-all runs it

# As the script `plumbline` starts, whose own folder is first on the import path.
SCRIPT = (sys.executable, "-P", *PLUMBLINE[1:])
PLANTED = "import pathlib\npathlib.Path(__file__).with_suffix('.imported').touch()\n"
ROOMS = (
    "captures",
    "cli",
    "conformance",
    "monitors",
    "pipeline",
    "proxy",
    "reference_broker",
    "reports",
    "servers",
)


def plant(folder: Path, *modules: str) -> None:
    """Modules that leave a file beside them when they are imported."""
    for module in modules:
        path = folder / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLANTED)


def imported(folder: Path) -> list[str]:
    """Which of them were."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.imported"))


def test_an_imported_module_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, "pytest/__init__.py")
    ended = run((sys.executable, "-c", "import pytest"), tmp_path)
    assert (ended.code, imported(tmp_path)) == (0, ["pytest/__init__.imported"])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trace_is_data_whatever_lies_beside_it(workers: int, tmp_path: Path) -> None:
    plant(tmp_path / "traces", "conftest.py", "__init__.py")
    trace = write_trace(tmp_path / "traces" / "own.trace", "CORE-004")
    ended = verify(tmp_path, "--trace", trace, f"--workers={workers}")
    assert ended.code == 0, ended.err
    assert imported(tmp_path) == []


def test_workers_do_not_import_the_working_folder(tmp_path: Path) -> None:
    plant(tmp_path, "execnet.py", "xdist/__init__.py", "pytest/__init__.py", "plumbline.py")
    ended = run((*SCRIPT, "verify", "--select", "CORE-00*", "--workers=2"), tmp_path)
    assert ended.code == 0, ended.err
    assert imported(tmp_path) == []


def test_the_module_does_not_import_the_working_folder(tmp_path: Path) -> None:
    """``python -P`` and the script are safe by themselves; ``python -m`` puts the working folder first."""
    plant(tmp_path, "pathlib.py", "typer/__init__.py", "pytest/__init__.py")
    ended = run((sys.executable, "-m", "plumbline", "list", "CORE-004"), tmp_path)
    assert ended.code == 0, ended.err
    assert imported(tmp_path) == []


def test_brokers_do_not_import_the_working_folder(tmp_path: Path) -> None:
    """A check that restarts its server starts the reference broker in a process."""
    plant(tmp_path, "json.py", "plumbline.py")
    ended = run((*SCRIPT, "verify", "--select", "store/hello-in-a-file", "--workers=0"), tmp_path)
    assert ended.code == 0, ended.err
    assert imported(tmp_path) == []


def test_python_is_started_in_one_way() -> None:
    """``sys.executable`` is named where the rule is, and where Spark gets the Python to use."""
    files = [
        *(ROOT / "plumbline").glob("*.py"),
        *(file for room in ROOMS for file in (ROOT / room).rglob("*.py")),
    ]
    naming = {
        str(file.relative_to(ROOT))
        for file in files
        if re.search(r"\bsys\.executable\b", file.read_text("utf-8"))
    }
    assert naming == {"plumbline/interpreter.py", "pipeline/spark/session.py"}


@pytest.mark.parametrize("workers", [0, 2])
def test_options_for_the_users_own_tests_are_not_those_of_a_run(workers: int, tmp_path: Path) -> None:
    command = (*SCRIPT, "verify", "--select", "CORE-00*", f"--workers={workers}")
    ended = run(command, tmp_path, environment(PYTEST_ADDOPTS="-v --no-such-option"))
    assert ended.code == 0, ended.err
