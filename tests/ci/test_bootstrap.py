"""``.venv`` is made from a bare Python, once; an error is one sentence. All of it offline."""

from __future__ import annotations

import ast
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from plumbline.ci import bootstrap
from tests.patience import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # make test-all runs it

ROOT = Path(__file__).resolve().parents[2]

# A build backend without dependencies, so that a whole project installs offline.
BACKEND = textwrap.dedent(
    """
    import zipfile

    def build_editable(folder, settings=None, metadata=None):
        info = "tiny-1.0.dist-info"
        files = {
            "tiny.pth": "",
            f"{info}/METADATA": "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
            f"{info}/RECORD": "",
        }
        with zipfile.ZipFile(f"{folder}/tiny-1.0-py3-none-any.whl", "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)
        return "tiny-1.0-py3-none-any.whl"

    def get_requires_for_build_editable(settings=None):
        return []
    """
)
PYPROJECT = textwrap.dedent(
    """
    [build-system]
    requires = []
    build-backend = "backend"
    backend-path = ["."]

    [project]
    name = "tiny"
    version = "1.0"
    """
)


def make_project(folder: Path) -> Path:
    """A project that installs nothing but itself, with the real bootstrap."""
    (folder / "ci").mkdir(parents=True)
    shutil.copy(ROOT / "ci" / "bootstrap.py", folder / "ci")
    (folder / "plumbline" / "servers").mkdir(parents=True)
    for name in ("__init__.py", "servers/__init__.py", "servers/debian.py"):
        shutil.copy(ROOT / "plumbline" / name, folder / "plumbline" / name)
    (folder / "requirements.lock").write_text("# nothing to fetch\n")
    (folder / "requirements-test.lock").write_text("# nor for tests\n")
    (folder / "requirements-dev.lock").write_text("# nothing to fetch either\n")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that was never bootstrapped."""
    return make_project(tmp_path / "a checkout")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A project, bootstrapped once, and the finished command."""
    folder = make_project(tmp_path_factory.mktemp("bootstrapped") / "a checkout")
    return folder, run_bootstrap(folder)


@pytest.fixture
def ready(first: tuple[Path, subprocess.CompletedProcess[str]]) -> Path:
    """The project, up to date. Tests may change it in ways that the bootstrap undoes."""
    folder, _ = first
    assert run_bootstrap(folder).returncode == 0
    return folder


def run_bootstrap(project: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As ``make`` runs it. The index is a port without a listener by default."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}/simple"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        [sys.executable, project / "ci" / "bootstrap.py", *flags],
        env={**kept, "PIP_INDEX_URL": closed, **environment},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )


