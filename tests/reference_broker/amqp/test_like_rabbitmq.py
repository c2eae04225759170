"""The same scenarios on RabbitMQ and on the reference broker must give the same answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.servers.amqp.rabbitmq import RabbitMQ
from tests.reference_broker.amqp import (
    scenarios_connection,
    scenarios_consuming,
    scenarios_messages,
    scenarios_topology,
)
from tests.reference_broker.amqp.player import Player, Scenario

SCENARIOS = [
    *scenarios_connection.SCENARIOS,
    *scenarios_topology.SCENARIOS,
    *scenarios_messages.SCENARIOS,
    *scenarios_consuming.SCENARIOS,
]


def played(scenario: Scenario, url: str) -> list[str]:
    player = Player(url)
    try:
        scenario(player)
    finally:
        player.close()
    return player.log


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_reference_broker_answers_as_rabbitmq(scenario: Scenario, rabbitmq: RabbitMQ) -> None:
    with AmqpBroker.in_thread() as url, ThreadPoolExecutor(2) as both:
        ours = both.submit(played, scenario, url)
        theirs = both.submit(played, scenario, rabbitmq.url)
        assert ours.result() == theirs.result()
