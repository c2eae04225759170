"""Nodes of a real RabbitMQ, whose connections pass relays."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from plumbline.servers.amqp.rabbitmq import rabbitmq_server
from plumbline.servers.amqp.rabbitmq_cluster import RabbitMQCluster
from plumbline.servers.nats.nats_server import MissingServer, ServerBinary
from tests.cli.command import PLUMBLINE

pytestmark = [pytest.mark.external, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def server() -> ServerBinary:
    found = rabbitmq_server()
    if isinstance(found, MissingServer):
        pytest.skip(str(found))
    return found


def test_a_cluster_that_runs_already_is_reached_by_its_urls(server: ServerBinary, tmp_path: Path) -> None:
    out = tmp_path / "cluster.json"
    words = ["--faults", "none", "--for", "5s", "--rate", "60", "--seed", "1", "--json", str(out)]
    with RabbitMQCluster(server.path, 3) as running:
        urls = [node.url for node in running.nodes]
        ended = subprocess.run(
            [*PLUMBLINE, "cluster", *urls, *words], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(out.read_bytes())
    assert result["counts"]["acknowledged"] > 20
    assert {row["verdict"] for row in result["requirements"]} == {"passed"}
    assert "amqp://guest@127.0.0.1" in result["command"]
    assert "guest:guest" not in ended.stdout + out.read_text()


def test_a_short_run_with_faults_is_conformant(server: ServerBinary, tmp_path: Path) -> None:
    out = tmp_path / "cluster.json"
    words = ["--server", f"rabbitmq@{server.version}", "--faults", "pause,partition", "--for", "15s"]
    words += ["--rate", "100", "--seed", "2", "--json", str(out)]
    ended = subprocess.run([*PLUMBLINE, "cluster", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(out.read_bytes())
    assert result["faults"]
    assert result["counts"]["acknowledged"] > 100
    assert {row["id"].rpartition("-")[0] for row in result["requirements"]} == {"AMQP-CLUS"}
    assert {row["verdict"] for row in result["requirements"]} == {"passed"}
    assert "--sync" not in result["command"]
