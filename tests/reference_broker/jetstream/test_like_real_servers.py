"""The same scenarios on a real server and on the reference broker of its level must give the same answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ci.servers import NatsServer
from reference_broker.nats.server import NatsBroker
from tests.reference_broker.jetstream import scenarios_acks, scenarios_api, scenarios_pulls
from tests.reference_broker.jetstream.player import Player, Scenario

SCENARIOS = scenarios_acks.SCENARIOS + scenarios_pulls.SCENARIOS + scenarios_api.SCENARIOS


def played(scenario: Scenario, url: str) -> list[str]:
    player = Player(url)
    try:
        scenario(player)
    finally:
        player.close()
    return player.log


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_reference_broker_answers_as_the_server(nats_server: NatsServer, scenario: Scenario) -> None:
    probe = Player(nats_server.url)
    probe.close()
    level = ".".join(probe.version.split(".")[:2])
    with NatsBroker.in_thread(level=level, jetstream=True) as url, ThreadPoolExecutor() as threads:
        real = threads.submit(played, scenario, nats_server.url)
        reference = threads.submit(played, scenario, url)
    assert reference.result() == real.result()
