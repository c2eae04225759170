"""A real cluster of nats-servers: a short run is conformant, relays cut routes, and Ctrl-C leaves nothing."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from itertools import permutations
from pathlib import Path

import pytest

from plumbline.cluster.judging import ClusterRule
from plumbline.cluster.nats.answers import Answer, read_answer
from plumbline.cluster.nats.nodes import RelayedCluster, TracedNatsServer
from plumbline.cluster.nats.reading import Requests
from plumbline.cluster.nats.scenario import started_streams
from plumbline.cluster.nodes import NodeProcesses
from plumbline.cluster.plan import FaultType, make_plan
from plumbline.cluster.relays import CUT
from plumbline.cluster.result import as_json, as_text, conclude
from plumbline.cluster.run import run_cluster
from plumbline.cluster.scenario import ClusterOptions
from plumbline.servers.nats.nats_server import ServerBinary
from plumbline.versions import numbers
from plumbline.wire.units import SECOND
from tests.cli.command import PLUMBLINE
from tests.cluster.known import known_failures, unexpected_failures

pytestmark = pytest.mark.external

ALL_KILLED = 1  # a seed whose short plan kills all nodes once
HEALED_WITHIN_S = 120.0  # an election; on a busy machine several
ASK_AGAIN_S = 10.0


def command(server: ServerBinary, *words: str) -> list[str]:
    sync = [] if numbers(server.version) >= (2, 10) else ["--sync", "default"]
    return [*PLUMBLINE, "cluster", "--server", f"nats-server@{server.version}", *sync, *words]


def test_a_short_run_with_faults_is_conformant(server_binary: ServerBinary, tmp_path: Path) -> None:
    out = tmp_path / "cluster.json"
    page, junit = tmp_path / "cluster.html", tmp_path / "cluster.xml"
    words = ["--faults", "pause,partition", "--for", "8s", "--rate", "100", "--seed", "1", "--json", str(out)]
    words += ["--html", str(page), "--junit", str(junit)]
    ended = subprocess.run(command(server_binary, *words), capture_output=True, text=True, check=False)
    found = json.loads(out.read_bytes())
    failed, unexpected = unexpected_failures(found, server_binary.version)
    assert ended.returncode == (1 if failed else 0), ended.stdout + ended.stderr
    assert not unexpected, ended.stdout
    assert found["schema"] == "plumbline.cluster/1"
    assert found["faults"]
    assert found["counts"]["acknowledged"] > 100
    assert found["counts"]["confirmed"] > 10
    assert found["counts"]["updates"] > 10
    assert {row["verdict"] for row in found["requirements"] if row["id"] not in failed} == {"passed"}
    assert "--seed 1" in found["command"]
    assert "<svg" in page.read_text()
    assert junit.read_text().count("<testcase") == len(found["requirements"])


def test_a_work_queue_is_empty_of_what_was_acknowledged(server_binary: ServerBinary, tmp_path: Path) -> None:
    out = tmp_path / "cluster.json"
    words = ["--faults", "none", "--for", "5s", "--rate", "60", "--seed", "1", "--json", str(out)]
    words += ["--retention", "workqueue"]
    ended = subprocess.run(command(server_binary, *words), capture_output=True, text=True, check=False)
    found = json.loads(out.read_bytes())
    _, unexpected = unexpected_failures(found, server_binary.version)
    assert not unexpected, ended.stdout
    verdicts = {row["id"]: row["verdict"] for row in found["requirements"]}
    assert verdicts["JS-CLUS-019"] == verdicts["JS-CLUS-001"] == "passed"
    assert "--retention workqueue" in found["command"]


def test_routes_pass_the_relays_and_a_cut_holds_them(server_binary: ServerBinary) -> None:
    config = {"name": "CUT", "subjects": ["cut"], "num_replicas": 3}

    async def create(url: str, within: float) -> Answer:
        requests = Requests("_INBOX.cut")
        await requests.connect(url)
        try:
            return await requests.api("STREAM.CREATE.CUT", config, within)
        finally:
            requests.close()

    async def created(url: str) -> Answer:
        """A request that comes while no leader is known may have no answer at all."""
        async with asyncio.timeout(HEALED_WITHIN_S):
            while True:
                with suppress(TimeoutError):
                    return await create(url, ASK_AGAIN_S)

    with RelayedCluster(server_binary.path, {}, 3) as running:
        running.relays.set_faults({route: [CUT] for route in permutations(range(3), 2)})
        with pytest.raises(TimeoutError):
            asyncio.run(create(running.url, 2.0))
        running.relays.set_faults({})
        assert asyncio.run(created(running.url)).error is None


RUNS = 4  # beside many processes the nodes may be killed before anything is acknowledged
_restart = NodeProcesses.restart


def restarted_empty(cluster: RelayedCluster) -> Callable[[NodeProcesses, Collection[int]], None]:
    """Nodes of ``cluster`` start again without their stores."""

    def restart(processes: NodeProcesses, nodes: Collection[int]) -> None:
        for node in nodes:
            store = cluster.nodes[node].folder / "store"
            assert store.is_dir()
            shutil.rmtree(store)
        _restart(processes, nodes)

    return restart


def test_a_cluster_that_loses_its_stores_is_convicted(
    server_binary: ServerBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes are killed, and start again with nothing: what was acknowledged is gone."""
    options = ClusterOptions(3, (FaultType.KILL,), 8 * SECOND, 100, ALL_KILLED, sync="")
    monkeypatch.setattr("plumbline.cluster.nats.scenario.HEALED_WITHIN_S", 10.0)
    assert [fault.scope for fault in make_plan(options.faults, 3, options.duration_ns, ALL_KILLED)] == ["all"]
    for _ in range(RUNS):
        scenario = started_streams(server_binary.path, options)
        assert isinstance(scenario.nodes, RelayedCluster)
        monkeypatch.setattr(NodeProcesses, "restart", restarted_empty(scenario.nodes))
        run = run_cluster(scenario, options, lambda line: None)
        if run.judgement.acknowledged > 20:
            break
    assert run.judgement.acknowledged > 20
    assert len(run.judgement.of(ClusterRule.LOST)) == run.judgement.acknowledged
    began = datetime.datetime.now(datetime.UTC)
    found = conclude("nats", "nats-server", server_binary.version, options, run, began, 1.0, "again")
    assert found.result.summary.exit_code == 1
    failed = {row.id for row in found.result.requirements if row.verdict == "failed"}
    known = known_failures(server_binary.version)
    assert failed | known == {"JS-CLUS-001", "JS-CLUS-010", "JS-CLUS-016", "JS-CLUS-018"} | known
    text = "\n".join(as_text(found))
    assert "first finding: " in text
    assert "> PUB " in text
    assert "kill all: nodes 1 2 3 begins" in text
    assert json.loads(as_json(found))["findings_in_total"] == len(run.judgement.findings)


