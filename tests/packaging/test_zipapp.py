"""The single file: built from the lock file, it starts a broker and verifies it, without an installation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.external, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zipapp") / "plumbline.pyz"
    command = [sys.executable, "-m", "plumbline.ci.zipapp", "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def run(pyz: Path, cache: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """In a folder where nothing of the project is, with an environment that knows nothing of it."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(cache), "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-I", str(pyz), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_it_verifies_with_workers_of_its_own(pyz: Path, tmp_path: Path) -> None:
    done = run(pyz, tmp_path / "cache", "verify", "--select", "JS-ACK-00*", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Conformant" in done.stdout


def test_it_is_unpacked_once_and_by_its_content(pyz: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for _ in range(2):
        assert run(pyz, cache, "list", "JS-ACK-001", folder=tmp_path).returncode == 0
    (unpacked,) = (cache / "plumbline" / "zipapp").iterdir()
    assert unpacked.joinpath("plumbline", "cli", "main.py").is_file()
    assert not unpacked.joinpath("pip").exists()
    written = unpacked.stat().st_mtime_ns
    assert run(pyz, cache, "list", "JS-ACK-001", folder=tmp_path).returncode == 0
    assert unpacked.stat().st_mtime_ns == written


def test_a_cache_that_cannot_be_written_is_named(pyz: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(pyz, tmp_path / "file", "list", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("plumbline: cannot unpack into ")
    assert "Traceback" not in done.stderr
