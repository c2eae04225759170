"""Runs the real command, and pytest as a user does, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

from msgspec import Struct

from tests.patience import HANGS_AFTER_S

ROOT = Path(__file__).parents[2]
PLUMBLINE = (sys.executable, "-m", "plumbline")
# Installing Plumbline registers its plugin; in a bare checkout it is named.
BY_HAND = (
    *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
    *(() if entry_points(group="pytest11", name="plumbline") else ("-p", "plumbline.pytest_plugin")),
)

# A trace of a user's own with a table of cases: one passes, one fails in line 10.
TABLED = """title     A trace of one's own: {name}
source    none
verifies  CORE-004
cases
| name   | answer           |
| passes | PONG             |
| fails  | MSG a 1 \\|\\| x |

> PING
< {answer}
"""


class Ended(Struct, frozen=True):
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float


def environment(**more: str) -> dict[str, str]:
    """Ours, such that the packages are found from any folder and no variable of the caller's leaks in."""
    leaky = ("PYTEST_", "COV_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "CI")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(leaky)}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def run(command: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None) -> Ended:
    """Run to the end, in ``folder``."""
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env=env or environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def verify(folder: Path, *arguments: str | Path) -> Ended:
    """``plumbline verify``."""
    return run((*PLUMBLINE, "verify", *arguments), folder)


def pytest_by_hand(folder: Path, *arguments: str | Path) -> Ended:
    """``pytest``, in a user's folder."""
    return run((*BY_HAND, *arguments), folder)


@contextmanager
def started(
    command: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start it in a session of its own; whatever is left of that at the end is killed."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env or environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in session_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def await_line(process: subprocess.Popen[str], text: str) -> None:
    """Read its output up to a line with ``text``."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return
    raise AssertionError(f"no line with {text!r} in {seen}, {process.stderr and process.stderr.read()!r}")


def session_of(leader: int) -> list[int]:
    """The processes that live in the session that ``leader`` began; none is a zombie."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = path.read_text().rpartition(") ")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        if int(session) == leader and state != "Z":
            found.append(int(path.parent.name))
    return found


def one_sentence(err: str) -> str:
    """The one line of the command on stderr."""
    (line,) = err.splitlines()
    assert line.startswith("plumbline: ")
    assert "Traceback" not in line
    return line.removeprefix("plumbline: ")


def write_trace(path: Path, requirement: str, *, expects: str = "PONG", header: str = "") -> Path:
    """A trace of a user's own: it passes, or expects what never comes."""
    path.write_text(
        f"title A trace of one's own\nsource none\nverifies {requirement}\n{header}\n> PING\n< {expects}\n"
    )
    return path
