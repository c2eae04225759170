"""``plumbline cluster``: a cluster of real servers under faults, and a judge of what it acknowledged."""

from __future__ import annotations

import datetime
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from plumbline.cli.command import command_app
from plumbline.cli.exits import exit_codes
from plumbline.cli.options import JsonFile, Seed
from plumbline.cli.output import conceal, concealed, flush, print_line, warn
from plumbline.cli.passwords import PasswordFile, given_passwords
from plumbline.cluster.amqp.scenario import QueueScenario, started_queue
from plumbline.cluster.history import Retention
from plumbline.cluster.nats.history import ClusterHistory
from plumbline.cluster.nats.history_files.files import make_room, write_history
from plumbline.cluster.nats.nodes import UserStreams
from plumbline.cluster.nats.scenario import StreamScenario, started_streams
from plumbline.cluster.page import as_html
from plumbline.cluster.plan import FaultType, parse_faults
from plumbline.cluster.result import ClusterResult, as_json, as_text, conclude
from plumbline.cluster.run import new_seed, run_cluster
from plumbline.cluster.scenario import ClusterOptions, Scenario
from plumbline.cluster.user import UserCluster, possible_faults
from plumbline.conformance.targets.urls import parse_url, url_with_password
from plumbline.errors import ExitCode, UsageProblem
from plumbline.reports import open_reports
from plumbline.reports.events import events_of
from plumbline.servers import getting, targets
from plumbline.verdicts import RunResult
from plumbline.versions import numbers
from plumbline.wire.units import SECOND, read_duration

