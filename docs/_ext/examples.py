"""Real reports as examples of the documentation: two runs against the embedded broker, one with a defect.

Each run writes every report format into ``examples/`` of the site; ``plumbline matrix`` makes a site of both.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEFECT = "pull-inbox-is-used-up-by-404"
# The name of each run, the arguments of `plumbline verify`, and the exit code that it must have.
RUNS: dict[str, tuple[tuple[str, ...], int]] = {
    "conformant": ((), 0),
    "failing": (("--defect", DEFECT), 1),
}
FORMATS = {"html": "html", "json": "json", "junit": "xml", "markdown": "md", "sarif": "sarif", "badge": "svg"}
# What `write` makes, relative to the site.
FILES = (
    "examples/matrix/index.html",
    *(f"examples/{run}.{suffix}" for run in RUNS for suffix in FORMATS.values()),
)


class ExampleError(RuntimeError):
    """A run did not end as it should; the message is its output."""


def write(site: Path) -> None:
    """Run both and write their reports below ``site``. Raises ``ExampleError``."""
    folder = site / "examples"
    folder.mkdir(exist_ok=True)
    for name, (arguments, code) in RUNS.items():
        reports = [f"--{report}={name}.{suffix}" for report, suffix in FORMATS.items()]
        _plumbline(folder, code, "verify", *arguments, *reports)
    results = [f"{name}={name}.json" for name in RUNS]
    _plumbline(folder, 0, "matrix", *results, "--output=matrix", "--title=An example: the reference broker")


def _plumbline(folder: Path, code: int, *arguments: str) -> None:
    command = [sys.executable, "-m", "plumbline", *arguments]
    ended = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode != code:
        shown = " ".join(arguments)
        raise ExampleError(
            f"plumbline {shown}: exit code {ended.returncode}, expected {code}\n{ended.stdout}{ended.stderr}"
        )
