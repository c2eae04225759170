"""``make zoo``: the whole suite on each deployment of ``deployments.toml``; exit 1 if one is red.

python -m tests.zoo [PATTERN ...] [--short]: PATTERN names deployments (``'account-*'``); --short runs only
what the table of a deployment selects.
"""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase

from plumbline.errors import PlumblineError
from tests.zoo.running import Run, deployments, run_suite, started

COLUMNS = ("passed", "failed", "unsupported", "inconclusive", "untestable", "harness error")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="make zoo", description=__doc__)
    parser.add_argument("patterns", metavar="PATTERN", nargs="*", default=["*"])
    parser.add_argument("--short", action="store_true", help="only what each deployment selects")
    wanted = parser.parse_args()
    rows: list[tuple[str, Run | None, str]] = []
    for name, deployment in deployments().items():
        if not any(fnmatchcase(name, pattern) for pattern in wanted.patterns):
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            with started(deployment) as url:
                run = run_suite(url, deployment.select if wanted.short else ())
        except PlumblineError as error:
            rows.append((name, None, str(error)))
            continue
        rows.append((name, run, ""))
        for line in run.red or ([] if run.is_green else run.output.splitlines()[-10:]):
            print(f"  {line}", file=sys.stderr, flush=True)
    _print_table(rows)
    return 0 if rows and all(run is not None and run.is_green for _, run, _ in rows) else 1


def _print_table(rows: list[tuple[str, Run | None, str]]) -> None:
    print(f"{'deployment':<30} exit {' '.join(f'{name:>13}' for name in COLUMNS)} seconds")
    for name, run, problem in rows:
        if run is None:
            print(f"{name:<30} {problem}")
            continue
        counts = " ".join(f"{run.outcomes.get(column, 0):>13}" for column in COLUMNS)
        print(f"{name:<30} {run.exit_code:>4} {counts} {run.duration_s:>7.0f}")


if __name__ == "__main__":
    sys.exit(main())
