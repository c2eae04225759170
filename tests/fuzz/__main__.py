"""Fuzzes every part that reads what others have written. Exit code 1 if a rule is broken."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from random import SystemRandom

from tests.fuzz.running import SAVED, Failure, Figures, attempt, has_atheris, name_of, run_seconds
from tests.fuzz.target import MODULES, load


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument(
        "--only", action="append", choices=sorted(MODULES), help="this target; may be repeated"
    )
    parser.add_argument("--seed", type=int, help="repeats a run; without it a new one each time, printed")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="run one saved input")
    parser.add_argument("--unguided", action="store_true", help="random mutations, even if Atheris is there")
    asked = parser.parse_args()
    if asked.repeat is not None:
        return _repeat(asked.repeat)
    seed = asked.seed if asked.seed is not None else SystemRandom().randrange(1, 2**31)
    guided = has_atheris() and not asked.unguided
    if not (guided or asked.unguided):
        print("Atheris is not installed (it has wheels for Linux): random mutations, without coverage")
    print(f"--seed {seed}", flush=True)
    failed = []
    for name in asked.only or MODULES:
        try:
            figures = _guided(name, asked.seconds, seed) if guided else _unguided(name, asked.seconds, seed)
        except Failure as failure:
            print(f"{name}: FAILED\n{failure}", flush=True)
            failed.append(name)
        else:
            print(f"{name}: {figures}", flush=True)
    return 1 if failed else 0


def _repeat(path: Path) -> int:
    try:
        attempt(load(name_of(path)), path.read_bytes())
    except Failure as failure:
        print(failure)
        return 1
    print(f"{path}: all rules hold")
    return 0


def _unguided(name: str, seconds: int, seed: int) -> Figures:
    return run_seconds(load(name), seconds, seed)


def _guided(name: str, seconds: int, seed: int) -> Figures:
    """In a process of its own. Raises ``Failure`` with what that process printed."""
    began = time.monotonic()
    run = [sys.executable, "-m", "tests.fuzz.guided", name, str(seconds), str(seed)]
    done = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode(errors="replace")
    executions = re.search(r"number_of_executed_units:\s*(\d+)", text)
    if done.returncode or executions is None:
        raise Failure("\n".join(text.splitlines()[-60:]) + f"\nthe input is in {SAVED}")
    return Figures(int(executions[1]), time.monotonic() - began, guided=True)


if __name__ == "__main__":
    sys.exit(main())
