"""Fuzzes every part that reads what others have written. Exit code 1 if a rule is broken."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from random import SystemRandom

from tests.fuzz.running import SAVED, Failure, Figures, attempt, has_atheris, name_of, run_bytes, run_seconds
from tests.fuzz.target import MODULES, load

# Have a program of their own: other mutations, and limits of time and memory for each input.
PROGRAMS = {
    name: module
    for name, module in {"captures": "tests.fuzz.captures"}.items()
    if find_spec(module) is not None
}
NAMES = (*MODULES, *PROGRAMS)
LONG = ("nats-codec", "amqp-codec")  # the targets that have long inputs


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument(
        "--bytes", type=int, metavar="N", help="long inputs to the codecs, until they are N bytes for each"
    )
    parser.add_argument("--only", action="append", choices=sorted(NAMES), help="this target; may be repeated")
    parser.add_argument("--seed", type=int, help="repeats a run; without it a new one each time, printed")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="run one saved input")
    parser.add_argument("--unguided", action="store_true", help="random mutations, even if Atheris is there")
    asked = parser.parse_args()
    if asked.bytes is not None and not set(asked.only or ()) <= set(LONG):
        parser.error(f"--bytes is for {' and '.join(LONG)}")
    if asked.repeat is not None:
        return _repeat(asked.repeat)
    seed = asked.seed if asked.seed is not None else SystemRandom().randrange(1, 2**31)
    guided = has_atheris() and not asked.unguided
    if not (guided or asked.unguided):
        print("Atheris is not installed (it has wheels for Linux): random mutations, without coverage")
    print(f"--seed {seed}", flush=True)
    failed = []
    names = asked.only or (NAMES if asked.bytes is None else LONG)
    for name in names:
        try:
            if asked.bytes is not None:
                figures = run_bytes(load(name), asked.bytes, seed)
            else:
                figures = _run(name, asked.seconds, seed, is_guided=guided)
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


def _run(name: str, seconds: int, seed: int, *, is_guided: bool) -> Figures:
    """One target. Raises ``Failure``."""
    if name in PROGRAMS:
        options = ["--seconds", str(seconds), "--seed", str(seed), "--found", str(SAVED)]
        return _program([PROGRAMS[name], *options], r"(\d+) mutants", is_guided=False)
    if not is_guided:
        return run_seconds(load(name), seconds, seed)
    run = ["tests.fuzz.guided", name, str(seconds), str(seed)]
    return _program(run, r"number_of_executed_units:\s*(\d+)", is_guided=True)


def _program(run: list[str], executions: str, *, is_guided: bool) -> Figures:
    """A module in a process of its own. Raises ``Failure`` with what that process printed."""
    began = time.monotonic()
    command = [sys.executable, "-m", *run]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode(errors="replace")
    found = re.search(executions, text)
    if done.returncode or found is None:
        raise Failure("\n".join(text.splitlines()[-60:]) + f"\nthe input is in {SAVED}")
    return Figures(int(found[1]), time.monotonic() - began, guided=is_guided)


if __name__ == "__main__":
    sys.exit(main())
