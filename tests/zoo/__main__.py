"""``make zoo``: the suite on each deployment of ``deployments.toml``, and on each with its planted defect.

python -m tests.zoo [PATTERN ...] [--short] [--correct | --planted]: PATTERN names deployments
(``'account-*'``); --short runs only what the table of a deployment selects. With a planted defect only the
requirement that it breaks is checked. Exit code 1 if a correct deployment is not conformant, or one with a
planted defect is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

from plumbline.errors import PlumblineError
from tests.zoo.deployments import Deployment, deployments
from tests.zoo.running import Run, run_suite, started, started_with_defect

COLUMNS = ("passed", "unsupported", "failed", "inconclusive", "untestable", "harness error")


class Row(Struct, frozen=True):
    """One line of the table: a deployment as it is, or with its defect. Is the verdict as it must be?"""

    name: str
    is_right: bool
    verdict: str
    run: Run | None = None


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="make zoo", description=__doc__)
    parser.add_argument("patterns", metavar="PATTERN", nargs="*", default=["*"])
    parser.add_argument("--short", action="store_true", help="only what each deployment selects")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--correct", action="store_true", help="no planted defects")
    only.add_argument("--planted", action="store_true", help="planted defects only")
    wanted = parser.parse_args()
    rows: list[Row] = []
    for name, deployment in _named(wanted.patterns).items():
        if not wanted.planted:
            rows.append(_progress(name, deployment, short=wanted.short))
        if not wanted.correct:
            rows.append(_planted_progress(name, deployment))
    _print_table(rows)
    return 0 if rows and all(row.is_right for row in rows) else 1


def _named(patterns: list[str]) -> Mapping[str, Deployment]:
    return {
        name: one
        for name, one in deployments().items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _progress(name: str, deployment: Deployment, *, short: bool) -> Row:
    _say(f"{name} ...")
    try:
        with started(deployment) as arguments:
            run = run_suite(arguments, deployment.select if short else ())
    except PlumblineError as error:
        return Row(name, is_right=False, verdict=str(error))
    for line in run.red or ([] if run.is_green else run.output.splitlines()[-10:]):
        _say(f"  {line}")
    return Row(name, run.is_green, "conformant" if run.is_green else f"RED (exit {run.exit_code})", run)


def _planted_progress(name: str, deployment: Deployment) -> Row:
    shown = f"{name} + {deployment.planted}"
    _say(f"{shown} ...")
    try:
        with started_with_defect(deployment) as arguments:
            run = run_suite(arguments, [deployment.fails])
    except PlumblineError as error:
        return Row(shown, is_right=False, verdict=str(error))
    is_right = run.convicts(deployment.fails)
    if not is_right:
        for line in run.output.splitlines()[-10:]:
            _say(f"  {line}")
    verdict = f"convicted by {deployment.fails}" if is_right else f"NOT convicted by {deployment.fails}"
    return Row(shown, is_right, verdict, run)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_table(rows: list[Row]) -> None:
    width = max([len(row.name) for row in rows], default=10)
    print(f"{'deployment':<{width}} {'verdict':<34} {' '.join(f'{name:>13}' for name in COLUMNS)} seconds")
    for row in rows:
        if row.run is None:
            print(f"{row.name:<{width}} {row.verdict}")
            continue
        counts = " ".join(f"{row.run.outcomes.get(column, 0):>13}" for column in COLUMNS)
        print(f"{row.name:<{width}} {row.verdict:<34} {counts} {row.run.duration_s:>7.0f}")
    wrong = sum(not row.is_right for row in rows)
    print(f"{len(rows)} runs, {wrong} with the wrong verdict")


if __name__ == "__main__":
    sys.exit(main())
