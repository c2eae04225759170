"""``plumbline cluster``: a cluster of real servers under faults, and a judge of what it acknowledged."""

from __future__ import annotations

import datetime
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.options import JsonFile, Seed
from plumbline.cli.output import flush, print_line, warn
from plumbline.cluster.amqp.scenario import QueueScenario
from plumbline.cluster.nats.scenario import StreamScenario
from plumbline.cluster.plan import FaultType, parse_faults
from plumbline.cluster.result import as_json, as_text, conclude
from plumbline.cluster.run import new_seed, run_cluster
from plumbline.cluster.scenario import ClusterOptions, Scenario
from plumbline.errors import ExitCode, UsageProblem
from plumbline.servers import getting, targets
from plumbline.versions import numbers
from plumbline.wire.units import SECOND, read_duration

EPILOG = """
The nodes run on 127.0.0.1. Each route between two nodes passes a relay, so that a partition or a delay needs
no root. Processes publish to a stream of nats-server with a replica on every node, or to a quorum queue of
RabbitMQ, and reconnect to any node. When all faults have ended, every node is read completely, or the queue
is drained, and the history is judged: lost, duplicated, unexpected or misplaced messages, different replicas,
order, stale reads, missing confirms and redeliveries.

Faults: kill (SIGKILL and restart), pause (SIGSTOP), partition (halves, one-way; bytes are held, as TCP does),
delay (100 ms +- 50 ms between nodes), none. The seed decides which nodes and when.

sync_interval of nats-server is "always", so that an acknowledged message is on disk; with --sync default it
is what the server has by default. Servers before 2.10 do not know "always".

\b
Examples:

\b
  plumbline cluster --server nats-server@2.15 --for 60s
  plumbline cluster --server nats-server@2.15 --faults kill,partition --rate 500 --seed 17
  plumbline cluster --server rabbitmq@4.3 --rate 500
  plumbline cluster --server nats-server@2.15 --json cluster.json
  plumbline list 'JS-CLUS-*' 'AMQP-CLUS-*'

\b
Exit codes: 0 conformant, 1 not conformant, 2 usage or configuration, 3 the cluster does not answer,
4 error of Plumbline itself, 130 interrupted.
"""

NATS_SERVER = "nats-server"
SCENARIOS: dict[str, Callable[[Path, ClusterOptions], Scenario]] = {
    NATS_SERVER: StreamScenario,
    "rabbitmq": QueueScenario,
}
SYNC_ALWAYS, SYNC_DEFAULT = "always", "default"
LEAST_FOR_S = 5
SIZES = (3, 5)

app = command_app()


@app.command("cluster", epilog=EPILOG)
def cluster(
    server: Annotated[
        str,
        typer.Option("--server", metavar="NAME", help="A server by name, e.g. rabbitmq@4.3. See 'targets'."),
    ] = NATS_SERVER,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Number of nodes: 3 or 5.")] = 3,
    faults: Annotated[
        str,
        typer.Option(
            "--faults", metavar="LIST", help=f"Kinds of faults, with commas: {', '.join(FaultType)}."
        ),
    ] = "kill,pause,partition",
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long to publish, e.g. 60s or 5m.")
    ] = "60s",
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", min=1, max=100_000, help="Publishes a second.")
    ] = 2000,
    seed: Seed = None,
    sync: Annotated[
        str, typer.Option("--sync", metavar="WHEN", help="sync_interval of nats-server: always or default.")
    ] = SYNC_ALWAYS,
    json: JsonFile = None,
) -> None:
    """Find lost messages and broken order of a cluster under faults."""
    if nodes not in SIZES:
        raise UsageProblem(f"--nodes {nodes}: write 3 or 5")
    if sync not in (SYNC_ALWAYS, SYNC_DEFAULT):
        raise UsageProblem(f"--sync {sync}: write {SYNC_ALWAYS} or {SYNC_DEFAULT}")
    known = targets.target(server)
    if known.software.name not in SCENARIOS or known.nodes > 1:
        raise UsageProblem(f"--server {server}: write nats-server@VERSION or rabbitmq@VERSION")
    options = ClusterOptions(
        nodes=nodes,
        faults=parse_faults(faults),
        duration_ns=_duration(duration),
        rate=rate,
        seed=new_seed() if seed is None else seed,
        sync=SYNC_ALWAYS if sync == SYNC_ALWAYS and known.software.name == NATS_SERVER else "",
    )
    if json is not None:
        json.touch()  # whether it can be written is known before the run
    program = getting.obtain_program(known, warn)
    raise typer.Exit(_run(known, program, options, duration, json))


def _run(
    known: targets.NamedServer, program: Path, options: ClusterOptions, duration: str, json: Path | None
) -> ExitCode:
    version = getting.version(known, program)
    if options.sync and numbers(version) < (2, 10):
        raise UsageProblem(f'{known.name} has no sync_interval "always": add --sync {SYNC_DEFAULT}')
    started, began = datetime.datetime.now(datetime.UTC), time.monotonic()
    kinds = ",".join(options.faults)
    _show(f"{known.name}, {options.nodes} nodes, faults {kinds}, seed {options.seed}")
    run = run_cluster(SCENARIOS[known.software.name](program, options), options, _show)
    found = conclude(
        known.software.protocol,
        known.name,
        version,
        options,
        run,
        started,
        time.monotonic() - began,
        _command(known, options, duration),
    )
    for line in as_text(found):
        print_line(line)
    if json is not None:
        json.write_bytes(as_json(found))
    return ExitCode(found.result.summary.exit_code)


def _command(known: targets.NamedServer, options: ClusterOptions, duration: str) -> str:
    """What repeats the run."""
    words = ["plumbline", "cluster", "--server", known.name, "--nodes", str(options.nodes)]
    words += ["--faults", ",".join(options.faults), "--for", duration, "--rate", f"{options.rate:g}"]
    words += ["--seed", str(options.seed), *_sync_words(known, options)]
    return shlex.join(words)


def _sync_words(known: targets.NamedServer, options: ClusterOptions) -> list[str]:
    return ["--sync", SYNC_DEFAULT] if known.software.name == NATS_SERVER and not options.sync else []


def _duration(text: str) -> int:
    try:
        found = read_duration(text)
    except ValueError as problem:
        raise UsageProblem(f"--for {text}: {problem}") from None
    if found is None or found < LEAST_FOR_S * SECOND:
        raise UsageProblem(f"--for {text}: write a time of at least {LEAST_FOR_S}s, for example 60s")
    return found


def _show(line: str) -> None:
    print_line(line)
    flush()
