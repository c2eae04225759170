"""What ``verify`` costs on each hostile server.

Seconds that passed, and those of a processor; memory of the largest process; verdicts. Exit code 1: on some
server it took too much memory, did not end, ended with another code or after --max-time, or did not write its
reports.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from plumbline.cli.options import max_time
from plumbline.errors import ExitCode
from tests.hostile import amqp_servers, nats_servers
from tests.hostile.running import AT_ONCE, MOST_MEMORY, Cost, expected_code, verify
from tests.hostile.sockets import serving

MIB = 1024 * 1024


def main() -> int:
    """Print a line for each server."""
    known = {"nats", "amqp", *nats_servers.SERVERS, *amqp_servers.SERVERS}
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"servers: {', '.join(sorted(known))}",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="nats, amqp or one server; all without it")
    parser.add_argument("--max-time", help="of verify, for each server: 60s, for example")
    asked = parser.parse_args()
    names = asked.names
    if unknown := set(names) - known:
        parser.error(f"no such server: {', '.join(sorted(unknown))}")
    options = [f"--max-time={asked.max_time}"] if asked.max_time else []
    limit = max_time(asked.max_time) if asked.max_time else None
    worst = 0
    for protocol, servers in (("nats", nats_servers.SERVERS), ("amqp", amqp_servers.SERVERS)):
        for name, script in servers.items():
            if names and name not in names and protocol not in names:
                continue
            with tempfile.TemporaryDirectory() as folder, serving(script) as address:
                cost = verify(Path(folder), f"{protocol}://{address}", *options)
                wrong = _wrong(cost, protocol, name, limit)
                print(f"{protocol} {name:20} {_figures(cost)} {wrong or 'as expected'}", flush=True)
            worst = worst or int(bool(wrong))
    return worst


def _figures(cost: Cost) -> str:
    counts = "" if cost.result is None else str(cost.result.summary.checks)
    verdicts = counts.removeprefix("Counts(").removesuffix(")") or cost.err.strip()[:150]
    used = f"{cost.seconds:6.1f} s {cost.busy:6.1f} s of CPU {cost.largest // MIB:4} MiB"
    return f"exit {cost.code} {used} {verdicts}"


def _wrong(cost: Cost, protocol: str, name: str, within_s: float | None) -> list[str]:
    """In words."""
    expected = expected_code(protocol, name)
    result = cost.result
    if result is not None and "the time limit was reached" in result.summary.verdict:
        expected = ExitCode.TARGET_LOST
    wrong = [] if cost.code == expected else [f"exit code {expected} was expected"]
    wrong += ["it ended after --max-time"] if within_s is not None and cost.seconds > within_s else []
    wrong += ["too much memory"] if cost.largest >= MOST_MEMORY else []
    wrong += ["a traceback"] if "Traceback" in cost.err else []
    if name in AT_ONCE[protocol]:
        return wrong + (["there is a report"] if result is not None else [])
    return wrong + cost.incomplete_reports()


if __name__ == "__main__":
    sys.exit(main())
