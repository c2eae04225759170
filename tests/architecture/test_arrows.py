"""The arrows of ``ARCHITECTURE.md`` hold, and the contracts that keep them would notice if they did not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
SOURCES = (*PACKAGES, "plumbline.py")


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
    """The packages, to be broken."""
    folder = tmp_path_factory.mktemp("copy")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_every_arrow_points_the_way_the_design_says() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("package", "line", "contract"),
    [
        ("wire", "import conformance", "Arrows point one way"),
        ("wire", "import socket", "Codecs and broker cores do no I/O"),
        ("wire", "import time", "Codecs and broker cores do no I/O"),
        ("reference_broker/nats", "import asyncio", "Codecs and broker cores do no I/O"),
        ("reference_broker", "import conformance.verdicts", "Arrows point one way"),
        ("conformance", "import reference_broker", "Arrows point one way"),
        ("conformance", "import pipeline", "Arrows point one way"),
        ("conformance", "import reports", "Nobody knows who reads a verdict"),
        ("conformance", "import ci", "Only the command line and the tests start real servers"),
        ("proxy", "import reference_broker", "Arrows point one way"),
        ("proxy", "import conformance", "Arrows point one way"),
        ("pipeline", "import plumbline", "Only the command line starts one part"),
        ("reports", "import wire", "Reports know only verdict events"),
        ("reports", "import conformance.outcomes", "Reports know only verdict events"),
        ("ci", "import wire", "Arrows point one way"),
    ],
)
def test_an_arrow_against_the_design_is_noticed(package: str, line: str, contract: str, copy: Path) -> None:
    trespasser = copy / package / "trespasser.py"
    trespasser.write_text(f"{line}\n")
    try:
        result = lint_imports(copy)
    finally:
        trespasser.unlink()
    assert result.returncode == 1, result.stdout + result.stderr
    assert [row for row in result.stdout.splitlines() if contract in row and "BROKEN" in row]
