"""A cluster that runs already: nodes by URL, killed and started by commands."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plumbline.cluster.user import CommandedNodes, CommandError
from plumbline.conformance.targets.urls import UrlError, parse_url, url_with_password
from plumbline.servers.nats.nats_server import ServerBinary
from plumbline.servers.ports import free_ports
from tests.cli.command import PLUMBLINE, environment
from tests.cluster.known import unexpected_failures

# Starts or kills node N: its process id is in a file.
SCRIPT = """
import os, signal, subprocess, sys
from pathlib import Path
action, folder, binary, node = sys.argv[1:]
pid_file = Path(folder, node + ".pid")
if action == "kill":
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
else:
    with Path(folder, node + ".log").open("ab") as log:
        started = subprocess.Popen([binary, "-c", folder + "/" + node + ".conf"], stdout=log, stderr=log)
    pid_file.write_text(str(started.pid))
"""


PASSWORD = "cl1ster-p/word"


class OwnCluster:
    """Three nats-servers that the run under test did not start."""

    def __init__(self, folder: Path, binary: Path) -> None:
        ports = free_ports(6)
        routes = [f"nats://127.0.0.1:{port}" for port in ports[3:]]
        self.urls = [f"nats://alice@127.0.0.1:{port}" for port in ports[:3]]
        script = folder / "node.py"
        script.write_text(SCRIPT)
        for node in range(3):
            config = {
                "server_name": f"own-{node + 1}",
                "listen": f"127.0.0.1:{ports[node]}",
                "authorization": {"user": "alice", "password": PASSWORD},
                "jetstream": {"store_dir": str(folder / f"store{node + 1}")},
                "cluster": {"name": "own", "listen": f"127.0.0.1:{ports[3 + node]}", "routes": routes},
            }
            (folder / f"{node + 1}.conf").write_text(json.dumps(config))
        self.kill, self.start = (
            [sys.executable, str(script), action, str(folder), str(binary), "{node}"]
            for action in ("kill", "start")
        )

    def run(self, command: list[str], node: int) -> None:
        subprocess.run([word.replace("{node}", str(node)) for word in command], check=True)


@pytest.fixture
def own_cluster(tmp_path: Path, server_binary: ServerBinary) -> Iterator[OwnCluster]:
    found = OwnCluster(tmp_path, server_binary.path)
    for node in (1, 2, 3):
        found.run(found.start, node)
    yield found
    for node in (1, 2, 3):
        found.run(found.kill, node)


@pytest.mark.external
def test_a_run_kills_and_starts_nodes_and_deletes_its_stream(
    own_cluster: OwnCluster, server_binary: ServerBinary, tmp_path: Path
) -> None:
    out = tmp_path / "cluster.json"
    words = ["--faults", "kill,leader", "--for", "8s", "--rate", "100", "--seed", "1", "--json", str(out)]
    words += ["--kill-command", shlex.join(own_cluster.kill)]
    words += ["--start-command", shlex.join(own_cluster.start)]
    deadline = time.monotonic() + 60
    while True:  # the nodes may not be a cluster yet: exit code 3
        ended = subprocess.run(
            [*PLUMBLINE, "cluster", *own_cluster.urls, *words],
            env=environment(PLUMBLINE_PASSWORD=PASSWORD),
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode != 3 or time.monotonic() > deadline:
            break
    result = json.loads(out.read_bytes())
    failed, unexpected = unexpected_failures(result, server_binary.version)
    assert ended.returncode == (1 if failed else 0), ended.stdout + ended.stderr
    assert not unexpected, ended.stdout
    assert result["counts"]["acknowledged"] > 50
    assert "kill" in " ".join(fault["fault"] for fault in result["faults"])
    assert own_cluster.urls[0] in result["command"]
    assert PASSWORD not in ended.stdout + ended.stderr + out.read_text()
    assert not list(tmp_path.glob("store*/jetstream/*/streams/*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nats://a", "nats://b", "nats://c", "--faults", "kill"], "your cluster cannot have kill"),
        (["nats://a", "nats://b", "nats://c", "--faults", "pause"], "your cluster cannot have pause"),
        (["nats://a", "nats://b"], "write 3 or 5"),
        (["nats://a", "nats://b", "amqp://c"], "one protocol"),
        (["nats://a", "nats://b", "nats://c", "--kill-command", "x"], "both --kill-command and"),
        (["--kill-command", "x", "--start-command", "y"], "give the URLs"),
        (["tls://a", "tls://b", "tls://c"], "TLS"),
        pytest.param(
            ["--server", "rabbitmq@4.3", "--faults", "leader"],
            "cannot have leader",
            marks=pytest.mark.external,
        ),
    ],
)
def test_what_is_not_possible_is_refused(words: list[str], message: str) -> None:
    ended = subprocess.run([*PLUMBLINE, "cluster", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert message in " ".join(ended.stderr.split())


def test_a_command_is_an_argument_list_without_a_shell(tmp_path: Path) -> None:
    script = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(repr(sys.argv[2:]))"
    out = tmp_path / "words"
    command = [sys.executable, "-c", script, str(out), "$HOME; {node}", "{url}"]
    CommandedNodes(["nats://a", "nats://b"], command, []).kill([1])
    assert out.read_text() == "['$HOME; 2', 'nats://b']"


def test_a_command_gets_no_password(tmp_path: Path) -> None:
    url = url_with_password("nats://alice@a:4222", PASSWORD)
    script = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
    CommandedNodes([url], [sys.executable, "-c", script, str(tmp_path / "words"), "{url}"], []).kill([0])
    assert (tmp_path / "words").read_text() == "nats://alice@a:4222"


@pytest.mark.parametrize(
    "url", ["nats://a", "nats://al%2Fice@a:1", "nats://token@a", "amqp://a", "amqp://bob@a/host"]
)
def test_a_url_gets_a_password(url: str) -> None:
    whole = url_with_password(url, "p/@ é")
    assert parse_url(whole) == parse_url(url).with_password("p/@ é")
    with pytest.raises(UrlError, match="already has a password"):
        url_with_password("nats://u:p@h", PASSWORD)


def test_a_command_that_fails_is_an_error() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such node')"]
    with pytest.raises(CommandError, match="node 1 ended with exit code 1: no such node"):
        CommandedNodes(["nats://a"], command, []).kill([0])
