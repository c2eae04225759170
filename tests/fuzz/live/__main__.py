"""Fuzzes running brokers and recording proxies. Exit code 1 if a rule is broken."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory

from tests.fuzz.live.programs import Broken
from tests.fuzz.live.proxied import ProxySubject
from tests.fuzz.live.running import Run
from tests.fuzz.live.subjects import BrokerSubject, Subject

SUBJECTS: dict[str, Callable[[Path, int, list[str]], Subject]] = {
    "nats": partial(BrokerSubject, "nats"),
    "amqp": partial(BrokerSubject, "amqp"),
    "proxy-nats": partial(ProxySubject, "nats"),
    "proxy-amqp": partial(ProxySubject, "amqp"),
}


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.live", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--only", action="append", choices=sorted(SUBJECTS), help="this one; may be repeated")
    parser.add_argument("--seed", type=int, help="repeats the inputs; without it new ones each time, printed")
    parser.add_argument("--defect", help="plant this fault into the broker: it must be found")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else SystemRandom().randrange(1, 2**31)
    print(f"--seed {seed}", flush=True)
    options = ["--defect", asked.defect] if asked.defect else []
    failed = False
    try:
        for name in asked.only or SUBJECTS:
            failed |= not _succeeds(name, asked.seconds, seed, options)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return 130
    return 1 if failed else 0


def _succeeds(name: str, seconds: int, seed: int, options: list[str]) -> bool:
    """Whether all rules hold for this one; prints what it did."""
    with TemporaryDirectory(prefix="plumbline-fuzz-") as folder:
        subject = SUBJECTS[name](Path(folder), seed, options)
        run = Run(subject, seconds, seed, lambda line: print(f"{name}: {line}", flush=True))
        try:
            asyncio.run(run.run())
        except Broken as broken:
            print(f"{name}: FAILED after {run}\n{broken}\nrepeat it with --seed {seed}", flush=True)
            return False
    print(f"{name}: all rules hold; {run}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
