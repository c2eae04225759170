"""Deliveries and what limits or ends them: RabbitMQ, "Consumers", "Consumer Prefetch"; AMQP 0-9-1, basic."""

from __future__ import annotations

from plumbline.conformance.clients.amqp.scene import QUEUE, AmqpScene, describe_observations, method_of
from plumbline.conformance.clients.scenario import scenario

LARGE = 300_000  # bytes: three frames of 131072


@scenario("CLIENT-DELIVERY-001", needs=["consume"])
def every_delivery_is_handed_over_once_and_in_order(scene: AmqpScene) -> None:
    """Twenty messages, handed over as they came: body, routing key, exchange, delivery tag."""
    bodies = [f"m{number}" for number in range(20)]
    scene.queue(*bodies)
    scene.open()
    messages = scene.consume(*bodies)
    wire = [method_of(seen) for seen in scene.deliveries()]
    for message, delivery in zip(messages, wire, strict=True):
        shown_tag = message.delivery_tag in (None, delivery.arguments["delivery_tag"])
        scene.require(
            message.routing_key in ("", QUEUE) and message.exchange == "" and shown_tag,
            "a message was handed over otherwise than it was delivered",
            expected=str(delivery),
            actual=message,
        )


@scenario("CLIENT-DELIVERY-002", needs=("consume", "nack"))
def a_redelivery_is_told_as_one(scene: AmqpScene) -> None:
    """The first delivery is none, the one after a nack with requeue is."""
    scene.queue("a")
    scene.open()
    (first,) = scene.consume("a")
    scene.run_command("nack", ref=first.ref, requeue=True)
    _, again = scene.await_messages("s", "a", "a")
    scene.require(
        (first.redelivered, again.redelivered) == (False, True),
        "redelivered was not reported as the server sent it",
        expected="false, then true",
        actual=(first.redelivered, again.redelivered),
    )


@scenario("CLIENT-DELIVERY-003", needs=["consume"])
def a_consumer_that_the_server_cancels_is_told(scene: AmqpScene) -> None:
    """The queue is deleted behind the consumer's back, and the server says so with basic.cancel."""
    scene.queue()
    scene.open()
    scene.consume()
    scene.stage.delete("queue", QUEUE)
    cancelled = scene.await_wire(lambda: scene.received_methods("basic.cancel"))
    scene.require(
        cancelled,
        "the server could not say so: the client does not claim consumer_cancel_notify",
        expected="capability consumer_cancel_notify in connection.start-ok",
        actual=describe_observations(scene.sent_methods("connection.start-ok")),
    )
    scene.await_events(lambda: scene.events_named("ended", "error", "channel-closed"))
    reported = [
        event
        for event in scene.events_named("ended", "error", "channel-closed")
        if event.subscription in ("", "s")
    ]
    scene.require(
        reported,
        "the end of the consumer was not reported",
        expected="the application hears that its consumer has ended",
        actual="nothing",
    )


@scenario("CLIENT-DELIVERY-004", needs=("consume", "qos", "ack"))
def prefetch_is_asked_for_before_consuming(scene: AmqpScene) -> None:
    """basic.qos with the count that was asked for goes out first; each ack makes room for one message."""
    scene.queue("a", "b", "c")
    scene.open()
    scene.run_command("qos", channel=1, prefetch_count=2)
    first, _ = scene.consume("a", "b")
    sent = [method_of(seen) for seen in scene.sent_methods("basic.qos", "basic.consume")]
    scene.require(
        [one.method for one in sent] == ["basic.qos", "basic.consume"]
        and sent[0].arguments["prefetch_count"] == 2,
        "the prefetch limit was not set as asked",
        expected="basic.qos prefetch_count=2, then basic.consume",
        actual="; ".join(map(str, sent)),
    )
    scene.run_command("ack", ref=first.ref)
    scene.await_messages("s", "a", "b", "c")


@scenario("CLIENT-DELIVERY-004", needs=("qos",))
def prefetch_for_the_channel_is_asked_for_as_such(scene: AmqpScene) -> None:
    """``global`` is sent where the application wants one limit for all consumers of the channel."""
    scene.open()
    scene.run_command("qos", channel=1, prefetch_count=5, **{"global": True})
    sent = scene.sent_methods("basic.qos")
    given = [(one.arguments["prefetch_count"], one.arguments["global"]) for one in map(method_of, sent)]
    scene.require(
        given == [(5, True)],
        "not as asked",
        expected="prefetch_count=5 global=true",
        actual=describe_observations(sent),
    )


@scenario("CLIENT-DELIVERY-005", needs=["get"])
def get_gives_the_message_or_none(scene: AmqpScene) -> None:
    """basic.get from a queue with one message: it, then nothing."""
    scene.queue("a")
    scene.open()
    first, second = scene.get(), scene.get()
    scene.require(
        first is not None and first.data == "a" and second is None,
        "get did not give what the server sent",
        expected="a, then nothing",
        actual=f"{first}, then {second}",
    )


@scenario("CLIENT-DELIVERY-006", needs=["consume"])
def a_message_of_several_frames_is_handed_over_whole(scene: AmqpScene) -> None:
    """A body that comes in several frames is put together."""
    body = "".join(chr(97 + number % 26) for number in range(LARGE))
    scene.queue(body, "after")
    scene.open()
    scene.consume(body, "after")
    scene.count_observation()


@scenario("CLIENT-DELIVERY-007", needs=["publish"])
def a_large_message_is_published_in_frames_that_were_agreed(scene: AmqpScene) -> None:
    """No frame of a large message exceeds the frame_max of connection.tune-ok."""
    scene.queue()
    scene.open()
    scene.run_command("publish", channel=1, exchange="", routing_key=QUEUE, data="x" * LARGE, within=5.0)
    scene.barrier()
    (sent,) = scene.publishes()
    agreed = method_of(scene.sent_methods("connection.tune-ok")[0]).arguments["frame_max"]
    largest = max(frame_sizes(sent.method.raw))
    scene.require(
        len(sent.method.body) == LARGE and largest <= agreed,
        "a frame is larger than was agreed",
        expected=f"{LARGE} bytes in frames of at most {agreed}",
        actual=f"{len(sent.method.body)} bytes, the largest frame {largest}",
    )


def frame_sizes(raw: bytes) -> list[int]:
    """Octets of each frame, its head and end included. Source: AMQP 0-9-1, section 4.2.3."""
    sizes, at = [], 0
    while at < len(raw):
        sizes.append(int.from_bytes(raw[at + 3 : at + 7], "big") + 8)
        at += sizes[-1]
    return sizes


@scenario("CLIENT-DELIVERY-008", needs=["consume"])
def cancelling_a_consumer_ends_it(scene: AmqpScene) -> None:
    """basic.cancel with the consumer's own tag; what is published afterwards is not handed over."""
    scene.queue()
    scene.open()
    scene.consume()
    scene.run_command("cancel", subscription="s")
    scene.stage.publish(QUEUE, b"late")
    scene.barrier()
    tags = [method_of(seen).arguments["consumer_tag"] for seen in scene.sent_methods("basic.cancel")]
    known = [method_of(seen).arguments["consumer_tag"] for seen in scene.received_methods("basic.consume-ok")]
    scene.require(
        tags == known and not scene.messages("s"),
        "the consumer was not cancelled",
        expected=f"basic.cancel {known}, and no message",
        actual=f"basic.cancel {tags}, messages {scene.messages('s')}",
    )
