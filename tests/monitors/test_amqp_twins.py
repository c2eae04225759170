"""The rules of AMQP channels over real traffic: silent on sound brokers, and each red for its broken twin.

The twin of a rule of servers is a defect of the reference broker, that of a rule of clients a client that
does what it must not.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from plumbline.conformance.targets.urls import AmqpUrl
from plumbline.monitors import MONITORS, MonitorScope, Side
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.wire.amqp import Decoder, Method, ProtocolHeader
from plumbline.wire.sender import Sender
from tests.monitors.tap import Tap, tapped
from tests.patience import HANGS_AFTER_S

TWINS = {
    "delivery-tag": "delivery-tags-skip",
    "prefetch": "prefetch-is-one-more",
    "live-consumer": "cancelled-consumers-go-on",
    "redelivered": "redelivered-is-never-set",
    "one-confirm": "acked-is-nacked-too",
    "return-first": "ack-before-return",
}
GROUPS = ("ACK", "NACK", "REJECT", "REQUEUE", "RECOVER", "QOS", "CONSUME", "GET", "CONFIRM", "PUB")
QUEUE = "everyday"


class Client:
    """An ordinary client, one channel at a time. It believes the broker's answers."""

    def __init__(self, url: str) -> None:
        address = AmqpUrl.parse(url)
        self.link = socket.create_connection((address.host, address.port), HANGS_AFTER_S)
        self.decoder = Decoder(Sender.SERVER)
        self.came: list[Method] = []
        self.link.sendall(ProtocolHeader.make().raw)
        self.await_("connection.start")
        self.say("connection.start-ok", 0, mechanism="PLAIN", response="\0guest\0guest", locale="en_US")
        self.await_("connection.tune")
        self.say("connection.tune-ok", 0, channel_max=10, frame_max=131072, heartbeat=0)
        self.say("connection.open", 0, virtual_host="/")
        self.await_("connection.open-ok")

    def say(self, method: str, channel: int, **arguments: Any) -> None:
        self.link.sendall(Method.make(method, channel, **arguments).raw)

    def call(self, method: str, channel: int, **arguments: Any) -> None:
        self.say(method, channel, **arguments)
        self.await_(f"{method}-ok")

    def publish(self, channel: int, name: str, key: str = QUEUE, *, mandatory: bool = False) -> None:
        properties = {"message_id": name}
        content = {"properties": properties, "body": name.encode()}
        self.say("basic.publish", channel, routing_key=key, mandatory=mandatory, **content)

    def await_(self, method: str) -> list[Method]:
        """Until that came: all that came."""
        seen: list[Method] = []
        while not any(one.method == method for one in seen):
            seen += self.hear()
        self.came += seen
        return seen

    def await_deliveries(self, count: int) -> list[int]:
        """The tags of what has been delivered, once so many came, or the broker has no more."""
        deadline = time.monotonic() + HANGS_AFTER_S
        while len(self.tags()) < count and time.monotonic() < deadline:
            self.await_("basic.deliver")
        return self.tags()

    def tags(self) -> list[int]:
        return [one.arguments["delivery_tag"] for one in self.came if one.method == "basic.deliver"]

    def hear(self) -> list[Method]:
        data = self.link.recv(65536)
        assert data, "the broker closed the connection"
        return [one for one in self.decoder.feed(data) if isinstance(one, Method)]

    def close(self) -> None:
        """In order, so that nothing is on its way any more."""
        self.call("connection.close", 0, reply_code=200, reply_text="bye")
        self.link.close()


def consumes(client: Client) -> None:
    """Four messages with room for two; one comes again. After the consumer's end another message comes."""
    client.call("channel.open", 1)
    client.call("queue.declare", 1, queue=QUEUE, exclusive=True)
    for number in range(4):
        client.publish(1, f"m{number}")
    client.call("basic.qos", 1, prefetch_count=2)
    client.say("basic.consume", 1, queue=QUEUE, consumer_tag="c")
    first, second = client.await_deliveries(2)[:2]
    client.call("channel.flow", 1, active=True)  # a third has had its time to come
    client.say("basic.nack", 1, delivery_tag=second, requeue=True)
    client.await_deliveries(3)
    client.say("basic.ack", 1, delivery_tag=first)
    again, last = client.await_deliveries(4)[-2:]
    client.say("basic.ack", 1, delivery_tag=again)
    *_, newest = client.await_deliveries(5)
    client.say("basic.ack", 1, delivery_tag=last)
    if newest != last:
        client.say("basic.ack", 1, delivery_tag=newest)
    client.call("basic.cancel", 1, consumer_tag="c")
    client.publish(1, "late")
    client.call("queue.declare", 1, queue=QUEUE, exclusive=True)


