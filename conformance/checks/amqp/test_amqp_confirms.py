"""Publisher confirms of many messages: each once, none both ways.

RabbitMQ, "Consumer Acknowledgements and Publisher Confirms", "Publisher Confirms".
"""

from __future__ import annotations

from collections import Counter

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.wire.amqp import Method

GUIDE = 'RabbitMQ, "Consumer Acknowledgements and Publisher Confirms"'
PUBLISHES = 300
WITHIN_S = 10.0


def confirmed(client: AmqpConnection, count: int) -> list[Method]:
    """The confirms of the first ``count`` publishes of channel 1, as they come."""
    found: list[Method] = []
    missing = set(range(1, count + 1))
    while missing:
        wanted = f"confirms of {len(missing)} publishes, {min(missing)} the first of them"
        operation = client.arrival(WITHIN_S, wanted, stream=1).operation
        assert operation.method in ("basic.ack", "basic.nack"), str(operation)
        tag = operation.arguments["delivery_tag"]
        assert 1 <= tag <= count, f"a confirm of {tag}, which was not published"
        missing -= set(range(1, tag + 1)) if operation.arguments["multiple"] else {tag}
        found.append(operation)
    return found


def publish(client: AmqpConnection, queues: list[str], count: int) -> None:
    """Publish so many messages in confirm mode, to the queues in turn."""
    client.call("confirm.select")
    client.send(
        *(
            Method.make("basic.publish", 1, routing_key=queues[number % len(queues)], body=b"%d" % number)
            for number in range(count)
        )
    )


@verifies(
    "AMQP-CONFIRM-009",
    "AMQP-CONFIRM-010",
    "AMQP-CONFIRM-011",
    source=f'{GUIDE}, "Negative Acknowledgments for Publishes"',
)
def test_each_of_many_publishes_is_confirmed_and_none_both_ways(session: AmqpSession) -> None:
    """Of many publishes to a queue with room and to a full one each is acked or nacked, and none both."""
    free = session.stage.queue("FREE")
    full = session.stage.queue("FULL", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    session.stage.publish(full, b"m")
    client = session.connect()
    publish(client, [free, full], PUBLISHES)
    ways: dict[int, str] = {}
    for operation in confirmed(client, PUBLISHES):
        tag, multiple = operation.arguments["delivery_tag"], operation.arguments["multiple"]
        # With multiple: those up to the tag that nothing has settled yet.
        for number in range(1, tag + 1) if multiple else (tag,):
            if not multiple:
                known = ways.get(number, operation.method)
                assert known == operation.method, f"publish {number}: {known} and {operation.method}"
            ways.setdefault(number, operation.method)
    counted = Counter(ways.values())
    expected = {"basic.ack": PUBLISHES // 2, "basic.nack": PUBLISHES // 2}
    session.require(counted == expected, "not each publish was confirmed as its queue took it",
                    expected=str(expected), actual=str(dict(counted)))  # fmt: skip
    session.stage.expect_queue(free, message_count=PUBLISHES // 2)


@verifies("AMQP-CONFIRM-013", source=f'{GUIDE}, "Ordering Considerations for Publisher Confirms"')
def test_confirms_of_one_queue_come_in_the_order_of_the_publishes(session: AmqpSession) -> None:
    """Confirms of equal messages to one queue come in the order in which they were published."""
    queue = session.stage.queue("ORDERS")
    client = session.connect()
    publish(client, [queue], PUBLISHES)
    tags = [operation.arguments["delivery_tag"] for operation in confirmed(client, PUBLISHES)]
    session.require(
        tags == sorted(tags), "confirms came out of order", expected="tags that rise", actual=str(tags)[:500]
    )
