"""A run of the suite changes nothing of another user's streams and queues on the same server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, TypeVar

import nats
import pika
import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig

from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.nats.nats_server import NatsServer
from tests.zoo.running import nats_binary, run_suite

NAMES = ["PL_not_of_a_run", *(f"ORDERS-{number}" for number in range(200))]
MESSAGES = (b"first", b"second", b"third")
Found = TypeVar("Found")


@pytest.mark.external
def test_streams_and_consumers_of_another_user_are_unchanged() -> None:
    with NatsServer(nats_binary("newest")) as server:
        before = _with_jetstream(server.url, _make_streams)
        run = run_suite([server.url])
        after = _with_jetstream(server.url, _streams)
    assert run.is_green, run.output
    assert [*before] == NAMES
    assert after == before


def test_queues_and_messages_of_another_user_are_unchanged(rabbitmq: RabbitMQ) -> None:
    with pika.BlockingConnection(pika.URLParameters(rabbitmq.url)) as connection:
        channel = connection.channel()
        for name in NAMES:
            channel.queue_declare(name, durable=True)
            for body in MESSAGES:
                channel.basic_publish("", name, body)
        try:
            run = run_suite([rabbitmq.url])
            after = {
                name: [channel.basic_get(name, auto_ack=True)[2] for _ in (*MESSAGES, "end")]
                for name in NAMES
            }
        finally:
            for name in NAMES:
                channel.queue_delete(name)
    assert run.is_green, run.output
    assert after == {name: [*MESSAGES, None] for name in NAMES}


def _with_jetstream(url: str, ask: Callable[[JetStreamContext], Awaitable[Found]]) -> Found:
    async def connected() -> Found:
        client = await nats.connect(url)
        try:
            return await ask(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(connected())


async def _make_streams(jetstream: JetStreamContext) -> dict[str, Any]:
    """Streams with messages; each has a consumer with an acknowledged and an unacknowledged one."""
    for name in NAMES:
        await jetstream.add_stream(name=name, subjects=[f"{name}.>"])
        for body in MESSAGES:
            await jetstream.publish(f"{name}.new", body)
        await jetstream.add_consumer(name, ConsumerConfig(durable_name="worker", ack_wait=3600))
        pull = await jetstream.pull_subscribe_bind("worker", name)
        acknowledged, _ = await pull.fetch(2)
        await acknowledged.ack_sync()
    return await _streams(jetstream)


async def _streams(jetstream: JetStreamContext) -> dict[str, Any]:
    """What the server shows of each, and of its consumer."""
    return {
        name: (
            asdict(await jetstream.stream_info(name)),
            asdict(await jetstream.consumer_info(name, "worker")),
        )
        for name in NAMES
    }
