"""Nodes of a real RabbitMQ, whose connections pass relays."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from plumbline.servers.amqp.rabbitmq import rabbitmq_server
from plumbline.servers.nats.nats_server import MissingServer
from tests.cli.command import PLUMBLINE

pytestmark = [pytest.mark.external, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_short_run_with_faults_is_conformant(tmp_path: Path) -> None:
    found = rabbitmq_server()
    if isinstance(found, MissingServer):
        pytest.skip(str(found))
    out = tmp_path / "cluster.json"
    words = ["--server", f"rabbitmq@{found.version}", "--faults", "pause,partition", "--for", "15s"]
    words += ["--rate", "100", "--seed", "2", "--json", str(out)]
    ended = subprocess.run([*PLUMBLINE, "cluster", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(out.read_bytes())
    assert result["faults"]
    assert result["counts"]["acknowledged"] > 100
    assert {row["id"].rpartition("-")[0] for row in result["requirements"]} == {"AMQP-CLUS"}
    assert {row["verdict"] for row in result["requirements"]} == {"passed"}
    assert "--sync" not in result["command"]
