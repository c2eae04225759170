"""The arrows of ``ARCHITECTURE.md`` hold, and the contracts that keep them would notice if they did not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # make test-all runs it

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(path.name for path in (ROOT / "plumbline").iterdir() if path.is_symlink())


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, to be broken."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("plumbline", *ROOMS):
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.trace")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_imports_follow_the_design() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("room", "line", "contract"),
    [
        ("wire", "import plumbline.conformance", "Arrows point one way"),
        ("wire", "import plumbline.monitors", "Arrows point one way"),
        ("wire", "import socket", "Codecs and broker cores do no I/O"),
        ("wire", "import time", "Codecs and broker cores do no I/O"),
        ("monitors", "import plumbline.captures", "Arrows point one way"),
        ("captures", "import plumbline.proxy", "Arrows point one way"),
        ("captures", "import plumbline.reference_broker", "only the command line and the fixtures"),
        ("reference_broker/nats", "import asyncio", "Codecs and broker cores do no I/O"),
        ("reference_broker", "import plumbline.verdicts", "The reference broker knows only wire"),
        ("reference_broker", "import plumbline.monitors", "The reference broker knows only wire"),
        ("conformance", "import plumbline.reference_broker", "only the command line and the fixtures"),
        ("conformance", "import plumbline.captures", "The suite knows no capture"),
        ("conformance", "import plumbline.pipeline", "Arrows point one way"),
        ("conformance", "import plumbline.reports", "No room knows who reads a verdict"),
        ("conformance", "import plumbline.servers", "Only the command line, clusters"),
        ("proxy", "import plumbline.reference_broker", "only the command line and the fixtures"),
        ("proxy", "import plumbline.conformance", "Arrows point one way"),
        ("cluster", "import plumbline.reference_broker", "only the command line and the fixtures"),
        ("cluster", "import plumbline.reports", "No room knows who reads a verdict"),
        ("pipeline", "import plumbline.cli", "Only the command line starts one part"),
        ("reports", "import plumbline.wire", "Reports know only verdict events"),
        ("reports", "import plumbline.conformance.outcomes", "Reports know only verdict events"),
        ("verdicts", "import plumbline.wire", "Verdicts know nothing of ours"),
        ("servers", "import plumbline.wire", "Servers need no other room"),
        ("ci", "import plumbline.cli", "Only the command line starts one part"),
    ],
)
def test_an_arrow_against_the_design_is_noticed(room: str, line: str, contract: str, copy: Path) -> None:
    trespasser = copy / room / "trespasser.py"
    trespasser.write_text(f"{line}\n")
    try:
        result = lint_imports(copy)
    finally:
        trespasser.unlink()
    assert result.returncode == 1, result.stdout + result.stderr
    assert [row for row in result.stdout.splitlines() if contract in row and "BROKEN" in row]
