"""Kills brokers and a recorder under load, again and again. Exit code 1 if anything was lost."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.durability.kill import Result, Shown, run_amqp, run_nats
from tests.durability.record_kill import RecordResult, run_recorder

SHOWN_EACH_S = 10.0
KILLED = ("nats", "amqp", "recorder")


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.durability", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=KILLED, help="kill this one; may be repeated")
    parser.add_argument(
        "--fsync", choices=("always", "interval", "never"), default="interval", help="of NATS"
    )
    asked = parser.parse_args()
    results = []
    for name in asked.only or KILLED:
        began = time.monotonic()
        with TemporaryDirectory(prefix="plumbline-kill-") as folder:
            results.append(_run(name, Path(folder), asked))
        print(f"{name}: seed {asked.seed}, {time.monotonic() - began:.0f} s\n{results[-1]}", flush=True)
    return 0 if all(result.is_good for result in results) else 1


def _run(name: str, folder: Path, asked: argparse.Namespace) -> Result | RecordResult:
    show = _progress(name, asked.kills)
    if name == "recorder":
        return run_recorder(folder, kills=asked.kills, seed=asked.seed, show=show)
    if name == "amqp":
        return asyncio.run(run_amqp(folder, kills=asked.kills, seed=asked.seed, show=show))
    options = ("--fsync", asked.fsync)
    return asyncio.run(run_nats(folder, kills=asked.kills, seed=asked.seed, options=options, show=show))


def _progress(name: str, kills: int) -> Shown:
    """Prints how far a run is, now and then."""
    shown = time.monotonic()

    def show(number: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > SHOWN_EACH_S:
            shown = time.monotonic()
            print(f"{name}: {number} of {kills} kills", file=sys.stderr, flush=True)

    return show


if __name__ == "__main__":
    sys.exit(main())
