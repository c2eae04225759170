"""tshark as a witness: what another program reads in our captures."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import servers_required
from tests.patience import HANGS_AFTER_S

COMMAND = "apt-get install tshark (or: make servers)"
CUT_SHORT = 2  # its exit code for a file that ends in the middle of a packet


def require() -> str:
    """The program; without it the test is skipped, or fails where everything has to be there."""
    found = shutil.which("tshark")
    if found is None:
        if servers_required():
            pytest.fail(f"no tshark: {COMMAND}", pytrace=False)
        pytest.skip(f"no tshark on this machine: {COMMAND}")
    return found


def fields(path: Path, *names: str, where: str = "frame", options: Sequence[str] = ()) -> list[list[str]]:
    """These fields of each packet that the display filter takes."""
    command = [require(), "-r", str(path), "-T", "fields", "-E", "separator=|", "-Y", where, *options]
    command += [part for name in names for part in ("-e", name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    assert done.returncode in (0, CUT_SHORT), done.stderr
    return [line.split("|") for line in done.stdout.splitlines()]
