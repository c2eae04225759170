"""Apache Qpid Broker-J: a broker that does not claim to be like RabbitMQ, and what is known of it.

Skipped where it is not: it needs Java, and Maven to get it (``python3 -m servers.getting qpid``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from plumbline.conformance.suite import all_checks
from plumbline.conformance.targets.own_server import OwnAmqpServer
from plumbline.conformance.targets.target import open_target
from plumbline.conformance.targets.urls import AmqpUrl, parse_url
from plumbline.conformance.waivers import load_waivers
from plumbline.servers.amqp.qpid import Qpid, dependencies, qpid_server
from plumbline.servers.nats.nats_server import MissingServer
from tests.cli.command import verify

WAIVERS = Path(__file__).parents[3] / "servers" / "waivers" / "qpid.toml"


@pytest.fixture
def qpid() -> Path:
    server = qpid_server()
    if isinstance(server, MissingServer):
        pytest.skip(str(server))
    return server.path


def test_every_known_difference_has_a_reason_and_a_link() -> None:
    waivers = load_waivers(WAIVERS, all_checks("amqp"))
    assert waivers
    assert not [waiver for waiver in waivers if not waiver.link or "to be explained" in waiver.reason]


def test_known_failures_are_waived_and_unclaimed_features_unsupported(tmp_path: Path, qpid: Path) -> None:
    wanted = ("AMQP-ACK-*", "AMQP-DLX-*", "amqp/topo/server-named", "amqp/topo/exclusive-as-shared")
    selected = [f"--select={pattern}" for pattern in wanted]
    ended = verify(tmp_path, "--server", str(qpid), *selected, "--waivers", str(WAIVERS), "--json", "r")
    assert (ended.code, ended.err) == (0, ""), ended.out
    result = json.loads((tmp_path / "r").read_text())
    assert result["target"]["version"] == qpid_version()
    assert result["target"]["level"] == "0.9.1"  # its version is none of RabbitMQ's
    found = {check["id"]: check for check in result["checks"]}
    assert found["amqp/ack/unknown-tag"]["outcome"] == "waived"
    assert found["amqp/dlx/expired"]["outcome"] == "unsupported"
    assert "x-dead-letter-exchange is refused" in found["amqp/dlx/expired"]["message"]
    assert found["amqp/topo/server-named"]["outcome"] == "passed"
    # It leaves a queue that no connection may delete, on a server that ends.
    assert found["amqp/topo/exclusive-as-shared"]["outcome"] == "waived"


def qpid_version() -> str:
    server = qpid_server()
    assert not isinstance(server, MissingServer)
    return server.version


def test_restart_keeps_stored_data(qpid: Path) -> None:
    server = OwnAmqpServer([sys.executable, "-m", "plumbline.servers.foreground", "qpid", str(qpid)], {})
    try:
        for end in (server.kill, server.stop):
            target = open_target(parse_url(server.start())).target
            assert target.server_name == "Apache Qpid Broker-J Core"
            end()
    finally:
        server.close()


def test_server_listens_on_loopback_and_cleans_up(qpid: Path) -> None:
    with Qpid(qpid) as broker:
        port = AmqpUrl.parse(broker.url).port
        listening = [
            line.split()[1]
            for table in ("/proc/net/tcp", "/proc/net/tcp6")
            for line in Path(table).read_text().splitlines()
            if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
        ]
        folder = broker._folder
        assert folder.exists()
    # 127.0.0.1, as it is or mapped into IPv6
    assert {address.partition(":")[0] for address in listening} <= {
        "0100007F",
        "0000000000000000FFFF00000100007F",
    }
    assert listening
    assert not folder.exists()


def test_its_dependencies_are_of_the_version_that_is_requested() -> None:
    assert "".join(dependencies("9.9.9")).count("<version>9.9.9</version>") == 5