def publishes(client: Client) -> None:
    """With confirms, one of them to nowhere."""
    client.call("channel.open", 2)
    client.call("queue.declare", 2, queue="confirmed", exclusive=True)
    client.call("confirm.select", 2)
    for number in range(3):
        client.publish(2, f"p{number}", "confirmed")
        client.await_("basic.ack")
    client.publish(2, "p4", "nowhere", mandatory=True)
    client.await_("basic.return")
    if not any(one.arguments["delivery_tag"] == 4 for one in client.came if one.method == "basic.ack"):
        client.await_("basic.ack")


def everyday(url: str, *parts: Callable[[Client], None]) -> None:
    """What a client does in its day: nothing that a sound broker answers wrongly."""
    client = Client(url)
    try:
        for part in parts or (consumes, publishes):
            part(client)
        client.close()
    finally:
        client.link.close()


def settles_twice(client: Client) -> None:
    """What a client must not do."""
    client.call("channel.open", 1)
    client.call("queue.declare", 1, queue=QUEUE, exclusive=True)
    client.publish(1, "m")
    client.say("basic.consume", 1, queue=QUEUE, consumer_tag="c")
    (tag,) = client.await_deliveries(1)
    client.say("basic.ack", 1, delivery_tag=tag)
    client.say("basic.ack", 1, delivery_tag=tag)
    client.await_("channel.close")
    client.say("channel.close-ok", 1)


def broken(tap: Tap) -> set[str]:
    """The rules that were broken, those of the end included."""
    return {violation.rule for violation in (*tap.violations, *tap.watch.finish())}


def test_real_broker_breaks_no_rule(rabbitmq: RabbitMQ) -> None:
    with tapped(rabbitmq.url) as tap:
        everyday(tap.url)
    assert tap.operations > 40
    assert broken(tap) == set()


def test_reference_broker_breaks_no_rule() -> None:
    with AmqpBroker.in_thread() as url, tapped(url) as tap:
        everyday(tap.url)
    assert tap.operations > 40
    assert broken(tap) == set()


@pytest.mark.parametrize(("rule", "defect"), TWINS.items())
def test_broken_twin_breaks_its_rule_and_no_other(rule: str, defect: str) -> None:
    with AmqpBroker.in_thread(defect=[defect]) as url, tapped(url) as tap:
        everyday(tap.url)
    assert broken(tap) == {rule}


def test_client_that_settles_twice_is_the_broken_twin_of_its_rule(rabbitmq: RabbitMQ) -> None:
    with tapped(rabbitmq.url) as tap:
        everyday(tap.url, settles_twice)
    assert broken(tap) == {"known-delivery-tag"}


def test_every_rule_of_amqp_has_a_broken_twin() -> None:
    ours = [monitor for monitor in MONITORS if monitor.scope in (MonitorScope.CHANNEL, MonitorScope.QUEUE)]
    assert {monitor.rule for monitor in ours if monitor.side is Side.SERVER} == set(TWINS)
    assert {monitor.rule for monitor in ours if monitor.side is Side.CLIENT} == {"known-delivery-tag"}


def test_suite_through_a_tap_passes_and_shows_no_fault_of_the_server(rabbitmq: RabbitMQ) -> None:
    with tapped(rabbitmq.url) as tap:
        command = [sys.executable, "-m", "plumbline", "verify", tap.url]
        groups = [f"--select=AMQP-{group}-*" for group in GROUPS]
        run = subprocess.run([*command, *groups], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stdout[-3000:]
    assert tap.operations > 2000
    assert [str(found) for found in tap.violations if found.side is Side.SERVER and found.certain] == []
