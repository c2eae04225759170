"""Renews the lock files, with uv: what running, the quick tests, and all work on the project need."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Exit 0 when all are renewed."""
    uv = shutil.which("uv")
    if uv is None:
        print("plumbline: 'make lock' needs uv: pip install uv", file=sys.stderr)
        return 2
    resolve = [uv, "pip", "compile", "pyproject.toml", "--universal", "--python-version=3.11"]
    # uv writes no index into the file unless asked to: whoever installs from it has an index of their own.
    write = ["--generate-hashes", "--custom-compile-command=make lock", "--quiet", *sys.argv[1:]]
    work = ["--extra=dev", "--output-file=requirements-dev.lock"]
    # The smaller sets have the versions of the larger one, so that all fit into one environment.
    test = ["--extra=test", "--constraint=requirements-dev.lock", "--output-file=requirements-test.lock"]
    use = ["--extra=bootstrap", "--constraint=requirements-dev.lock", "--output-file=requirements.lock"]
    for part in (work, test, use):
        subprocess.run([*resolve, *write, *part], cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
