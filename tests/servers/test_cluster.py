"""A cluster of nats-servers is ready when it has a leader, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pika
import pytest

from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.servers.amqp.rabbitmq import rabbitmq_server
from plumbline.servers.amqp.rabbitmq_cluster import RabbitMQCluster
from plumbline.servers.nats import cluster
from plumbline.servers.nats.cluster import NatsCluster
from plumbline.servers.nats.nats_server import MissingServer, ServerBinary
from plumbline.servers.ports import free_ports
from plumbline.servers.process import NotReady, ServerError
from tests.cli.command import PLUMBLINE
from tests.conftest import servers_required

pytestmark = pytest.mark.external


def test_every_node_answers_the_jetstream_api_once_it_is_ready(server_binary: ServerBinary) -> None:
    with NatsCluster(server_binary.path, {}, 3) as running:
        pids = [node.pid for node in running.nodes]
        for node in running.nodes:
            target = open_target(NatsUrl.parse(node.url))
            assert target.grants.limits
            assert target.info["cluster"] == cluster.NAME
    assert not any(map(_lives, pids))


def test_a_cluster_without_jetstream_needs_no_leader(server_binary: ServerBinary) -> None:
    with NatsCluster(server_binary.path, {"jetstream": False}, 3) as running:
        assert "jetstream" not in open_target(NatsUrl.parse(running.url)).info


def test_a_port_that_another_process_took_is_replaced(
    server_binary: ServerBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NatsCluster(server_binary.path, {}, 3) as other:
        taken = int(other.nodes[0].address("cluster").rpartition(":")[2])
        choices = iter([[taken, *free_ports(2)], free_ports(3)])
        monkeypatch.setattr(cluster, "free_ports", lambda _: next(choices))
        with NatsCluster(server_binary.path, {}, 3) as running:
            assert open_target(NatsUrl.parse(running.url)).grants.limits
    assert not list(choices)


def test_a_configuration_that_the_server_refuses_is_an_error(server_binary: ServerBinary) -> None:
    running = NatsCluster(server_binary.path, {"max_payload": "much"}, 3)
    with pytest.raises(NotReady, match="ended at once with exit code 1"), running:
        pass
    with pytest.raises(ServerError, match="is not running"):
        _ = running.nodes[0].pid


@pytest.mark.timeout(600)  # three brokers start
def test_a_queue_of_one_rabbitmq_node_is_on_the_others() -> None:
    found = rabbitmq_server()
    if isinstance(found, MissingServer):
        if servers_required():
            pytest.fail(str(found), pytrace=False)
        pytest.skip(str(found))
    with RabbitMQCluster(found.path, 3) as running:
        pids = [node.pid for node in running.nodes]
        with pika.BlockingConnection(pika.URLParameters(running.url)) as connection:
            connection.channel().queue_declare("orders", durable=True)
            for other in running.nodes[1:]:
                with pika.BlockingConnection(pika.URLParameters(other.url)) as reached:
                    reached.channel().queue_declare("orders", passive=True)
    assert not any(map(_lives, pids))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_node(
    server_binary: ServerBinary, tmp_path: Path, number: signal.Signals
) -> None:
    marked = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [*PLUMBLINE, "verify", "--target", f"nats-server@{server_binary.version}x3"],
        env=marked,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert "Verifying" in process.stdout.readline()
        assert len(_servers_in(tmp_path)) >= 3
        process.send_signal(number)
        process.stdout.read()
    assert _servers_in(tmp_path) == []


def _servers_in(folder: Path) -> list[str]:
    """The command lines of servers whose configuration is below ``folder``."""
    shown = subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in shown.splitlines() if f"-c {folder}" in line]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
