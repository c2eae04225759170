"""The ordinary API of aio-pika on the reference broker: a client that knows nothing of us."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError, PublishError

from plumbline.reference_broker.amqp.server import AmqpBroker

LONG_S = 20.0
FULL_AT_ONE: Any = {"x-max-length": 1, "x-overflow": "reject-publish"}


def on_connection(scenario: Callable[[aio_pika.abc.AbstractConnection], Awaitable[None]]) -> None:
    """Run ``scenario`` on a connection to a fresh broker."""

    async def run() -> None:
        async with AmqpBroker() as url, asyncio.timeout(LONG_S):
            connection = await aio_pika.connect(url)
            try:
                await scenario(connection)
            finally:
                await connection.close()

    asyncio.run(run())


def message(text: str, **properties: Any) -> aio_pika.Message:
    return aio_pika.Message(text.encode(), **properties)


def test_publishing_with_confirms() -> None:
    async def scenario(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel(on_return_raises=True)
        queue = await channel.declare_queue("q", arguments=FULL_AT_ONE)
        publish = channel.default_exchange.publish
        assert await publish(message("taken"), queue.name) is not None
        with pytest.raises(DeliveryError):
            await publish(message("rejected"), queue.name)
        with pytest.raises(PublishError) as returned:
            await publish(message("returned"), "nowhere")
        came_back = returned.value.message
        assert came_back is not None
        assert came_back.body == b"returned"

    on_connection(scenario)


def test_many_publishes_at_once_are_all_confirmed() -> None:
    async def scenario(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        publishes = [channel.default_exchange.publish(message(str(n)), queue.name) for n in range(200)]
        assert None not in await asyncio.gather(*publishes)
        assert (await channel.declare_queue("q", passive=True)).declaration_result.message_count == 200

    on_connection(scenario)


def test_consuming_with_acknowledgements_and_prefetch() -> None:
    async def scenario(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=2)
        queue = await channel.declare_queue("q")
        for number in range(5):
            await channel.default_exchange.publish(message(str(number)), queue.name)
        got: list[tuple[int | None, bytes]] = []
        async with queue.iterator(timeout=LONG_S) as messages:
            async for one in messages:
                got.append((one.delivery_tag, one.body))
                await one.ack()
                if len(got) == 5:
                    break
        assert got == [(number + 1, str(number).encode()) for number in range(5)]

    on_connection(scenario)


def test_no_more_is_delivered_than_qos_allows() -> None:
    async def scenario(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=2)
        queue = await channel.declare_queue("q")
        for number in range(3):
            await channel.default_exchange.publish(message(str(number)), queue.name)
        came: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        await queue.consume(came.put)
        await came.get()
        second = await came.get()
        await channel.declare_queue("q", passive=True)  # whatever was delivered has come by then
        assert came.empty()
        await second.ack(multiple=True)
        assert (await came.get()).body == b"2"

    on_connection(scenario)


def test_getting_and_requeueing() -> None:
    async def scenario(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        headers: Any = {"nested": [1, {"deep": None}]}
        await channel.default_exchange.publish(message("message", headers=headers), queue.name)
        first = await queue.get()
        assert (first.redelivered, first.headers, first.body) == (False, headers, b"message")
        await first.nack(requeue=True)
        again = await queue.get()
        assert again.redelivered
        await again.reject(requeue=False)
        assert await queue.get(fail=False) is None

    on_connection(scenario)


def test_nack_multiple_requeues_all_below() -> None:
    async def scenario(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        for number in range(3):
            await channel.default_exchange.publish(message(str(number)), queue.name)
        got = [await queue.get() for _ in range(3)]
        await got[1].nack(multiple=True, requeue=True)
        assert [(await queue.get()).body for _ in range(2)] == [b"0", b"1"]
        assert await queue.get(fail=False) is None

    on_connection(scenario)


def test_transactions() -> None:
    async def scenario(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue("q")
        transaction = channel.transaction()
        await transaction.select()
        await channel.default_exchange.publish(message("rolled back"), queue.name, mandatory=False)
        await transaction.rollback()
        await channel.default_exchange.publish(message("committed"), queue.name, mandatory=False)
        assert await queue.get(fail=False) is None
        await transaction.commit()
        got = await queue.get(no_ack=True)
        assert got.body == b"committed"

    on_connection(scenario)


def test_error_texts_match_rabbitmq() -> None:
    async def scenario(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        with pytest.raises(ChannelNotFoundEntity, match="NOT_FOUND - no queue 'nosuch' in vhost '/'"):
            await channel.declare_queue("nosuch", passive=True)

    on_connection(scenario)


def test_a_robust_connection_takes_up_its_consumer_again() -> None:
    async def run() -> None:
        async with asyncio.timeout(LONG_S):
            broker = AmqpBroker()
            async with broker as url:
                connection = await aio_pika.connect_robust(url, reconnect_interval=0.05)
                channel = await connection.channel()
                queue = await channel.declare_queue("q")
                came: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
                await queue.consume(came.put)
                await channel.default_exchange.publish(message("one"), "q")
                assert not (await came.get()).redelivered
                for client in list(broker.clients.values()):
                    client.transport.abort()
                again = await came.get()
                assert (again.body, again.redelivered) == (b"one", True)
                await again.ack()
                await connection.close()

    asyncio.run(run())
