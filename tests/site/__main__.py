"""``make site``: the published table. Verifies servers, gates client libraries, writes one static site.

python -m tests.site [--server NAME ...] [--library NAME ...] [-o DIR] [OPTIONS OF plumbline matrix ...]
Without --server and --library: every server that this machine has or can get, and every library whose adapter
is kept here. What a machine lacks is named and left out. Everything else goes to ``plumbline matrix``, for
example --results results/ --disputes results/disputes.toml --url https://example.org/matrix/. The same folder
again adds to the history of the site. Exit code: that of ``plumbline matrix``; 1 if a library is not gated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conformance.clients.libraries import LIBRARIES, waivers_of

SITE = Path(".plumbline/site")
NONE = "none"
PLUMBLINE = (sys.executable, "-m", "plumbline")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="make site", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", action="append", metavar="NAME", help=f"repeatable; {NONE}: no server")
    parser.add_argument(
        "--library", action="append", choices=[*LIBRARIES, NONE], help=f"repeatable; {NONE}: no library"
    )
    parser.add_argument("-o", "--output", type=Path, default=SITE)
    wanted, options = parser.parse_known_args()
    servers = [name for name in wanted.server or ["all"] if name != NONE]
    libraries = [name for name in wanted.library or LIBRARIES if name != NONE]
    with tempfile.TemporaryDirectory(prefix="plumbline-site-") as folder:
        results = list(_gated(libraries, Path(folder)))
        runs = [f"--run={name}" for name in servers]
        command = [*PLUMBLINE, "matrix", *map(str, results), *runs, "-o", str(wanted.output), *options]
        code = subprocess.run(command, check=False).returncode
    if code == 0:
        files = [path for path in wanted.output.rglob("*") if path.is_file()]
        print(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")
    return code or int(len(results) < len(libraries))


def _gated(names: Iterable[str], folder: Path) -> Iterable[Path]:
    """The result files of the libraries that could be gated; progress and what is missing on stderr."""
    for name in names:
        place = folder / name.replace("/", "-")
        place.mkdir()
        began = time.monotonic()
        try:
            adapter = LIBRARIES[name](name, place)
        except (pytest.skip.Exception, pytest.fail.Exception) as missing:
            print(f"{name}: not gated: {missing}", file=sys.stderr, flush=True)
            continue
        result = place / "result.json"
        waivers = waivers_of(name)
        waived = ["--waivers", str(waivers)] if waivers else []
        command = [*PLUMBLINE, "gate", "--json", str(result), *waived, "--", *adapter]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
        )
        if not result.exists():
            reason = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            print(f"{name}: not gated: {reason} (exit {done.returncode})", file=sys.stderr, flush=True)
            continue
        took = time.monotonic() - began
        print(f"{name}: gated, exit {done.returncode}, {took:.0f} s", file=sys.stderr, flush=True)
        yield result


if __name__ == "__main__":
    sys.exit(main())
