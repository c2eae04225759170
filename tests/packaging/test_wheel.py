"""What ``pip install plumbline`` gives: every package with its data, and a command that runs. All offline."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]
DATA = {".toml", ".trace", ".html", ".j2", ".ini", ".md", ".typed", ".json", ".css", ".js", ".svg"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built by the backend that is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={folder}"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, ROOT], check=True, timeout=100)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a fresh environment with the wheel, whose dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    place = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # Path files are not read in a folder that a path file names: the project's editable install stays out.
    Path(place, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    options = ["--quiet", "--no-index", "--no-deps", "--ignore-installed"]
    subprocess.run([python, "-m", "pip", "install", *options, wheel], check=True, timeout=100)
    return folder / "bin"


def tracked(folder: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_in_the_wheel_with_all_its_modules_and_data(package: str, wheel: Path) -> None:
    wanted = {
        name for name in tracked(package) if Path(name).suffix in DATA | {".py"} or name.endswith("py.typed")
    }
    wanted = {name for name in wanted if (ROOT / name).exists()}
    with zipfile.ZipFile(wheel) as archive:
        missing = wanted - set(archive.namelist())
    assert f"{package}/py.typed" in wanted
    assert missing == set()


def test_nothing_else_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
        binaries = [name for name in archive.namelist() if name.endswith((".whl", ".pyc"))]
    version = PROJECT["project"]["version"]
    assert tops == {*PACKAGES, "plumbline.py", f"plumbline-{version}.dist-info"}
    assert binaries == []


@pytest.mark.parametrize(
    ("argument", "told"),
    [("--help", "verify"), ("list", "JS-PULL-0"), ("targets", "nats-server@2.10.14  nats")],
    ids=["command", "data of the suite", "names of real servers"],
)
def test_the_installed_command_finds_what_it_needs(
    installed: Path, tmp_path: Path, argument: str, told: str
) -> None:
    answer = subprocess.run(
        [installed / "plumbline", argument],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert told in answer.stdout


def test_the_installed_modules_are_those_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    program = (
        "import wire, conformance, reports; print(wire.__file__, conformance.__file__, reports.__file__)"
    )
    answer = subprocess.run(
        [installed / "python", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert all(name.startswith(str(installed.parent)) for name in answer.stdout.split())


def test_pytest_in_the_fresh_environment_loads_the_plugins(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_client.py").write_text(
        "def test_client(nats_broker): assert nats_broker[:7] == 'nats://'\n"
    )
    answer = subprocess.run(
        [installed / "python", "-m", "pytest", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--target" in answer.stdout
    answer = subprocess.run(
        [installed / "python", "-m", "pytest", "-q"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in answer.stdout, answer.stdout + answer.stderr