EPILOG = """
The nodes run on 127.0.0.1. Each route between two nodes passes a relay, so that a partition or a delay needs
no root. Processes publish to a stream of nats-server with a replica on every node, or to a quorum queue of
RabbitMQ, consume from it, and reconnect to any node; with nats-server, writers update keys of a bucket, too.
When all faults have ended, every node is read completely, consumer or queue are drained, and the history is
judged: lost, duplicated, unexpected or misplaced messages, different replicas, order, stale reads, missing
confirms and redeliveries, acks, ack floors, compare-and-set.

Faults: kill (SIGKILL and restart), pause (SIGSTOP), partition (halves, one-way, ring; bytes are held, as TCP
does), delay (100 ms +- 50 ms between nodes), rolling (each node is stopped in order and started again),
leader (it is asked to step down; nats-server only), pause-kill (a minority is paused, misses messages, and
goes on when another node is killed), damage (bits of stored files of a killed minority are flipped, or their
ends cut off), power (killed nodes lose what they have not fsynced), pause-power (a minority is paused, misses
messages, and goes on with a node that lost power), none. The seed decides which nodes and when. A loss of
power needs strace, which shows what a node fsyncs.

sync_interval of nats-server is "always", so that an acknowledged message is on disk; with --sync default it
is what the server has by default, and a loss after a power loss is then no failure: it is documented. Servers
before 2.10 do not know "always".

Your own cluster: its nodes by URL, and commands that kill and start one. They are argument lists; no shell
reads them. {node} is the number of the node, from 1, and {url} its URL. Objects of the run are deleted.

\b
Examples:

\b
  plumbline cluster --server nats-server@2.15 --for 60s
  plumbline cluster --server nats-server@2.15 --faults kill,partition --rate 500 --seed 17
  plumbline cluster --server nats-server@2.15 --retention workqueue
  plumbline cluster --server rabbitmq@4.3 --rate 500
  plumbline cluster --server nats-server@2.15 --for 10m --history history/
  plumbline cluster --server nats-server@2.15 --html cluster.html --junit cluster.xml --json cluster.json
  plumbline cluster nats://a nats://b nats://c \\
      --kill-command 'docker kill nats{node}' --start-command 'docker start nats{node}'
  plumbline list 'JS-CLUS-*' 'AMQP-CLUS-*'

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "conformant",
        ExitCode.NOT_CONFORMANT: "not conformant",
        ExitCode.TARGET_LOST: "the cluster does not answer",
    }
)

NATS_SERVER = "nats-server"
SCENARIOS: dict[str, Callable[[Path, ClusterOptions], StreamScenario | QueueScenario]] = {
    NATS_SERVER: started_streams,
    "rabbitmq": started_queue,
}
IMPOSSIBLE = {NATS_SERVER: StreamScenario.impossible, "rabbitmq": QueueScenario.impossible}
SYNC_ALWAYS, SYNC_DEFAULT = "always", "default"
DEFAULT_FAULTS = "kill,pause,partition"
LEAST_FOR_S = 5
SIZES = (3, 5)

app = command_app()


@app.command("cluster", epilog=EPILOG)
def cluster(
    urls: Annotated[
        list[str] | None,
        typer.Argument(metavar="[URL URL URL]", help="Nodes of your own cluster, instead of --server."),
    ] = None,
    *,
    password_file: PasswordFile = None,
    server: Annotated[
        str,
        typer.Option("--server", metavar="NAME", help="A server by name, e.g. rabbitmq@4.3. See 'targets'."),
    ] = NATS_SERVER,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Number of nodes: 3 or 5.")] = 3,
    faults: Annotated[
        str | None,
        typer.Option(
            "--faults",
            metavar="LIST",
            help=f"Kinds of faults, with commas: {', '.join(FaultType)}. Default: {DEFAULT_FAULTS}; "
            "for your own cluster those that are possible.",
        ),
    ] = None,
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
    retention: Annotated[
        Retention, typer.Option("--retention", help="Of the stream of nats-server.")
    ] = Retention.LIMITS,
    kill_command: Annotated[
        str, typer.Option("--kill-command", metavar="COMMAND", help="Kills a node of your own cluster.")
    ] = "",
    start_command: Annotated[
        str, typer.Option("--start-command", metavar="COMMAND", help="Starts it again.")
    ] = "",
    json: JsonFile = None,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="DIR",
            help="Write all publishes and what each node has to this folder, for 'plumbline judge-history'. "
            "Only of a stream of nats-server with retention limits; not its consumers and keys.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with a time line.")
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
) -> None:
    """Find lost messages and broken order of a cluster under faults."""
    if sync not in (SYNC_ALWAYS, SYNC_DEFAULT):
        raise UsageProblem(f"--sync {sync}: write {SYNC_ALWAYS} or {SYNC_DEFAULT}")
    for file in (json, html, junit):
        if file is not None:
            file.touch()  # whether it can be written is known before the run
    count = len(urls) if urls else nodes
    if count not in SIZES:
        raise UsageProblem(f"{count} nodes: write 3 or 5")
    given: _NamedNodes | _UserNodes
    if urls:
        given = _UserNodes(
            _with_passwords(urls, password_file), shlex.split(kill_command), shlex.split(start_command)
        )
        possible, kinds = given.possible, faults or ",".join(sorted(given.possible))
    else:
        given_passwords(None, password_file)
        if kill_command or start_command:
            raise UsageProblem("--kill-command and --start-command: give the URLs of your nodes, too")
        given = _NamedNodes(server, sync)
        possible, kinds = given.possible, faults or DEFAULT_FAULTS
    if retention is not Retention.LIMITS and given.protocol != "nats":
        raise UsageProblem(f"--retention {retention}: only a stream of nats-server has it")
    if history is not None and (given.protocol != "nats" or retention is not Retention.LIMITS):
        raise UsageProblem("--history: only a stream of nats-server with retention limits has one")
    options = ClusterOptions(
        nodes=count,
        faults=parse_faults(kinds),
        duration_ns=_duration(duration),
        rate=rate,
        seed=new_seed() if seed is None else seed,
        sync=given.sync,
        retention=retention,
    )
    if impossible := sorted(set(options.faults) - possible):
        raise UsageProblem(f"--faults {kinds}: {given.name} cannot have {', '.join(impossible)}")
    if history is not None:
        make_room(history)
    found = _run(given, options, duration)
    for line in as_text(found):
        print_line(line)
    if history is not None and isinstance(found.run.history, ClusterHistory):
        write_history(history, found.run.history, found.server, found.version)
    if json is not None:
        json.write_text(concealed(as_json(found).decode()), "utf-8")
    if html is not None:
        html.write_text(concealed(as_html(found)), "utf-8")
    if junit is not None:
        result = msgspec.json.decode(concealed(msgspec.json.encode(found.result).decode()), type=RunResult)
        for report in open_reports({"junit": junit}):
            for event in events_of(result):
                report.on_event(event)
    raise typer.Exit(ExitCode(found.result.summary.exit_code))


def _with_passwords(urls: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """The URLs of the nodes, each with the password that was given. Raises ``PlumblineError``."""
    password = given_passwords(urls[0], file).url
    whole = tuple(urls) if password is None else tuple(url_with_password(url, password) for url in urls)
    for url in whole:
        conceal(parse_url(url).mask)
    return whole


class _NamedNodes:
    """Nodes that are started for the run."""

    def __init__(self, name: str, sync: str) -> None:
        """Raises ``PlumblineError``."""
        known = targets.target(name)
        if known.software.name not in SCENARIOS or known.nodes > 1:
            raise UsageProblem(f"--server {name}: write nats-server@VERSION or rabbitmq@VERSION")
        self.name = known.name
        self.protocol = known.software.protocol
        self._software = known.software.name
        is_nats = self._software == NATS_SERVER
        self.sync = SYNC_ALWAYS if sync == SYNC_ALWAYS and is_nats else ""
        self.possible = frozenset(FaultType) - IMPOSSIBLE[self._software]
        self._program = getting.obtain_program(known, warn)
        self.version = getting.version(known, self._program)
        if self.sync and numbers(self.version) < (2, 10):
            raise UsageProblem(f'{self.name} has no sync_interval "always": add --sync {SYNC_DEFAULT}')
        self.words = ["--server", self.name]
        self.last_words = ["--sync", SYNC_DEFAULT] if is_nats and not self.sync else []

    def scenario(self, options: ClusterOptions) -> Scenario:
        return SCENARIOS[self._software](self._program, options)


class _UserNodes:
    """Nodes that run already. ``kill`` and ``start`` are argument lists."""

    name = "your cluster"
    version = ""
    sync = ""

    def __init__(self, urls: Sequence[str], kill: Sequence[str], start: Sequence[str]) -> None:
        """Raises ``PlumblineError``."""
        if bool(kill) != bool(start):
            raise UsageProblem("write both --kill-command and --start-command, or none of them")
        protocols = {parse_url(url).protocol for url in urls}
        if len(protocols) > 1:
            raise UsageProblem("the nodes of a cluster speak one protocol: write URLs of one scheme")
        if any(parse_url(url).tls is not None for url in urls):
            raise UsageProblem("TLS is not possible here: write nats:// or amqp://")
        (self.protocol,) = protocols
        self._urls, self._kill, self._start = urls, kill, start
        impossible = (StreamScenario if self.protocol == "nats" else QueueScenario).impossible
        self.possible = possible_faults(kill) - impossible
        commands = [("--kill-command", kill), ("--start-command", start)]
        self.words = [str(parse_url(url)) if "@" in url else url for url in urls]
        self.last_words = [word for name, words in commands if words for word in (name, shlex.join(words))]

    def scenario(self, options: ClusterOptions) -> Scenario:
        if self.protocol == "nats":
            return StreamScenario(UserStreams(self._urls, self._kill, self._start), options)
        return QueueScenario(UserCluster(self._urls, self._kill, self._start), options)


def _run(given: _NamedNodes | _UserNodes, options: ClusterOptions, duration: str) -> ClusterResult:
    started, began = datetime.datetime.now(datetime.UTC), time.monotonic()
    kinds = ",".join(options.faults)
    _show(f"{given.name}, {options.nodes} nodes, faults {kinds}, seed {options.seed}")
    run = run_cluster(given.scenario(options), options, _show)
    words = ["plumbline", "cluster", *given.words, "--nodes", str(options.nodes), "--faults", kinds]
    if options.retention is not Retention.LIMITS:
        words += ["--retention", options.retention]
    words += ["--for", duration, "--rate", f"{options.rate:g}", "--seed", str(options.seed)]
    return conclude(
        given.protocol,
        given.name,
        given.version,
        options,
        run,
        started,
        time.monotonic() - began,
        shlex.join([*words, *given.last_words]),
    )


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