def names_installed(project: Path) -> str:
    return subprocess.run(
        [project / ".venv" / "bin" / "python", "-m", "pip", "list", "--format=freeze"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_bootstrap_creates_environment_from_bare_python(
    first: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = first
    assert (done.returncode, done.stderr) == (0, "")
    assert "creating .venv with Python" in done.stdout
    assert "ready after" in done.stdout
    assert "tiny==1.0" in names_installed(folder)


def test_second_bootstrap_is_silent_no_op(ready: Path) -> None:
    again = run_bootstrap(ready)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_a_changed_lock_file_installs_again_into_the_same_environment(ready: Path) -> None:
    with (ready / "requirements.lock").open("a") as lock:
        lock.write("# renewed\n")
    again = run_bootstrap(ready)
    assert again.returncode == 0
    assert "creating" not in again.stdout
    assert "ready after" in again.stdout


@pytest.mark.timeout(600)  # three times pip, the last with everything
def test_the_tools_of_the_tests_come_when_they_are_asked_for_and_stay(project: Path) -> None:
    assert run_bootstrap(project).returncode == 0
    quick = run_bootstrap(project, "--test")
    assert "ready after" in quick.stdout
    more = run_bootstrap(project, "--dev")
    assert "creating" not in more.stdout
    assert "Spark among them" in more.stdout
    assert run_bootstrap(project).stdout == ""
    assert run_bootstrap(project, "--test").stdout == ""
    with (project / "pyproject.toml").open("a") as text:
        text.write("# renewed\n")
    assert "Spark among them" in run_bootstrap(project).stdout


def test_a_moved_checkout_gets_a_new_environment(ready: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(ready, moved, symlinks=True)
    again = run_bootstrap(moved)
    assert again.returncode == 0
    assert "creating .venv" in again.stdout
    assert str(moved) in (moved / ".venv" / "bin" / "pip").read_text()


def test_bootstrap_recreates_environment_without_python(ready: Path) -> None:
    (ready / ".venv" / "bin" / "python").unlink()
    again = run_bootstrap(ready)
    assert again.returncode == 0
    assert "creating .venv" in again.stdout


def test_bootstrap_repeats_interrupted_installation(ready: Path) -> None:
    lock = ready / "requirements.lock"
    whole = lock.read_text()
    lock.write_text(whole + "msgspec==0.22.0 --hash=sha256:" + 64 * "0" + "\n")
    failed = run_bootstrap(ready, PIP_NO_INDEX="1")
    lock.write_text(whole)
    again = run_bootstrap(ready)
    assert (failed.returncode, again.returncode) == (2, 0)
    assert "ready after" in again.stdout


def test_an_unreachable_index_is_one_sentence_and_exit_2(ready: Path) -> None:
    lock = ready / "requirements.lock"
    whole = lock.read_text()
    lock.write_text(whole + "msgspec==0.22.0 --hash=sha256:" + 64 * "0" + "\n")
    done = run_bootstrap(ready)
    lock.write_text(whole)
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(
        "plumbline: the package index is not reachable: connect to the network, or set PIP_INDEX_URL"
    )


def test_a_folder_that_is_no_environment_is_not_deleted(project: Path) -> None:
    (project / ".venv").mkdir()
    (project / ".venv" / "precious").touch()
    done = run_bootstrap(project)
    assert done.returncode == 2
    assert ".venv is not a Python environment: move it away" in done.stderr
    assert (project / ".venv" / "precious").exists()


def test_the_environment_of_another_checkout_is_not_emptied(project: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    (others / "pyvenv.cfg").touch()
    (project / ".venv").symlink_to(others)
    done = run_bootstrap(project)
    assert done.returncode == 2
    assert ".venv is a symbolic link, and would be emptied: remove the link" in done.stderr
    assert (others / "pyvenv.cfg").exists()


def test_error_for_old_python_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "OLDEST", (99, 1))
    monkeypatch.setattr(bootstrap, "KNOWN", ())
    with pytest.raises(
        bootstrap.BootstrapError,
        match=r"Python 99\.1 or newer is needed, this one is 3\.\d+: .*apt-get install",
    ):
        bootstrap.require_python()


def test_a_newer_python_of_the_machine_is_used_instead_if_it_works(tmp_path: Path) -> None:
    for name, script in {"python98": "exit 127", "python99": '[ "$1" = -c ] || echo "newer runs $1"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    program = (
        "import sys; from ci import bootstrap; sys.argv = ['ci/bootstrap.py']; "
        "bootstrap.OLDEST, bootstrap.KNOWN = (99, 1), ('python98', 'python99'); sys.exit(bootstrap.main())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "newer runs ci/bootstrap.py\n"


def test_the_bootstrap_parses_on_a_python_that_is_too_old() -> None:
    ast.parse((ROOT / "ci" / "bootstrap.py").read_text(), feature_version=(3, 7))


@pytest.mark.skipif(
    shutil.which("apt-get") is None, reason="only Debian and its kin leave ensurepip out of their Python"
)
def test_without_ensurepip_the_distributions_pip_is_fetched(tmp_path: Path) -> None:
    wheel = bootstrap.distributions_pip(tmp_path)
    assert re.fullmatch(r"pip-[0-9.]+-py3-none-any\.whl", wheel.name)
    command = [sys.executable, str(wheel / "pip"), "--version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True)
    assert version.stdout.startswith(f"pip {wheel.name.split('-')[1]} ")


def test_error_without_any_pip_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter(()))
    with pytest.raises(bootstrap.BootstrapError, match="apt-get install python3-venv"):
        bootstrap.distributions_pip(tmp_path)
