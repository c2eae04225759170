"""A vendor's client on the reference broker, without special cases: nats-py's ordinary JetStream API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError, ServerError

from plumbline.reference_broker.nats.server import NatsBroker


def play(scenario: Callable[[JetStreamContext], Awaitable[None]], level: str) -> None:
    async def run() -> None:
        async with NatsBroker(jetstream=True, level=level) as url:
            client = await nats.connect(url)
            try:
                await scenario(client.jetstream(timeout=2))
            finally:
                await client.close()

    asyncio.run(run())


LEVELS = pytest.mark.parametrize("level", ["2.9", "newest"])


@LEVELS
def test_streams_publish_pull_and_acknowledge(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(name="ORDERS", subjects=["ORDERS.*"], storage="memory")
        acks = [await js.publish("ORDERS.new", b"%d" % number) for number in range(10)]
        assert [ack.seq for ack in acks] == list(range(1, 11))
        duplicate = await js.publish("ORDERS.new", b"x", headers={"Nats-Msg-Id": "1"})
        assert (await js.publish("ORDERS.new", b"x", headers={"Nats-Msg-Id": "1"})).seq == duplicate.seq
        subscription = await js.pull_subscribe("ORDERS.*", durable="DISPATCH")
        messages = await subscription.fetch(5, timeout=1)
        assert [message.data for message in messages] == [b"%d" % number for number in range(5)]
        for message in messages[:3]:
            await message.ack_sync()
        await messages[3].nak()
        await messages[4].term()
        info = await js.consumer_info("ORDERS", "DISPATCH")
        assert (info.delivered.consumer_seq, info.num_ack_pending, info.num_pending) == (5, 1, 6)
        again = await subscription.fetch(2, timeout=1)
        assert (again[0].data, again[0].metadata.num_delivered) == (b"3", 2)
        assert len(await subscription.fetch(20, timeout=0.3)) == 5
        with pytest.raises(nats.errors.TimeoutError):
            await subscription.fetch(1, timeout=0.1)

    play(scenario, level)


@LEVELS
def test_assets_are_listed_updated_and_deleted(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(StreamConfig(name="S", subjects=["s"], max_msgs=5))
        info = await js.update_stream(StreamConfig(name="S", subjects=["s", "t"], max_msgs=7))
        assert (info.config.max_msgs, info.config.subjects) == (7, ["s", "t"])
        assert await js.find_stream_name_by_subject("t") == "S"
        consumer = ConsumerConfig(durable_name="C", ack_policy=AckPolicy.ALL, max_deliver=3)
        assert (await js.add_consumer("S", consumer)).config.max_deliver == 3
        assert [one.name for one in await js.consumers_info("S")] == ["C"]
        assert [one.config.name for one in await js.streams_info()] == ["S"]
        await js.publish("s", b"one")
        assert (await js.get_msg("S", 1)).data == b"one"
        assert await js.purge_stream("S") is True
        assert await js.delete_consumer("S", "C") is True
        assert await js.delete_stream("S") is True
        with pytest.raises(NotFoundError):
            await js.stream_info("S")
        with pytest.raises(ServerError):
            await js.add_stream(name="A", subjects=["a"], storage="memory", max_age=1, duplicate_window=9)
        assert (await js.account_info()).streams == 0

    play(scenario, level)


@LEVELS
def test_a_push_subscription_gets_messages(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s"])
        await js.publish("s", b"before")
        subscription = await js.subscribe("s", durable="P")
        await js.publish("s", b"after")
        received = [await subscription.next_msg(timeout=1) for _ in range(2)]
        assert [message.data for message in received] == [b"before", b"after"]
        for message in received:
            await message.ack_sync()
        floor = (await subscription.consumer_info()).ack_floor
        assert floor is not None
        assert floor.stream_seq == 2

    play(scenario, level)
