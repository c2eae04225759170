"""AMQP: declarations that may be answered in one of several ways, and names as long as they may be."""

from __future__ import annotations

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_answers import expect_one_of
from plumbline.wire.amqp import Method

EXCHANGES = "AMQP 0-9-1 XML, class exchange"


@verifies("AMQP-TOPO-009", source="AMQP 0-9-1 XML, domain queue-name")
def test_queue_name_of_255_octets(session: AmqpSession) -> None:
    """A queue name of 255 octets is accepted, and its last octet tells it from another."""
    client = session.connect()
    label = "n" * (254 - len(session.name("")))
    for last in "ab":
        name = session.name(label + last)
        client.send(Method.make("queue.declare", 1, queue=name, exclusive=True))
        client.expect("queue.declare-ok", queue=name, message_count=0)
    client.send(Method.make("basic.publish", 1, routing_key=session.name(label + "b"), body=b"m1"))
    client.send(Method.make("basic.get", 1, queue=session.name(label + "a"), no_ack=True))
    client.expect("basic.get-empty")
    client.send(Method.make("basic.get", 1, queue=session.name(label + "b"), no_ack=True))
    client.expect("basic.get-ok", body=b"m1")


@verifies("AMQP-TOPO-004", source="AMQP 0-9-1 XML, queue.declare; AMQP 0-9-1 XML, domain shortstr")
def test_missing_queue_with_a_long_name(session: AmqpSession) -> None:
    """A passive declare of a missing queue is refused with 404, too, if no reply text can hold its name."""
    client = session.connect()
    name = session.name("n" * (255 - len(session.name(""))))
    client.send(Method.make("queue.declare", 1, queue=name, passive=True))
    client.expect("channel.close", reply_code=404, class_id=50, method_id=10)


@verifies("AMQP-TOPO-011", source="AMQP 0-9-1 XML, queue.declare, parameter exclusive")
def test_exclusive_queue_of_another_connection_is_unbound_or_locked(session: AmqpSession) -> None:
    """Unbinding another connection's exclusive queue is carried out, or refused with 405."""
    queue = session.name("MINE")
    owner = session.connect("owner")
    owner.send(Method.make("queue.declare", 1, queue=queue, exclusive=True))
    owner.expect("queue.declare-ok")
    unbind = Method.make("queue.unbind", 1, queue=queue, exchange="amq.direct", routing_key="never")
    expect_one_of(session, session.connect("other"), unbind, ("queue.unbind-ok", 0), ("channel.close", 405))


@verifies("AMQP-TOPO-020", source=EXCHANGES)
def test_default_exchange_takes_no_binding_or_ignores_it(session: AmqpSession) -> None:
    """Binding a queue to the default exchange is refused with 403, or accepted."""
    queue = session.stage.queue("ORDERS")
    bind = Method.make("queue.bind", 1, queue=queue, routing_key="other")
    expect_one_of(session, session.connect(), bind, ("channel.close", 403), ("queue.bind-ok", 0))


@verifies("AMQP-TOPO-027", source='AMQP 0-9-1 XML, exchange.declare, parameter type, rule "support"')
def test_exchange_of_an_unknown_type_is_refused(session: AmqpSession) -> None:
    """An exchange of a type that the server does not have is refused with 503, or with 406."""
    declare = Method.make("exchange.declare", 1, exchange=session.name("ODD"), type="bogus")
    refusals = (("connection.close", 503), ("channel.close", 503), ("channel.close", 406))
    expect_one_of(session, session.connect(), declare, *refusals)


@verifies("AMQP-TOPO-028", source='AMQP 0-9-1 XML, exchange.declare, parameter type, rule "typed"')
def test_exchange_keeps_its_type(session: AmqpSession) -> None:
    """An exchange that is declared again with another type is refused with 406 or 530, and stays."""
    exchange = session.stage.exchange("EVENTS", type="direct")
    declare = Method.make("exchange.declare", 1, exchange=exchange, type="fanout", durable=True)
    expect_one_of(session, session.connect(), declare, ("channel.close", 406), ("connection.close", 530))
    again = session.connect("again")
    again.send(Method.make("exchange.declare", 1, exchange=exchange, type="direct", durable=True))
    again.expect("exchange.declare-ok")
