"""The suites pass unchanged through a strictly recording proxy: a part of each here.

The whole of both, beside the same run without a proxy: ``python -m tests.bench.through_proxy``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.nats.nats_server import ServerBinary
from tests.bench.through_proxy import outcomes, proxied, started

NATS = ("CORE-00*", "CORE-02*")
AMQP = ("AMQP-ACK-*",)


def passes(urls: dict[str, str], folder: Path, patterns: tuple[str, ...]) -> None:
    selected = (f"--select={pattern}" for pattern in patterns)
    with proxied(urls, folder) as (moved, proxies):
        found = outcomes(moved, "-n", "4", *selected)
        counted = [proxy.counters for proxy in proxies.values()]
    assert {
        check: result for check, result in found.items() if result[0] not in ("passed", "unsupported")
    } == {}
    assert sum(outcome == "passed" for outcome, _ in found.values()) > 15
    assert sum(one.accepted for one in counted) > 15
    assert sum(one.refused for one in counted) == 0


def test_the_suite_for_nats_passes_on_real_servers(server_binary: ServerBinary, tmp_path: Path) -> None:
    with started(str(server_binary.path)) as urls:
        passes(urls, tmp_path, NATS)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "patterns"), [("embedded", NATS), ("amqp", AMQP)])
def test_the_suites_pass_on_the_reference_brokers(
    target: str, patterns: tuple[str, ...], tmp_path: Path
) -> None:
    with started(target) as urls:
        passes(urls, tmp_path, patterns)


def test_the_suite_for_amqp_passes_on_rabbitmq(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    passes({"main": rabbitmq.url}, tmp_path, AMQP)
