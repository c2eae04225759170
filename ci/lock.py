"""Renews ``requirements.lock``, with uv, and the pip wheel beside it, so that both name the same pip."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

CI = Path(__file__).resolve().parent
ROOT = CI.parent
LOCK = ROOT / "requirements.lock"


def main() -> int:
    """Exit 0 when both are renewed."""
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

    pinned = re.search(r"^pip==(\S+)", LOCK.read_text(), re.MULTILINE)
    assert pinned is not None, "pip stands in the dev extra"
    (old,) = CI.glob("pip-*.whl")
    if old.name.startswith(f"pip-{pinned[1]}-"):
        return 0
    download = [
        sys.executable,
        str(old / "pip"),
        "download",
        "--no-deps",
        f"--dest={CI}",
        f"pip=={pinned[1]}",
    ]
    subprocess.run(download, cwd=ROOT, check=True)
    old.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
