"""Other programs that fetch and unpack servers: run to their end, within a time limit."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from plumbline.servers.targets import TargetError


def run_command(
    command: Sequence[str], environment: Mapping[str, str] | None = None, *, within: float
) -> subprocess.CompletedProcess[str]:
    """What it printed is kept, both streams in one. ``within``: seconds.

    Raises ``TargetError`` if it takes longer.
    """
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=within,
        )
    except subprocess.TimeoutExpired:
        raise TargetError(f"it did not finish within {within:g} s") from None
