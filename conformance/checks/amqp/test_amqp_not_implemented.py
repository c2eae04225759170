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
    ids = (method.shape.class_id, method.shape.method_id)
    expected = {"reply_code": NOT_IMPLEMENTED, "class_id": ids[0], "method_id": ids[1]}

    def judge(answer: Method) -> None:
        found = {name: answer.arguments.get(name) for name in expected}
        if answer.method not in implemented and (answer.method != "connection.close" or found != expected):
            client.mark_offending(answer)
            raise Failed(
                "refused in another way", expected=f"connection.close {expected}", actual=str(answer)
            )

    client.send(method)
    wanted = f"connection.close 540, or one of {', '.join(implemented)}"
    answer = client.arrival(WITHIN_S, wanted, stream=method.channel, judge=judge).operation
    if answer.method in implemented:
        raise Unsupported(f"the server implements it: {answer}")
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


def _answer(client: AmqpConnection, method: Method, wanted: str) -> Method | None:
    """What comes after ``method``; None if it is refused with 540."""
    client.send(method)
    answer: Method = client.arrival(WITHIN_S, f"{wanted}, or connection.close 540").operation
    if answer.method == "connection.close" and answer.arguments["reply_code"] == NOT_IMPLEMENTED:
        client.send(Method.make("connection.close-ok"))
        return None
    return answer


def _failed(client: AmqpConnection, what: str, wanted: str, actual: Method | None) -> Failed:
    if actual is not None:
        client.mark_offending(actual)
    return Failed(what, expected=f"{wanted}, or connection.close 540", actual=str(actual or "nothing"))


@verifies("AMQP-RECOVER-010", source="AMQP 0-9-1 XML, basic.recover, parameter requeue")
def test_recover_without_requeue_is_for_the_same_consumer(session: AmqpSession) -> None:
    """basic.recover and recover-async without requeue are refused with 540, or the message goes to the
    consumer that had it, though another one has room and waited longer."""
    for method in ("basic.recover", "basic.recover-async"):
        queue = session.stage.queue(method.upper())
        client = session.connect(method)
        client.call("basic.qos", 1, prefetch_count=1)
        client.call("basic.consume", 1, queue=queue, consumer_tag="had-it")
        session.stage.publish(queue, b"m1")
        client.expect("basic.deliver", 1, body=b"m1")
        session.stage.publish(queue, b"m2")
        other = session.connect(f"{method} other")
        other.call("basic.consume", 1, queue=queue, consumer_tag="other")
        other.expect("basic.deliver", 1, body=b"m2")
        wanted = "[1] basic.deliver consumer_tag=had-it body=m1"
        answer = _answer(client, Method.make(method, 1, requeue=False), wanted)
        if answer is None:
            session.count_observation()
            continue
        if method == "basic.recover" and answer.method == "basic.recover-ok":
            answer = client.take(WITHIN_S)
        if (
            not isinstance(answer, Method)
            or answer.method != "basic.deliver"
            or answer.arguments["consumer_tag"] != "had-it"
            or answer.body != b"m1"
        ):
            raise _failed(client, f"{method} without requeue does not redeliver", wanted, answer)
        session.count_observation()


@verifies("AMQP-QOS-024", source="AMQP 0-9-1 XML, basic.qos, parameter prefetch-size")
def test_prefetch_size_is_kept_or_refused(session: AmqpSession) -> None:
    """A prefetch_size of 150 octets is refused with 540, or of messages with 100 octets one is sent ahead."""
    queue = session.stage.queue("ORDERS")
    for letter in (b"a", b"b"):
        session.stage.publish(queue, letter * 100)
    client = session.connect()
    answer = _answer(client, Method.make("basic.qos", 1, prefetch_size=150), "basic.qos-ok")
    if answer is None:
        session.count_observation()
        return
    if answer.method != "basic.qos-ok":
        raise _failed(client, "basic.qos is answered in another way", "basic.qos-ok", answer)
    client.send(Method.make("basic.consume", 1, queue=queue, consumer_tag="c"))
    client.expect("basic.consume-ok", 1)
    first = client.expect("basic.deliver", 1, body=b"a" * 100)
    client.expect_silence(for_s=0.3)
    client.send(Method.make("basic.ack", 1, delivery_tag=first.arguments["delivery_tag"]))
    client.expect("basic.deliver", 1, body=b"b" * 100)
