"""``python -m tests.hostile [NAME ...]``: a table of what ``verify`` costs on each hostile server."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.hostile import amqp_servers, nats_servers
from tests.hostile.running import verify
from tests.hostile.sockets import serving

MIB = 1024 * 1024


def main(names: list[str]) -> None:
    """Print a line for each server."""
    for protocol, servers in (("nats", nats_servers.SERVERS), ("amqp", amqp_servers.SERVERS)):
        for name, script in servers.items():
            if names and name not in names and protocol not in names:
                continue
            with tempfile.TemporaryDirectory() as folder, serving(script) as address:
                cost = verify(Path(folder), f"{protocol}://{address}")
                result = cost.result
                counts = result.summary.checks if result else None
                shown = "" if counts is None else str(counts).replace("Counts(", "").rstrip(")")
                wrong = cost.incomplete_reports() if result else []
            print(
                f"{protocol} {name:20} exit {cost.code} {cost.seconds:6.1f} s {cost.largest // MIB:5} MiB "
                f"{shown} {cost.err.strip()[:150]} {wrong or ''}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