@pytest.mark.parametrize("sync", ["always", "default"])
def test_a_power_loss_takes_messages_only_if_they_were_not_fsynced(
    server_binary: ServerBinary, sync: str
) -> None:
    if sync == "always" and numbers(server_binary.version) < (2, 10):
        pytest.skip('nats-server before 2.10 has no sync_interval "always"')

    async def publish(requests: Requests) -> object:
        await requests.api("STREAM.CREATE.POWER", {"name": "POWER", "subjects": ["power"]})
        return read_answer((await requests.message("power", b"message")).payload).seq

    async def count(requests: Requests) -> object:
        state = (await requests.api("STREAM.INFO.POWER")).state
        return state.messages if state is not None else 0

    async def ask(question: Callable[[Requests], Awaitable[object]]) -> object:
        requests = Requests("_INBOX.power")
        await requests.connect(node.url)
        try:
            return await question(requests)
        finally:
            requests.close()

    node = TracedNatsServer(server_binary.path)
    node.config = {"jetstream": {"sync_interval": "always"} if sync == "always" else True}
    with node:
        assert asyncio.run(ask(publish)) == 1
        node.kill()
        node.lose_power()
        for file in node.ports_files:
            file.unlink()
        node.launch()
        node.await_ready()
        assert asyncio.run(ask(count)) == (1 if sync == "always" else 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process(
    server_binary: ServerBinary, tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        command(server_binary, "--faults", "pause", "--for", "60s", "--rate", "50", "--seed", "1"),
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line.rstrip().endswith("begins"):
                break
        else:
            pytest.fail("".join(lines))
        children = _children(process.pid)
        assert len(children) == 4  # three nodes and the relays
        process.send_signal(number)
        rest = process.stdout.read()
    assert process.returncode == 130, rest
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.glob("plumbline-nats-server-*"))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found
