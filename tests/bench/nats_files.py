"""Streams in files, by policy: ``python -m tests.bench.nats_files [RUNS]``.

The reference broker with each ``--fsync``, and in memory for comparison, beside the newest nats-server with
what it does by default; all are measured in turn. Printed are medians, in messages a second.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from tempfile import TemporaryDirectory

from plumbline.servers.nats.nats_server import NatsServer
from tests.bench.command_line import runs_asked
from tests.bench.nats_servers import newest, pull_and_ack, reference_broker, stream_publish

POLICIES = ("never", "interval", "always")
RUNS = 3
PULLED = 5_000  # few enough to be done before a server sends its first PING


def main() -> None:
    """Prints a table."""
    runs = runs_asked(__doc__, RUNS)
    server = newest()
    with ExitStack() as running:
        brokers = {"in memory": running.enter_context(reference_broker())}
        for policy in POLICIES:
            folder = running.enter_context(TemporaryDirectory(prefix="plumbline-bench-"))
            options = ("-sd", folder, "--fsync", policy)
            brokers[f"--fsync {policy}"] = running.enter_context(reference_broker(*options))
        real = running.enter_context(NatsServer(server.path))
        brokers[f"nats-server {server.version}"] = ("127.0.0.1", int(real.url.rpartition(":")[2]))
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in brokers}
        for _ in range(runs):
            for name, address in brokers.items():
                publish = stream_publish(address, storage="file")
                rates[name].append((publish, pull_and_ack(address, PULLED, "file")))
    print(f"{'streams in files, ' + str(runs) + ' runs':28} {'publish':>10} {'pull and ack':>14}")
    for name, found in rates.items():
        print(f"{name:28} {median(p for p, _ in found):>10,.0f} {median(a for _, a in found):>14,.0f}")


if __name__ == "__main__":
    main()
