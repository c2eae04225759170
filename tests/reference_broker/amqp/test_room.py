"""A consumer that has room again gets what waits for it; what a channel had ends with it."""

from __future__ import annotations

from plumbline.reference_broker.amqp.messages.direct_replies import REPLY_TO
from plumbline.wire.amqp import Method
from tests.reference_broker.amqp.virtual import Client, Virtual


def bodies(client: Client) -> list[str]:
    """Of the deliveries that came since."""
    return [one.body.decode() for one in client.take() if isinstance(one, Method) and one.body]


def test_a_message_that_was_delivered_too_often_makes_room() -> None:
    client = Virtual(queue_types=("classic", "quorum")).client()
    limited = {"x-queue-type": "quorum", "x-delivery-limit": 0}
    client.send("queue.declare", queue="q", durable=True, arguments=limited)
    client.send("basic.qos", prefetch_count=1)
    client.publish("q", "1", "2")
    client.send("basic.consume", queue="q")
    assert bodies(client) == ["1"]
    client.send("basic.nack", delivery_tag=1, requeue=True)
    assert bodies(client) == ["2"]


def test_room_in_a_channel_is_for_all_of_its_queues() -> None:
    virtual = Virtual()
    client, other = virtual.client(), virtual.client()
    client.send("basic.qos", prefetch_count=1, global_=True)
    for queue in ("q", "r"):
        client.send("queue.declare", queue=queue)
        client.send("basic.consume", queue=queue)
    client.publish("q", "1", "2")
    other.send("basic.consume", queue="q")
    client.publish("r", "3")
    assert (bodies(client), bodies(other)) == (["1"], ["2"])
    client.send("basic.nack", delivery_tag=1, requeue=True)
    assert (bodies(client), bodies(other)) == (["3"], ["1"])


def test_the_address_of_a_channel_ends_with_it() -> None:
    client = Virtual().client()
    client.send("channel.open", 2)
    client.send("confirm.select")
    client.send("basic.consume", queue=REPLY_TO, no_ack=True)
    client.send("queue.declare", queue="q")
    client.publish("q", "request", properties={"reply_to": REPLY_TO})
    *_, request = client.ask("basic.get", queue="q", no_ack=True)
    assert isinstance(request, Method)
    address = (request.properties or {})["reply_to"]
    unconfirmed = Method.make("basic.publish", 1, routing_key="none", body=b"x")
    closing = Method.make("channel.close", 1, reply_code=200)
    asked = Method.make("queue.declare", 2, queue=address, passive=True)
    client.raw(unconfirmed.raw + closing.raw + asked.raw)
    assert client.names() == ["channel.close-ok", "channel.close"]
