"""What a server may leave out, if it says so: connection error 540.

RabbitMQ, "AMQP 0-9-1 Compatibility and Conformance".
"""

from __future__ import annotations

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.wire.amqp import Method

SOURCE = 'RabbitMQ, "AMQP 0-9-1 Compatibility and Conformance"'
NOT_IMPLEMENTED = 540
WITHIN_S = 5.0


def refused(
    session: AmqpSession, client: AmqpConnection, method: Method, implemented: tuple[str, ...]
) -> None:
    """``method`` is refused with 540 and its own ids. Raises ``Unsupported`` if it is carried out."""
    client.send(method)
    wanted = f"connection.close 540, or one of {', '.join(implemented)}"
    answer = client.arrival(WITHIN_S, wanted, stream=method.channel).operation
    if answer.method in implemented:
        raise Unsupported(f"the server implements it: {answer}")
    ids = (method.shape.class_id, method.shape.method_id)
    found = {name: answer.arguments.get(name) for name in ("reply_code", "class_id", "method_id")}
    expected = {"reply_code": NOT_IMPLEMENTED, "class_id": ids[0], "method_id": ids[1]}
    if answer.method != "connection.close" or found != expected:
        client.mark_offending(answer)
        raise Failed("refused in another way", expected=f"connection.close {expected}", actual=str(answer))
    session.count_observation()
    client.send(Method.make("connection.close-ok"))


@verifies("AMQP-QOS-017", "AMQP-ERRORS-013", source=SOURCE)
def test_prefetch_size_is_refused_if_it_is_not_implemented(session: AmqpSession) -> None:
    """A prefetch_size other than 0 is carried out, or refused with connection error 540."""
    method = Method.make("basic.qos", 1, prefetch_size=1024)
    refused(session, session.connect(), method, ("basic.qos-ok",))


@verifies("AMQP-RECOVER-006", "AMQP-ERRORS-013", source=SOURCE)
def test_recover_without_requeue_is_refused_if_it_is_not_implemented(session: AmqpSession) -> None:
    """basic.recover without requeue is carried out, or refused with connection error 540."""
    method = Method.make("basic.recover", 1, requeue=False)
    refused(session, session.connect(), method, ("basic.recover-ok",))


@verifies("AMQP-PUB-010", "AMQP-ERRORS-013", source=SOURCE)
def test_immediate_is_refused_if_it_is_not_implemented(session: AmqpSession) -> None:
    """A publish with immediate is carried out, or refused with connection error 540."""
    queue = session.stage.queue("ORDERS")
    method = Method.make("basic.publish", 1, routing_key=queue, immediate=True, body=b"m1")
    refused(session, session.connect(), method, ("basic.return",))
