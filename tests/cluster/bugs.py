"""``make cluster-bugs``: known bugs of released nats-servers, which ``plumbline cluster`` has to find.

Runs each command of ``bugs.toml`` several times on the affected release and on the fixed one, with the same
seed, and prints how often each was convicted. Exit code 1 if an affected release never was, or a fixed one
was. Releases are built with Go when they are first needed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from plumbline.interpreter import python_command

BUGS = Path(__file__).with_name("bugs.toml")
TRIES = 10
ENDED_WITHIN_S = 900.0
ENDS = {True: "convicted", False: "not convicted", None: "no result"}


class KnownBug(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table."""

    name: str
    text: str
    link: str
    requirement: str
    affected: str
    fixed: str
    options: str
    seed: int
    convicted: tuple[int, int] | None = None  # of ``TRIES`` runs, of the affected release and the fixed one

    def command(self, release: str) -> list[str]:
        """``plumbline cluster ...``."""
        words = ["plumbline", "cluster", "--server", f"nats-server@{release}", *shlex.split(self.options)]
        return [*words, "--seed", str(self.seed)]


def known_bugs() -> tuple[KnownBug, ...]:
    """All of the table."""
    table = tomllib.loads(BUGS.read_text("utf-8"))
    return msgspec.convert(table["bug"], tuple[KnownBug, ...])


def is_convicted(bug: KnownBug, release: str) -> bool | None:
    """Whether one run fails the requirement; None if there was no result."""
    with tempfile.TemporaryDirectory(prefix="plumbline-bugs-") as folder:
        out = Path(folder, "result.json")
        words = [*bug.command(release)[1:], "--json", str(out)]
        try:
            subprocess.run(
                python_command("-m", "plumbline", *words),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=ENDED_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        if not out.exists() or not out.stat().st_size:
            return None
        rows = json.loads(out.read_bytes())["requirements"]
        return any(row["id"] == bug.requirement and row["verdict"] == "failed" for row in rows)


def repeat(bug: KnownBug, tries: int) -> bool:
    """Runs both releases in turn. Whether the table is right."""
    print(f"{bug.name} ({bug.requirement}): {bug.text}", flush=True)
    found: dict[str, list[bool | None]] = {bug.affected: [], bug.fixed: []}
    for number in range(1, tries + 1):
        for release, results in found.items():
            results.append(is_convicted(bug, release))
            print(f"  try {number}, {release}: {ENDS[results[-1]]}", flush=True)
    for release, results in found.items():
        without = f", {results.count(None)} without a result" if None in results else ""
        print(
            f"  {results.count(True):2} of {tries} convicted{without}: {shlex.join(bug.command(release))}",
            flush=True,
        )
    return any(found[bug.affected]) and not any(found[bug.fixed])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make cluster-bugs", description=__doc__)
    parser.add_argument("--tries", type=int, default=TRIES, metavar="N")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of the table")
    options = parser.parse_args(arguments)
    bugs = [bug for bug in known_bugs() if not options.only or bug.name in options.only]
    if not bugs:
        parser.error(f"--only: write one or more of {', '.join(bug.name for bug in known_bugs())}")
    wrong = [bug.name for bug in bugs if not repeat(bug, options.tries)]
    if wrong:
        print(f"not as the table says: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
