"""Makes ``.venv`` from a bare Python: what ``make verify`` and ``make test`` do first. Standard library only.

A first pip is Python's own (ensurepip), or, where a distribution leaves that out, the distribution's. With it
a lock file is installed, hash by hash, pip itself included, then the project as an editable install. There
are three: ``requirements.lock`` is what running needs, a matter of seconds; ``requirements-test.lock``, with
``--test``, adds what the quick tests need; ``requirements-dev.lock``, with ``--dev``, is everything, Spark
among it. A stamp remembers what was installed; nothing is done while that holds. This file must still parse
on Python 3.7, to say that it is too old.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OLDEST = (3, 11)
KNOWN = ("python3.13", "python3.12", "python3.11")

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "plumbline-stamp.json"
LOG = VENV / "bootstrap.log"
LOCK = ROOT / "requirements.lock"
TEST_LOCK = ROOT / "requirements-test.lock"
DEV_LOCK = ROOT / "requirements-dev.lock"
LOCKS = (LOCK, TEST_LOCK, DEV_LOCK)  # each has what the one before it has
INPUTS = (*LOCKS, ROOT / "pyproject.toml")

# What pip prints, and the one sentence a person needs. The first that matches is shown.
CAUSES = (
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSL: ",
        "the package index's certificate is not trusted: set PIP_CERT to the file of your CA certificates",
    ),
    (
        r"NameResolutionError|NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|IncompleteRead"
        r"|Max retries exceeded|[Cc]onnection (refused|broken|reset)|Network is unreachable",
        "the package index is not reachable: connect to the network, or set PIP_INDEX_URL to a mirror",
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "a downloaded package is not the one that the lock file names: ask the mirror's owner",
    ),
    (
        r"No matching distribution found",
        "the package index has no build of a pinned package for this Python and platform",
    ),
    (r"No space left on device", "the disk is full"),
)


NO_PIP = (
    "this Python has neither pip nor ensurepip, and apt-get could not fetch them: connect to the network, or "
    "install them (Debian, Ubuntu: apt-get install python3-venv)"
)


class BootstrapError(Exception):
    """Says in one sentence what is missing and what to do."""


def report(text: str) -> None:
    """One line of progress."""
    print(f"plumbline: {text}", flush=True)


def require_python() -> None:
    """Goes on in a newer Python of this machine if this one is too old; says what to install otherwise."""
    if sys.version_info >= OLDEST:
        return
    for name in KNOWN:
        newer = shutil.which(name)
        # A version manager's stub can be on PATH and start nothing.
        if newer and subprocess.call([newer, "-c", "import venv"], stderr=subprocess.DEVNULL) == 0:
            os.execv(newer, [newer, *sys.argv])
    raise BootstrapError(
        "Python {}.{} or newer is needed, this one is {}.{}: install one (Debian, Ubuntu: apt-get install "
        "python3) or name one with 'make PYTHON=/path/to/python3'".format(*OLDEST, *sys.version_info[:2])
    )


def fingerprint(lock: Path) -> dict[str, str]:
    """What ``.venv`` depends on: ``place`` and ``python`` ask for a new one, the others to install again."""
    digest = hashlib.sha256()
    for path in INPUTS:
        digest.update(path.read_bytes())
    python = "{}.{}".format(*sys.version_info[:2])
    return {"place": str(ROOT), "python": python, "lock": lock.name, "inputs": digest.hexdigest()}


def read_stamp() -> dict[str, str]:
    """What the last bootstrap left, or nothing."""
    try:
        content = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def python_version() -> str:
    """The version of the environment's Python, or nothing if it does not start."""
    if not PYTHON.exists():
        return ""
    answer = subprocess.run(
        [str(PYTHON), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return answer.stdout.decode().strip() if answer.returncode == 0 else ""


def distributions_pip(folder: Path) -> Path:
    """The pip wheel of Debian and its kin, whose python3 lacks ensurepip; in ``folder`` if it was fetched."""
    installed = sorted(Path("/usr/share/python-wheels").glob("pip-*.whl"))
    if installed:
        return installed[-1]
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise BootstrapError(NO_PIP)
    report("this Python has no pip: downloading Debian's package")
    sys.path.insert(0, str(ROOT))  # this file is run by its path
    from plumbline.servers.debian import debian_package

    debian_package("python3-pip-whl", folder)
    fetched = sorted(folder.glob("python3-pip-whl/usr/share/python-wheels/pip-*.whl"))
    if not fetched:
        raise BootstrapError(NO_PIP)
    return fetched[-1]


def make_environment() -> None:
    """An empty environment, in the place of whatever stood there."""
    try:
        import venv
    except ImportError as missing:
        raise BootstrapError(
            "this Python has no venv module: install it whole (Debian, Ubuntu: apt-get install python3)"
        ) from missing
    if VENV.is_symlink():  # what it points to is another checkout's environment
        raise BootstrapError(f"{VENV} is a symbolic link, and would be emptied: remove the link")
    if VENV.exists() and not (VENV / "pyvenv.cfg").exists():
        raise BootstrapError(f"{VENV} is not a Python environment: move it away")
    venv.EnvBuilder(clear=True, symlinks=True, with_pip=False).create(VENV)


def pip(command: list[str]) -> None:
    """Runs pip; its output goes to the log, and a failure becomes one sentence."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONUTF8": "1"}
    with LOG.open("ab") as log:
        log.write((" ".join(command) + "\n").encode())
        log.flush()
        start = log.tell()
        status = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=str(ROOT),
            check=False,
        ).returncode
    if status == 0:
        return
    output = LOG.read_bytes()[start:].decode(errors="replace")
    for pattern, sentence in CAUSES:
        if re.search(pattern, output):
            raise BootstrapError(f"{sentence} (full output of pip: {LOG})")
    raise BootstrapError("pip failed:\n{}".format("\n".join(output.splitlines()[-20:])))


def install_first_pip(quiet: list[str]) -> None:
    """Some pip in ``.venv``, to install the one of the lock file with."""
    if list(VENV.glob("lib/python*/site-packages/pip/__init__.py")):
        return
    if importlib.util.find_spec("ensurepip") is not None:
        pip([str(PYTHON), "-Im", "ensurepip", "--upgrade", "--default-pip"])
        return
    with tempfile.TemporaryDirectory(prefix="plumbline-pip-") as folder:
        wheel = distributions_pip(Path(folder))
        alone = ["--no-index", "--no-deps", "--no-compile", str(wheel)]
        pip([str(PYTHON), str(wheel / "pip"), "install", *quiet, *alone])


def install(lock: Path) -> None:
    """A pip, then what the lock file names, then the project."""
    count = len(re.findall(r"^[a-z0-9]", lock.read_text(), re.MULTILINE))
    quiet = ["--quiet", "--progress-bar=off"]
    install_first_pip(quiet)
    much = ", Spark among them: about 1.5 GB" if lock == DEV_LOCK else ""
    report(f"installing {count} pinned packages into .venv (only once{much})")
    run = [str(PYTHON), "-m", "pip", "install", *quiet]
    pip([*run, "--retries=2", "--timeout=20", "--require-hashes", "-r", str(lock)])
    pip([*run, "--no-index", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])


def bootstrap(lock: Path) -> None:
    """Brings ``.venv`` up to date with a lock file of ``LOCKS``. An environment that has more keeps it."""
    require_python()
    found = read_stamp()
    known = [one.name for one in LOCKS]
    if found.get("lock") in known[LOCKS.index(lock) :]:
        lock = LOCKS[known.index(found["lock"])]
    fingerprint_now = fingerprint(lock)
    version = python_version()
    if found == fingerprint_now and version == fingerprint_now["python"]:
        return
    began = time.monotonic()
    if (
        version != fingerprint_now["python"]
        or found.get("place", fingerprint_now["place"]) != fingerprint_now["place"]
    ):
        report("creating .venv with Python {}.{}.{}".format(*sys.version_info[:3]))
        make_environment()
    STAMP.unlink(missing_ok=True)
    LOG.unlink(missing_ok=True)
    install(lock)
    STAMP.write_text(json.dumps(fingerprint_now))
    report(f"ready after {time.monotonic() - began:.0f} s")


def main() -> int:
    """Exit 0 when ``.venv`` is ready, 2 with one sentence otherwise."""
    try:
        bootstrap(DEV_LOCK if "--dev" in sys.argv[1:] else TEST_LOCK if "--test" in sys.argv[1:] else LOCK)
    except BootstrapError as error:
        print(f"plumbline: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"plumbline: cannot make {VENV}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
