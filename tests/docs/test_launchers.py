"""The launchers of the documents, each with the tools of its language: start, URL, stop, a defect, a fault.

The registries that bring Jest and JUnit are asked only in CI, or with PLUMBLINE_REGISTRIES=1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conformance.clients.libraries import BUILT_WITHIN_S, missing, registries_wanted, run

LAUNCHERS = Path(__file__).parents[2] / "docs" / "launchers"
TESTED_WITHIN_S = 300.0
pytestmark = [pytest.mark.slow, pytest.mark.external, pytest.mark.timeout(BUILT_WITHIN_S + TESTED_WITHIN_S)]
from_registries = pytest.mark.skipif(
    not registries_wanted(), reason="installs from a registry: set PLUMBLINE_REGISTRIES=1"
)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the launcher of the language ``request.param``."""
    copied = tmp_path / "launcher"
    shutil.copytree(
        LAUNCHERS / request.param, copied, ignore=shutil.ignore_patterns("target", "node_modules")
    )
    return copied


def run_tests(command: Sequence[str], folder: Path, passed: str) -> None:
    """Runs the tests of a launcher; its output says that the three of them passed."""
    program = folder.parent / "plumbline"  # as it is installed, whatever is on PATH
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m plumbline "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PLUMBLINE": str(program)}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TESTED_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert passed in done.stdout, done.stdout


def tool(name: str, package: str) -> str:
    """A program of the machine."""
    found = shutil.which(name)
    if found is None:
        missing(f"{name} is missing, for the launcher: apt-get install {package}")
    assert found is not None
    return found


@pytest.mark.parametrize("folder", ["python"], indirect=True)
def test_pytest(folder: Path) -> None:
    run_tests(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull], folder, "3 passed"
    )


@pytest.mark.parametrize("folder", ["go"], indirect=True)
def test_go(folder: Path) -> None:
    run_tests([tool("go", "golang"), "test", "-v", "./..."], folder, "--- PASS: TestProxyWithFault")


@from_registries
@pytest.mark.parametrize("folder", ["node"], indirect=True)
def test_jest(folder: Path) -> None:
    run(
        [tool("npm", "nodejs npm"), "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"],
        folder,
    )
    run_tests([tool("npx", "npm"), "--no-install", "jest"], folder, "3 passed, 3 total")


@pytest.mark.parametrize("folder", ["rust"], indirect=True)
def test_cargo(folder: Path) -> None:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing, for the launcher: apt-get install cargo, or https://rustup.rs")
    run_tests(["cargo", "test", "--offline", "--test", "plumbline"], folder, "ok. 3 passed")


@from_registries
@pytest.mark.parametrize("folder", ["java"], indirect=True)
def test_junit(folder: Path) -> None:
    if shutil.which("mvn") is None:
        pytest.skip("mvn is missing, for the launcher: apt-get install default-jdk-headless maven")
    run_tests(["mvn", "--batch-mode", "test"], folder, "Tests run: 3, Failures: 0, Errors: 0")
