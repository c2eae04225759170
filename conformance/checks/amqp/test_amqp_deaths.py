"""AMQP: the types and values of what x-death says. That it says so at all is shown by traces."""

from __future__ import annotations

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.wire.amqp import Method, Timestamp

DEAD_LETTERS = 'RabbitMQ, "Dead Letter Exchanges", "Effects on Messages"'
# Clocks may be wrong by years, but a moment in milliseconds is beyond all of them.
FIRST_SECOND, LAST_SECOND = 1_577_836_800, 4_102_444_800  # 2020-01-01 and 2100-01-01


@verifies("AMQP-DLX-018", source=DEAD_LETTERS)
def test_time_of_a_death_is_a_timestamp(session: AmqpSession) -> None:
    """The time in x-death has the type timestamp, and is a moment of this century in seconds."""
    morgue = session.stage.queue("MORGUE")
    table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": morgue}
    queue = session.stage.queue("ORDERS", arguments=table)
    session.stage.publish(queue, b"m1")
    client = session.connect()
    client.send(Method.make("basic.get", 1, queue=queue))
    tag = client.expect("basic.get-ok", body=b"m1").arguments["delivery_tag"]
    client.send(Method.make("basic.reject", 1, delivery_tag=tag, requeue=False))
    session.stage.await_queue(morgue, message_count=1)
    client.send(Method.make("basic.get", 1, queue=morgue, no_ack=True))
    letter = client.expect("basic.get-ok", body=b"m1")
    deaths = ((letter.properties or {}).get("headers") or {}).get("x-death") or [{}]
    died = deaths[0].get("time")
    session.require(
        isinstance(died, Timestamp) and FIRST_SECOND <= died <= LAST_SECOND,
        "x-death does not tell when",
        expected="a timestamp between the years 2020 and 2100",
        actual=f"{type(died).__name__} {died}",
    )
