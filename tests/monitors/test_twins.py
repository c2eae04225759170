"""The rules over real traffic: silent on sound servers, and each server rule red for its broken twin."""

from __future__ import annotations

import asyncio
import contextlib
import json

import nats as nats_py
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig

from plumbline.monitors import MONITORS, MonitorScope, Side
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import NatsServer
from tests.monitors.tap import Tap, tapped

TWINS = {
    "live-subscription": "unsub-max-lets-one-more-through",
    "subject-matches": "full-wildcard-matches-no-token",
    "batch-is-the-limit": "pull-goes-on-after-timeout",
    "consumer-sequence": "seq-filter-leaves-gaps",
    "delivery-count": "redelivery-counts-as-the-first",
    "nothing-after-the-end": "ack-is-ignored",
    "stream-sequence": "pub-duplicate-is-not-told",
    "message-id": "pub-message-id-is-always-new",
    "ack-floor": "ack-floor-goes-back-at-a-nak",
    "stream-order": "pub-puback-has-the-seq-of-a-neighbour",
    "one-payload": "pub-duplicate-replaces-the-payload",
}


async def everyday(url: str) -> None:
    """What a client of JetStream does in its day: nothing that a sound server answers wrongly."""
    client = await nats_py.connect(url, allow_reconnect=False)
    try:
        await subscriptions(client)
        await pulls(client)
    finally:
        await client.close()


async def subscriptions(client: Client) -> None:
    limited = await client.subscribe("everyday.limited")
    await limited.unsubscribe(limit=1)
    await client.flush()
    for subject in ("everyday.limited", "everyday.limited", "everyday", "everyday.more"):
        await client.publish(subject, b"x")
    await client.subscribe("everyday.>")
    await client.publish("everyday", b"x")
    await client.flush()


async def pulls(client: Client) -> None:
    jetstream = client.jetstream()
    await jetstream.add_stream(name="DAY", subjects=["day.*"])
    for number in range(3):
        for subject in ("day.kept", "day.other"):
            await jetstream.publish(subject, b"x", headers={"Nats-Msg-Id": f"{subject}{number}"})
    await jetstream.publish("day.kept", b"of a duplicate", headers={"Nats-Msg-Id": "day.kept0"})
    await jetstream.add_consumer(
        "DAY", ConsumerConfig(durable_name="C", ack_wait=0.3, filter_subject="day.kept", max_ack_pending=3)
    )
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    (first,) = await pull(client, answers, inbox, 1)
    await acknowledge(client, first)
    await consumer_info(client)
    second, third = await pull(client, answers, inbox, 2)
    await acknowledge(client, third)
    await second.nak()
    await consumer_info(client)
    (again,) = await pull(client, answers, inbox, 1)
    await acknowledge(client, again)
    await ended(client, answers, inbox)


async def acknowledge(client: Client, message: Msg) -> None:
    """A double ack, with the payload spelled out."""
    await client.request(message.reply, b"+ACK", timeout=5)


async def pull(client: Client, answers: Subscription, inbox: str, batch: int) -> list[Msg]:
    body = json.dumps({"batch": batch, "expires": 3_000_000_000}).encode()
    await client.publish("$JS.API.CONSUMER.MSG.NEXT.DAY.C", body, reply=inbox)
    return [await answers.next_msg(timeout=5) for _ in range(batch)]


async def ended(client: Client, answers: Subscription, inbox: str) -> None:
    """A request that ends with 408, later than ack_wait, and a message that comes after it."""
    body = json.dumps({"batch": 5, "expires": 400_000_000}).encode()
    await client.publish("$JS.API.CONSUMER.MSG.NEXT.DAY.C", body, reply=inbox)
    while not (await answers.next_msg(timeout=5)).headers:
        pass
    await client.publish("day.kept", b"late")
    await client.flush()
    await consumer_info(client)
    await client.flush()


async def consumer_info(client: Client) -> None:
    """A broken twin may send what ends the connection, and no answer."""
    with contextlib.suppress(NatsError):
        await client.request("$JS.API.CONSUMER.INFO.DAY.C", b"", timeout=5)


def broken(tap: Tap) -> set[str]:
    """The rules that were broken, those of the end included."""
    return {violation.rule for violation in (*tap.violations, *tap.watch.finish())}


def test_sound_server_breaks_no_rule(nats_server: NatsServer) -> None:
    with tapped(nats_server.url) as tap:
        asyncio.run(everyday(tap.url))
    assert tap.operations > 40
    assert broken(tap) == set()


def test_reference_broker_breaks_no_rule() -> None:
    with NatsBroker.in_thread(jetstream=True) as url, tapped(url) as tap:
        asyncio.run(everyday(tap.url))
    assert tap.operations > 40
    assert broken(tap) == set()


@pytest.mark.parametrize(("rule", "defect"), TWINS.items())
def test_broken_twin_breaks_its_rule_and_no_other(rule: str, defect: str) -> None:
    with NatsBroker.in_thread(jetstream=True, defect=defect) as url, tapped(url) as tap:
        asyncio.run(everyday(tap.url))
    assert broken(tap) == {rule}


def test_every_rule_of_nats_servers_has_a_broken_twin() -> None:
    ours = [
        monitor for monitor in MONITORS if monitor.scope in (MonitorScope.CONNECTION, MonitorScope.STREAM)
    ]
    assert {monitor.rule for monitor in ours if monitor.side is Side.SERVER} == set(TWINS)
