"""AMQP: when messages and queues expire: not before their time, and not long after it.

RabbitMQ, "Time-To-Live and Expiration". A message that expires goes to another queue: its consumer sees when.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_routes import publish, publish_confirmed, reaches_queue
from plumbline.conformance.outcomes import Failed
from plumbline.wire.amqp import Method

TTL_DOC = 'RabbitMQ, "Time-To-Live and Expiration"'
TTL_MS = 400
TTL_S = TTL_MS / 1000
LONG_MS = 600_000
EARLIEST = 0.9  # of the time to live: clocks may differ a little, but half of it is too early
MARGIN_S = 1.0  # after its time something has to be gone; a slow target gets more
POLL_S = 0.02
# "No guarantee is given as to how promptly the queue will be removed": quorum queues look once in 5 s.
EXPIRED_S = 15.0


def _doomed(session: AmqpSession, label: str, **arguments: Any) -> tuple[str, str]:
    """A queue whose dead messages go to a second one. The names of both."""
    morgue = session.stage.queue(f"{label}-MORGUE")
    table = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    table |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": morgue}
    return session.stage.queue(label, arguments=table), morgue


def _require_lifetimes(session: AmqpSession, queues: dict[str, tuple[str, str, str | None]]) -> None:
    """A message in each of these queues dies after ``TTL_MS``, neither much earlier nor later.

    ``queues``: by a body, the queue, where its dead go, and the message's own expiration.
    """
    client = session.connect()
    for _, morgue, _ in queues.values():
        client.send(Method.make("basic.consume", 2, queue=morgue, no_ack=True))
        client.expect("basic.consume-ok", 2)
    sent_at = time.monotonic()
    for body, (queue, _, expiration) in queues.items():
        properties = {} if expiration is None else {"expiration": expiration}
        client.send(publish("", queue, body, properties=properties))
    alive = set(queues)
    while alive:
        wanted = f"basic.deliver of {' '.join(sorted(alive))} after {TTL_MS} ms"
        judge = partial(_judge_dead, client, alive, wanted)
        arrival = client.arrival(TTL_S + MARGIN_S, wanted, since=sent_at, stream=2, judge=judge)
        body = arrival.operation.body.decode()
        lived = arrival.at - sent_at
        session.require(
            lived >= EARLIEST * TTL_S,
            f"{body} expired too early",
            expected=f"after {TTL_MS} ms",
            actual=f"after {lived * 1000:.0f} ms",
        )
        alive.remove(body)
    session.count_observation()


def _judge_dead(client: AmqpConnection, alive: set[str], wanted: str, operation: Method) -> None:
    if operation.method != "basic.deliver" or operation.body.decode("utf-8", "replace") not in alive:
        client.mark_offending(operation)
        raise Failed("something else came", expected=wanted, actual=str(operation))


@verifies("AMQP-TTL-001", source=f'{TTL_DOC}, "Per-Queue Message TTL"')
def test_message_ttl_of_a_queue(session: AmqpSession) -> None:
    """A message expires after x-message-ttl of its queue, not before."""
    _require_lifetimes(session, {"m1": (*_doomed(session, "ORDERS", message_ttl=TTL_MS), None)})


@verifies("AMQP-TTL-002", source=f'{TTL_DOC}, "Per-Message TTL in Publishers"')
def test_expiration_of_a_message(session: AmqpSession) -> None:
    """A message expires after its property expiration, not before."""
    _require_lifetimes(session, {"m1": (*_doomed(session, "ORDERS"), str(TTL_MS))})


@verifies("AMQP-TTL-003", source=f'{TTL_DOC}, "Per-Message TTL in Publishers"')
def test_lower_of_both(session: AmqpSession) -> None:
    """Of x-message-ttl and expiration the lower counts."""
    _require_lifetimes(
        session,
        {
            "m1": (*_doomed(session, "SHORT", message_ttl=TTL_MS), str(LONG_MS)),
            "m2": (*_doomed(session, "LONG", message_ttl=LONG_MS), str(TTL_MS)),
        },
    )


@verifies("AMQP-TTL-004", "AMQP-TTL-005", source=f'{TTL_DOC}, "Per-Queue Message TTL"')
def test_expired_messages_are_not_delivered(session: AmqpSession) -> None:
    """What has expired is not delivered: behind a message that lives on, and when it is given back late."""
    mixed = session.stage.queue("MIXED")
    held = session.stage.queue("HELD", arguments={"x-message-ttl": TTL_MS})
    clock, morgue = _doomed(session, "CLOCK", message_ttl=TTL_MS)
    client = session.connect()
    dying = {"properties": {"expiration": "50"}}
    publish_confirmed(
        client,
        publish("", held, "h1"),
        publish("", mixed, "m1"),
        publish("", mixed, "m2", **dying),
        publish("", mixed, "m3", **dying),
        publish("", mixed, "m4"),
    )
    client.send(Method.make("basic.get", 2, queue=held))
    delivery = client.expect("basic.get-ok", 2, body=b"h1")
    # What is published now expires after h1 would have.
    client.send(Method.make("basic.consume", 3, queue=morgue, no_ack=True))
    client.expect("basic.consume-ok", 3)
    client.send(publish("", clock, "now"))
    client.expect("basic.deliver", 3, within=TTL_S + MARGIN_S, body=b"now")
    tag = delivery.arguments["delivery_tag"]
    client.send(Method.make("basic.nack", 2, delivery_tag=tag, requeue=True))
    client.send(Method.make("basic.get", 2, queue=held))
    client.expect("basic.get-empty", 2)
    for body in (b"m1", b"m4"):
        client.send(Method.make("basic.get", 4, queue=mixed, no_ack=True))
        client.expect("basic.get-ok", 4, body=body)
    client.send(Method.make("basic.get", 4, queue=mixed, no_ack=True))
    client.expect("basic.get-empty", 4)


def _await_end(session: AmqpSession, client: AmqpConnection, queue: str, since: float) -> float:
    """How long after ``since`` the queue was gone. Raises ``Failed`` if it stays."""
    limit = since + TTL_S + EXPIRED_S + session.target.slack_s
    while reaches_queue(client, queue):
        asked_at = time.monotonic()
        session.require(
            asked_at < limit,
            "the queue did not expire",
            expected=f"gone after {TTL_MS} ms",
            actual=f"there after {(asked_at - since) * 1000:.0f} ms",
        )
        session.pause(POLL_S)
    return time.monotonic() - since


@verifies("AMQP-TTL-007", "AMQP-TTL-008", "AMQP-TTL-009", source=f'{TTL_DOC}, "Queue TTL"')
def test_queue_expiry(session: AmqpSession) -> None:
    """A queue with x-expires is deleted so long after its last use, and not while it has consumers."""
    client = session.connect()
    client.call("confirm.select")
    leases = {"x-expires": TTL_MS}
    used = session.stage.queue("USED", arguments=leases)
    client.send(Method.make("basic.consume", 2, queue=used, no_ack=True))
    client.expect("basic.consume-ok", 2)
    morgue = session.stage.queue("MORGUE")
    table = leases | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": morgue}
    declared_at = time.monotonic()
    renewed = session.stage.queue("RENEWED", arguments=leases)
    unused = session.stage.queue("UNUSED", arguments=table)
    session.pause(TTL_S / 2)
    renewed_at = time.monotonic()
    client.send(Method.make("basic.get", 3, queue=renewed, no_ack=True))
    answer = client.arrival(MARGIN_S, "basic.get-empty", stream=3)
    _require_age(session, "unused", _await_end(session, client, unused, declared_at))
    if answer.operation.method == "basic.get-empty":
        _require_age(session, "renewed by basic.get", _await_end(session, client, renewed, renewed_at))
    else:  # it was gone already, which is right only if we were late
        _require_age(session, "used last when it was declared", answer.at - declared_at)
    session.require(
        reaches_queue(client, used),
        "a queue with a consumer expired",
        expected="the queue",
        actual="no queue",
    )
    session.stage.expect_queue(morgue, message_count=0)


@verifies("AMQP-TTL-017", source=f'{TTL_DOC}, "Queue TTL"')
def test_declaration_renews_the_lease(session: AmqpSession) -> None:
    """A queue with x-expires is deleted so long after it was declared again, not after the first time."""
    client = session.connect()
    client.call("confirm.select")
    leases = {"x-expires": TTL_MS}
    queue = session.stage.queue("RENEWED", arguments=leases)
    session.pause(TTL_S / 2)
    renewed_at = time.monotonic()
    # If we are late it is made anew, and its time begins now, too.
    client.send(Method.make("queue.declare", 1, queue=queue, durable=True, arguments=leases))
    client.expect("queue.declare-ok", 1)
    _require_age(session, "declared again", _await_end(session, client, queue, renewed_at))


@verifies("AMQP-TTL-015", source=f'{TTL_DOC}, "Queue TTL"')
def test_queue_expires_after_its_last_consumer(session: AmqpSession) -> None:
    """A queue with x-expires is deleted so long after its consumer is cancelled, or loses its connection."""
    client = session.connect()
    client.call("confirm.select")
    session.stage.queue("LASTING", arguments={"x-expires": LONG_MS})  # unsupported if refused
    left = {name: session.name(name) for name in ("CANCELLED", "LOST")}
    leavers = {name: session.connect(f"consumer of {name}") for name in left}
    for name, queue in left.items():
        leavers[name].call("basic.qos", 1)
        # Together, so that no queue expires before it has a consumer.
        leavers[name].send(
            Method.make("queue.declare", 1, queue=queue, durable=True, arguments={"x-expires": TTL_MS}),
            Method.make("basic.consume", 1, queue=queue, consumer_tag="c", no_ack=True),
        )
        leavers[name].expect("queue.declare-ok", 1)
        leavers[name].expect("basic.consume-ok", 1)
    session.pause(TTL_S / 2)
    left_at = time.monotonic()
    leavers["CANCELLED"].send(Method.make("basic.cancel", 1, consumer_tag="c"))
    leavers["CANCELLED"].expect("basic.cancel-ok", 1)
    leavers["LOST"].close()
    for name, queue in left.items():
        _require_age(session, f"left ({name})", _await_end(session, client, queue, left_at))


@verifies("AMQP-ROUTE-038", source=f'{TTL_DOC}, "Queue TTL"')
def test_expired_queue_takes_its_bindings(session: AmqpSession) -> None:
    """A queue that expired and is declared again has none of the bindings that it had."""
    client = session.connect()
    client.call("confirm.select")
    exchange = session.stage.exchange("EVENTS", type="direct")
    declared_at = time.monotonic()
    queue = session.stage.queue("SHORT", arguments={"x-expires": TTL_MS})
    session.stage.bind(queue, exchange, "red")
    _await_end(session, client, queue, declared_at)
    session.stage.queue("SHORT", arguments={"x-expires": LONG_MS})
    client.send(publish(exchange, "red", "m1", mandatory=True))
    client.expect("basic.return", 1, reply_code=312, body=b"m1")


def _require_age(session: AmqpSession, what: str, lived: float) -> None:
    session.require(
        lived >= EARLIEST * TTL_S,
        f"the queue that was {what} expired too early",
        expected=f"after {TTL_MS} ms",
        actual=f"after {lived * 1000:.0f} ms",
    )
