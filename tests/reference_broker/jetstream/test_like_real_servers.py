"""The same scenarios on a real server and on the reference broker of its level must give the same answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from tests.reference_broker.jetstream import scenarios_acks, scenarios_api, scenarios_pulls, scenarios_push
from tests.reference_broker.jetstream.player import Player, Scenario

SCENARIOS = (
    scenarios_acks.SCENARIOS + scenarios_pulls.SCENARIOS + scenarios_push.SCENARIOS + scenarios_api.SCENARIOS
)


def played(scenario: Scenario, url: str) -> list[str]:
    player = Player(url)
    try:
        scenario(player)
    finally:
        player.close()
    return player.log


# A real server counts and delivers in tasks of their own, so a counter may be seen a moment too early or too
# late. What the reference does otherwise, it does every time.
PLAYS = 3


def both_played(scenario: Scenario, binary: ServerBinary) -> tuple[list[str], list[str]]:
    """The logs of the reference broker and of the real server."""
    level = ".".join(binary.version.split(".")[:2])
    with (
        NatsServer(binary.path, {"jetstream": True}) as server,
        NatsBroker.in_thread(level=level, jetstream=True) as url,
        ThreadPoolExecutor() as threads,
    ):
        reference = threads.submit(played, scenario, url)
        real = threads.submit(played, scenario, server.url)
    return reference.result(), real.result()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_reference_broker_answers_as_the_server(server_binary: ServerBinary, scenario: Scenario) -> None:
    for _ in range(PLAYS):
        reference, real = both_played(scenario, server_binary)
        if reference == real:
            break
    assert reference == real
