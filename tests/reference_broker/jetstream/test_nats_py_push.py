"""nats-py's ordinary push subscriptions on the reference broker, without special cases."""

from __future__ import annotations

import asyncio
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError
from nats.js.kv import KeyValue

from tests.nats_py import flushed
from tests.patience import HANGS_AFTER_S
from tests.reference_broker.jetstream.test_nats_py import LEVELS, play


async def received(subscription: JetStreamContext.PushSubscription, count: int) -> list[bytes]:
    messages = [await subscription.next_msg(timeout=HANGS_AFTER_S) for _ in range(count)]
    return [message.data for message in messages]


async def publish(js: JetStreamContext, first: int, last: int) -> list[bytes]:
    payloads = [b"%d" % number for number in range(first, last + 1)]
    for payload in payloads:
        await js.publish("s", payload)
    return payloads


@LEVELS
def test_callback_receives_and_acks(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s"])
        await publish(js, 1, 3)
        done, seen = asyncio.Event(), []

        async def take(message: Msg) -> None:
            seen.append(message.data)
            if len(seen) == 5:
                done.set()

        subscription = await js.subscribe("s", durable="P", cb=take)
        await publish(js, 4, 5)
        await asyncio.wait_for(done.wait(), HANGS_AFTER_S)
        assert seen == [b"1", b"2", b"3", b"4", b"5"]
        info = await subscription.consumer_info()
        assert info.push_bound is True
        await subscription.unsubscribe()
        assert not (await js.consumer_info("S", "P")).push_bound

    play(scenario, level)


@LEVELS
def test_durable_subscription_resumes(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s"])
        await publish(js, 1, 2)
        first = await js.subscribe("s", durable="P")
        for _ in range(2):
            await (await first.next_msg(timeout=HANGS_AFTER_S)).ack_sync()
        await first.unsubscribe()
        await publish(js, 3, 4)
        second = await js.subscribe("s", durable="P")
        assert await received(second, 2) == [b"3", b"4"]

    play(scenario, level)


@LEVELS
def test_a_start_in_the_middle(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s"])
        await publish(js, 1, 9)
        config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=8)
        assert await received(await js.subscribe("s", config=config), 2) == [b"8", b"9"]
        last = await js.subscribe("s", deliver_policy=DeliverPolicy.LAST)
        assert await received(last, 1) == [b"9"]

    play(scenario, level)


@LEVELS
def test_a_queue_shares_the_messages(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s"])
        shares: list[list[bytes]] = [[], []]
        done = asyncio.Event()

        def member(share: list[bytes]) -> Any:
            async def take(message: Msg) -> None:
                share.append(message.data)
                if sum(map(len, shares)) == 40:
                    done.set()

            return take

        for share in shares:
            await js.subscribe("s", "workers", cb=member(share))
        info = await js.consumer_info("S", "workers")
        assert (info.config.deliver_group, info.push_bound) == ("workers", True)
        payloads = await publish(js, 1, 40)
        await asyncio.wait_for(done.wait(), HANGS_AFTER_S)
        assert sorted(shares[0] + shares[1]) == sorted(payloads)
        assert all(shares)

    play(scenario, level)


async def witness_of(js: JetStreamContext) -> Client:
    """Another client on the same broker."""
    assert js._nc.connected_url is not None
    return await nats.connect(js._nc.connected_url.geturl())


def lose_once(client: Any, payload: bytes) -> list[bytes]:
    """The next message with that payload never reaches the client; what was lost is in the list."""
    lost: list[bytes] = []
    process = client._process_msg

    async def processed(sid: int, subject: bytes, reply: bytes, data: bytes, *rest: Any) -> None:
        if bytes(data) == payload and not lost:
            lost.append(payload)
            return
        await process(sid, subject, reply, data, *rest)

    client._process_msg = processed
    return lost


@LEVELS
def test_an_ordered_consumer_repairs_a_gap(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s"])
        payloads = await publish(js, 1, 20)
        lost = lose_once(js._nc, b"7")
        subscription = await js.subscribe("s", ordered_consumer=True)
        first = (await js.consumers_info("S"))[0]
        assert (first.config.max_deliver, first.config.mem_storage) == (1, True)
        assert await received(subscription, 20) == payloads
        assert lost == [b"7"]
        names = [one.name for one in await js.consumers_info("S")]
        assert any(name != first.name for name in names)
        assert await publish(js, 21, 25) == await received(subscription, 5)

    play(scenario, level)


@LEVELS
def test_an_ordered_consumer_survives_the_loss_of_its_consumer(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s"])
        payloads = await publish(js, 1, 3)
        subscription = await js.subscribe("s", ordered_consumer=True, idle_heartbeat=0.2)
        assert await received(subscription, 3) == payloads
        (consumer,) = await js.consumers_info("S")
        assert await js.delete_consumer("S", consumer.name)
        assert await publish(js, 4, 6) == await received(subscription, 3)
        with pytest.raises(NotFoundError):
            await js.consumer_info("S", consumer.name)

    play(scenario, level)


@LEVELS
def test_flow_control_lets_many_messages_through(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s"], storage="memory")
        messages, size = 2000, 4096
        watcher = await witness_of(js)
        answers = await watcher.subscribe("$JS.FC.S.>")
        await flushed(watcher)
        for number in range(messages):
            await js._nc.publish("s", b"%0*d" % (size, number))
        await flushed(js._nc)
        subscription = await js.subscribe("s", ordered_consumer=True)
        seen = [int(payload) for payload in await received(subscription, messages)]
        assert seen == list(range(messages))
        assert (await answers.next_msg(timeout=HANGS_AFTER_S)).data == b""
        await watcher.close()

    play(scenario, level)


@LEVELS
def test_heartbeats_do_not_reach_the_application(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s"])
        beats = asyncio.Event()
        subscription = await js.subscribe("s", durable="P", idle_heartbeat=0.1)
        target = (await subscription.consumer_info()).config.deliver_subject
        assert target is not None

        async def beat(message: Msg) -> None:
            if message.headers:
                beats.set()

        witness = await witness_of(js)
        await witness.subscribe(target, cb=beat)
        await asyncio.wait_for(beats.wait(), HANGS_AFTER_S)
        await publish(js, 1, 1)
        assert await received(subscription, 1) == [b"1"]
        await witness.close()

    play(scenario, level)


@LEVELS
def test_key_watch_gives_history_and_end_marker(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket="cfg", history=5)
        for value in (b"one", b"two"):
            await bucket.put("a", value)
        await bucket.put("b", b"other")
        watcher = await bucket.watch("a", include_history=True)
        seen = [await watcher.updates(timeout=HANGS_AFTER_S) for _ in range(3)]  # type: ignore[no-untyped-call]
        assert [entry and entry.value for entry in seen] == [b"one", b"two", None]
        await bucket.delete("a")
        entry = await watcher.updates(timeout=HANGS_AFTER_S)  # type: ignore[no-untyped-call]
        assert isinstance(entry, KeyValue.Entry)
        assert (entry.operation, entry.revision) == ("DEL", 4)
        await watcher.stop()  # type: ignore[no-untyped-call]
        headers = await bucket.watch("*", meta_only=True, ignore_deletes=True)
        seen = [await headers.updates(timeout=HANGS_AFTER_S) for _ in range(2)]  # type: ignore[no-untyped-call]
        assert [entry and (entry.key, entry.value) for entry in seen] == [("b", b""), None]
        await headers.stop()  # type: ignore[no-untyped-call]

    play(scenario, level)


def test_watch_reports_expired_key() -> None:
    async def scenario(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket="cfg", history=5, limit_marker_ttl=1)
        watcher = await bucket.watchall()
        assert await watcher.updates(timeout=HANGS_AFTER_S) is None  # type: ignore[no-untyped-call]
        await bucket.create("a", b"one", msg_ttl=1)
        seen = [await watcher.updates(timeout=HANGS_AFTER_S) for _ in range(2)]  # type: ignore[no-untyped-call]
        assert [entry and (entry.value, entry.operation) for entry in seen] == [
            (b"one", None),
            (b"", "PURGE"),
        ]
        await watcher.stop()  # type: ignore[no-untyped-call]

    play(scenario, "newest")
