"""``plumbline audit`` over traffic of real servers, with messages lost and duplicated on the way."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import nats
import pika
from nats.aio.msg import Msg

from plumbline.proxy.record import recorded
from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.nats.nats_server import NatsServer
from tests.nats_py import flushed
from tests.patience import HANGS_AFTER_S


def audit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "plumbline", "audit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S)


async def publish_and_subscribe(publish_at: str, subscribe_at: str) -> None:
    """Twenty messages to a subscription, ten through a stream to a push consumer."""
    got: list[bytes] = []
    everything = asyncio.Event()

    async def take(message: Msg) -> None:
        got.append(message.data)
        if message.data == b"last":
            everything.set()

    consumer = await nats.connect(subscribe_at)
    publisher = await nats.connect(publish_at)
    await publisher.jetstream().add_stream(name="ORDERS", subjects=["orders.>"])
    await consumer.subscribe("plain.*", cb=take)
    await consumer.jetstream().subscribe("orders.>", durable="D", cb=take)
    await flushed(consumer)
    for number in range(20):
        await publisher.publish("plain.x", f"plain {number}".encode())
    for number in range(10):
        await publisher.jetstream().publish("orders.x", f"order {number}".encode())
    await publisher.jetstream().publish("orders.x", b"last")
    await asyncio.wait_for(everything.wait(), 20)
    await consumer.close()
    await publisher.close()


def test_audit_reports_lost_and_duplicated_nats_messages(nats_server: NatsServer, tmp_path: Path) -> None:
    faults = ['drop MSG where payload = "plain 3"', 'duplicate MSG where payload = "plain 7"']
    faults += ['drop MSG where payload = "order 4"']
    with (
        recorded(nats_server.url, tmp_path / "publisher") as publishers,
        recorded(nats_server.url, tmp_path / "inner", faults=faults) as faulty,
        recorded(faulty.url, tmp_path / "consumer") as consumers,
    ):
        asyncio.run(publish_and_subscribe(publishers.url, consumers.url))
    written = tmp_path / "audit.json"
    done = audit(tmp_path / "publisher", tmp_path / "consumer", "--json", written)
    assert done.returncode == 1, done.stderr
    assert "sid 1: 18 ok, 1 lost (middle), 1 duplicated" in done.stdout
    assert "consumer D of stream ORDERS: 10 ok, 1 lost (middle)" in done.stdout
    found = json.loads(written.read_text())
    lost = [
        message["published"][0]["text"].rpartition("| ")[2]
        for receiver in found["receivers"]
        for message in receiver["messages"]
        if message["outcome"] == "lost_middle"
    ]
    assert lost == ["plain 3", "order 4"]


def test_audit_reports_messages_lost_by_rabbitmq(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    with (
        recorded(rabbitmq.url, tmp_path / "publisher") as publishers,
        recorded(rabbitmq.url, tmp_path / "inner", faults=["drop basic.get-ok the 3rd"]) as faulty,
        recorded(faulty.url, tmp_path / "consumer") as consumers,
    ):
        queue = f"audit.{tmp_path.name}"
        publisher = pika.BlockingConnection(pika.URLParameters(publishers.url))
        channel = publisher.channel()
        channel.queue_declare(queue)
        channel.confirm_delivery()
        for number in range(5):
            channel.basic_publish("", queue, f"order {number}".encode())
        consumer = pika.BlockingConnection(pika.URLParameters(consumers.url))
        for _ in range(2):
            assert consumer.channel().basic_get(queue, auto_ack=True)[2] is not None
        channel.queue_delete(queue)
        consumer.close()
        publisher.close()
    done = audit(tmp_path / "publisher", tmp_path / "consumer")
    assert f"queue {queue}: 2 ok, 3 indeterminate" in done.stdout, done.stderr
    done = audit(tmp_path / "publisher", tmp_path / "consumer", "--complete")
    assert f"queue {queue}: 2 ok, 3 lost (postfix)" in done.stdout, done.stderr
    assert done.returncode == 1


def test_captures_without_receiver_are_an_error(tmp_path: Path, nats_server: NatsServer) -> None:
    async def publish(url: str) -> None:
        client = await nats.connect(url)
        await client.publish("a", b"1")
        await client.close()

    with recorded(nats_server.url, tmp_path) as proxy:
        asyncio.run(publish(proxy.url))
    done = audit(tmp_path)
    assert (done.returncode, done.stdout) == (
        1,
        "1 messages were published, but the captures show no receiver for them\n",
    )


def test_non_capture_is_usage_error(tmp_path: Path) -> None:
    (tmp_path / "x.pcapng").write_bytes(b"hello, this is no capture")
    done = audit(tmp_path)
    assert done.returncode == 2
    assert "not a capture file" in done.stderr
