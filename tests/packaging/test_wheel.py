"""What ``pip install plumbline-mq`` gives: one package with all rooms and data, and a command; offline."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from plumbline.interpreter import SAFE_PATH
from tests.patience import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # make test-all runs it

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINKS = {path.name for path in (ROOT / "plumbline").iterdir() if path.is_symlink()}
ROOMS = sorted(LINKS - {"ci"})  # which serves the project itself
DATA = {".toml", ".trace", ".html", ".j2", ".ini", ".md", ".typed", ".json", ".css", ".js", ".svg"}


@pytest.fixture(autouse=True)
def _fresh_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark, started in this process by another test, names the checkout for its workers."""
    for name in ("PYTHONPATH", SAFE_PATH):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built by the backend that is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={folder}"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, ROOT], check=True, timeout=HANGS_AFTER_S)
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
    subprocess.run([python, "-m", "pip", "install", *options, wheel], check=True, timeout=HANGS_AFTER_S)
    return folder / "bin"


def tracked(folder: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_in_the_wheel_with_all_its_modules_and_data(room: str, wheel: Path) -> None:
    wanted = {f"plumbline/{name}" for name in tracked(room) if Path(name).suffix in DATA | {".py"}}
    wanted = {name for name in wanted if (ROOT / name).exists()}
    with zipfile.ZipFile(wheel) as archive:
        missing = wanted - set(archive.namelist())
    assert f"plumbline/{room}/__init__.py" in wanted
    assert missing == set()


def test_the_wheel_has_one_top_level_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
        rooms = {name.split("/")[1] for name in archive.namelist() if name.count("/") > 1}
        binaries = [name for name in archive.namelist() if name.endswith((".whl", ".pyc"))]
    version = PROJECT["project"]["version"]
    assert tops == {"plumbline", f"plumbline_mq-{version}.dist-info"}
    assert rooms - {"licenses"} == set(ROOMS)
    assert binaries == []


@pytest.mark.parametrize(
    ("argument", "output"),
    [("--help", "verify"), ("list", "JS-PULL-0"), ("targets", "nats-server@2.10.14 ")],
    ids=["command", "data of the suite", "names of real servers"],
)
def test_the_installed_command_finds_what_it_needs(
    installed: Path, tmp_path: Path, argument: str, output: str
) -> None:
    answer = subprocess.run(
        [installed / "plumbline", argument],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert output in answer.stdout


COLLIDING = """
import ci, proxy, reports, wire
assert [module.MINE for module in (ci, reports, wire)] == [True, True, True]
import plumbline.reports, plumbline.wire
assert plumbline.reports is not reports
print(proxy.__file__)
"""


def test_it_lives_beside_proxy_py_and_beside_packages_of_the_same_names(
    installed: Path, tmp_path: Path
) -> None:
    """proxy.py installs a package ``proxy``; a project may have its own ``ci``, ``reports`` and ``wire``."""
    for name in ("ci", "reports", "wire"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    answer = subprocess.run(
        [installed / "python", "-c", COLLIDING], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert Path(answer.stdout.strip()).parent.name == "proxy"
    answer = subprocess.run(
        [installed / "plumbline", "list", "CORE-001"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_pytest_imports_nothing_of_it_before_it_is_used(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import sys\n\n\ndef test_mine():\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] == 'plumbline'}\n"
        "    assert ours == {'plumbline', 'plumbline.access_options', 'plumbline.pytest_plugin'}\n"
    )
    answer = subprocess.run(
        [installed / "python", "-m", "pytest", "-q"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in answer.stdout, answer.stdout + answer.stderr


def test_the_installed_modules_are_those_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    program = "import plumbline.wire as one, plumbline.reports as two; print(one.__file__, two.__file__)"
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
