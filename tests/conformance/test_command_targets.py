"""Brokers that a command of ``targets.toml`` starts, and what is known of them.

Those that this machine has not fetched are skipped: ``python3 -m plumbline.servers.getting NAME`` gets one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from plumbline.conformance.suite import all_checks
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.conformance.waivers import load_waivers
from plumbline.servers.every import WAIVERS
from plumbline.servers.getting import find_installed
from plumbline.servers.starting import new_server
from plumbline.servers.targets import Software, software, target
from tests.cli.command import verify

TARGETS = {name: known for name, known in software().items() if known.start}
# Quick checks: one passes, and one is waived. No waiver names the first one alone, as it would be stale.
SELECTED = {
    "amqp-mock": ("amqp_capabilities::confirms_are_claimed", "amqp/topo/passive-missing"),
    "metalmq": ("amqp_capabilities::confirms_are_claimed", "amqp/ack/unknown-tag"),
    "ballerina": ("amqp/chan/open", "amqp/topo/passive-missing"),
    "proxima-amqp": ("amqp_topology::exchange_keeps_its_type", "amqp/topo/passive-missing"),
    "mockforge-amqp": ("amqp_capabilities::confirms_are_claimed", "amqp/topo/passive-missing"),
    "nats_test_server": ("core_errors::pub_with_a_negative_size", "core_errors::sub_without_a_sid"),
}


@pytest.fixture(params=list(TARGETS.values()), ids=list(TARGETS))
def known(request: pytest.FixtureRequest) -> Software:
    one: Software = request.param
    return one


@pytest.fixture
def fetched(known: Software) -> Path:
    path = find_installed(target(known.name))
    if path is None:
        pytest.skip(f"{known.name} is not here: python3 -m plumbline.servers.getting {known.name}")
    return path


def test_every_known_difference_has_a_reason_and_a_link(known: Software) -> None:
    waivers = load_waivers(WAIVERS / f"{known.name}.toml", all_checks(known.protocol))
    assert waivers
    assert not [waiver for waiver in waivers if not waiver.link or "to be explained" in waiver.reason]


@pytest.mark.external
def test_it_starts_and_starts_again(known: Software, fetched: Path, tmp_path: Path) -> None:
    server = new_server(known, fetched, tmp_path / "data")
    for _ in range(2):
        server.start()
        assert server.url.startswith(f"{known.protocol}://")
        server.kill()
    server.stop()


@pytest.mark.external
def test_known_failures_are_waived(known: Software, fetched: Path, tmp_path: Path) -> None:
    selected = [f"--select={pattern}" for pattern in SELECTED[known.name]]
    waived = ["--waivers", str(WAIVERS / f"{known.name}.toml")]
    ended = verify(tmp_path, "--target", known.name, *selected, *waived, "--json", "r")
    assert (ended.code, ended.err) == (0, ""), ended.out
    result = json.loads((tmp_path / "r").read_text())
    assert {check["outcome"] for check in result["checks"]} == {"passed", "waived"}


@pytest.mark.external
def test_a_check_of_nats_gets_a_server_of_its_own() -> None:
    path = find_installed(target("nats_test_server"))
    if path is None:
        pytest.skip("nats_test_server is not here: python3 -m plumbline.servers.getting nats_test_server")
    program = [sys.executable, "-m", "plumbline.servers.foreground", "nats_test_server", str(path)]
    server = OwnServer(program, {})
    try:
        assert server.start().startswith("nats://127.0.0.1:")
    finally:
        server.close()
