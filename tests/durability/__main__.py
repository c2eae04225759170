"""Kills a broker under load, again and again, and says what became of it; exit code 1 if it lost anything."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.durability.kill import run


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.durability", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fsync", choices=("always", "interval", "never"), default="interval")
    asked = parser.parse_args()
    began = time.monotonic()
    with TemporaryDirectory(prefix="plumbline-kill-") as folder:
        result = asyncio.run(
            run(Path(folder), kills=asked.kills, seed=asked.seed, options=("--fsync", asked.fsync))
        )
    print(f"seed {asked.seed}, --fsync {asked.fsync}, {time.monotonic() - began:.0f} s")
    print(result)
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
