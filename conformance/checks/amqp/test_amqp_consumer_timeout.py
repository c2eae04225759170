"""AMQP: consumers that consumer_timeout does not end, since they owe no acknowledgement for so long."""

from __future__ import annotations

import time

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.outcomes import Inconclusive
from plumbline.conformance.targets.variants import amqp_variants
from plumbline.wire.amqp import Method

TIMEOUT = 'RabbitMQ, "Consumers", "Delivery Acknowledgement Timeout"'
VARIANT = "amqp-settings"
HELD = 0.4  # of the timeout, each delivery: the timeout is no multiple of it
TOGETHER = 1.6  # of the timeout, so long a consumer consumes


@verifies("AMQP-CONSUME-035", source=TIMEOUT, variant=VARIANT)
def test_who_acknowledges_in_time_may_consume_on(session: AmqpSession) -> None:
    """A consumer that acknowledges each delivery in time consumes for longer than the timeout."""
    timeout = _timeout_s()
    queue = session.stage.queue("ORDERS")
    count = round(TOGETHER / HELD) + 1
    for number in range(count):
        session.stage.publish(queue, b"m%d" % number)
    consumer = session.connect("consumer")
    consumer.call("basic.qos", prefetch_count=1)
    before = time.monotonic()  # the next message is delivered after this
    consumer.call("basic.consume", queue=queue, consumer_tag="c")
    for number in range(count):
        delivered = consumer.expect("basic.deliver", body=b"m%d" % number)
        consumer.expect_silence(timeout * HELD)
        consumer.send(Method.make("basic.ack", 1, delivery_tag=delivered.arguments["delivery_tag"]))
        now = time.monotonic()
        if now - before > timeout:
            raise Inconclusive(
                "this machine was too slow to acknowledge in time",
                expected=f"within {timeout:g} s",
                actual=f"{now - before:.3f} s",
            )
        before = now
    consumer.call("basic.cancel", consumer_tag="c")


@verifies("AMQP-CONSUME-036", source=TIMEOUT, variant=VARIANT)
def test_who_need_not_acknowledge_has_no_timeout(session: AmqpSession) -> None:
    """A consumer with no_ack keeps its channel for longer than the timeout."""
    queue = session.stage.queue("NEWS")
    session.stage.publish(queue, b"n1")
    consumer = session.connect("consumer")
    consumer.call("basic.consume", queue=queue, consumer_tag="free", no_ack=True)
    consumer.expect("basic.deliver", body=b"n1")
    consumer.expect_silence(_timeout_s() * TOGETHER)
    consumer.call("basic.cancel", consumer_tag="free")


def _timeout_s() -> float:
    return float(amqp_variants()[VARIANT].settings["consumer_timeout"])
