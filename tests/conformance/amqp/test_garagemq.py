"""A fragile broker: what kills it is the verdict of one check, with what it printed; the run goes on.

Skipped where there is no garagemq; no other package of the suite needs it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from plumbline.conformance.suite import all_checks
from plumbline.conformance.targets.own_server import OwnAmqpServer
from plumbline.conformance.waivers import load_waivers
from plumbline.servers.amqp.garagemq import GarageMQ, garagemq_server
from plumbline.servers.nats.nats_server import MissingServer
from tests.cli.command import verify

WAIVERS = Path(__file__).parents[3] / "servers" / "waivers" / "garagemq.toml"
KILLS = """title     A request that GarageMQ does not survive
source    nowhere
verifies  AMQP-ACK-001
protocol  amqp
> access.request realm=/data
< access.request-ok
"""


@pytest.fixture
def garagemq() -> Path:
    server = garagemq_server()
    if isinstance(server, MissingServer):
        pytest.skip(str(server))
    return server.path


def test_a_death_is_the_verdict_of_one_check_and_the_next_finds_a_server(
    tmp_path: Path, garagemq: Path
) -> None:
    kills = tmp_path / "kills.trace"
    kills.write_text(KILLS)
    ended = verify(
        tmp_path, "--server", str(garagemq), "--trace", str(kills), "--select", "AMQP-CONN-00*", "--json", "r"
    )
    assert (ended.code, ended.err) == (1, "")
    found = {check["id"]: check for check in json.loads((tmp_path / "r").read_text())["checks"]}
    died = next(check for name, check in found.items() if "kills" in name)
    assert (died["outcome"], died["message"]) == ("failed", "the server ended during the check")
    assert "panic: " in died["actual"]
    assert [check for check in found.values() if check["outcome"] == "passed"]


def test_every_known_difference_has_a_reason_and_a_link() -> None:
    waivers = load_waivers(WAIVERS, all_checks("amqp"))
    assert waivers
    assert not [waiver for waiver in waivers if not waiver.link or "to be explained" in waiver.reason]


def test_server_starts_on_existing_folder(tmp_path: Path, garagemq: Path) -> None:
    with GarageMQ(garagemq, tmp_path / "data") as broker:
        assert broker.url.startswith("amqp://guest:guest@127.0.0.1:")
    assert list((tmp_path / "data").iterdir())
    with GarageMQ(garagemq, tmp_path / "data") as broker:
        assert broker.url


def test_runner_prints_url_and_exit_reason(garagemq: Path) -> None:
    server = OwnAmqpServer(
        [sys.executable, "-m", "plumbline.servers.foreground", "garagemq", str(garagemq)], {}
    )
    try:
        server.start()
        assert server.exit_output(0.0) == ""
        assert server._process is not None
        children = Path(f"/proc/{server._process.pid}/task/{server._process.pid}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGKILL)
        assert server.exit_output(5.0).startswith("it ended with code 1: ")
    finally:
        server.close()
