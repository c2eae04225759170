"""Renews ``requirements.lock``, with uv."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"


def main() -> int:
    """Exit 0 when it is renewed."""
    uv = shutil.which("uv")
    if uv is None:
        print("plumbline: 'make lock' needs uv: pip install uv", file=sys.stderr)
        return 2
    resolve = [uv, "pip", "compile", "pyproject.toml", "--extra=dev", "--universal", "--python-version=3.11"]
    # uv writes no index into the file unless told to: whoever installs from it has an index of their own.
    write = ["--generate-hashes", "--custom-compile-command=make lock"]
    subprocess.run(
        [*resolve, *write, "--quiet", "--output-file", str(LOCK), *sys.argv[1:]], cwd=ROOT, check=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
