"""Which queues a message reaches: bindings, messages, and the messages that each queue must have got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.wire.amqp import Method

CONFIRMED_WITHIN_S = 10.0
ANSWERED_WITHIN_S = 1.0  # a slow target gets more


def publish_confirmed(client: AmqpConnection, *messages: Method) -> None:
    """Publish on channel 1, which is put into confirm mode, and wait for the confirm of each."""
    client.call("confirm.select")
    client.send(*messages)
    missing = set(range(1, len(messages) + 1))
    while missing:
        wanted = f"confirms of {len(missing)} publishes"
        operation = client.arrival(CONFIRMED_WITHIN_S, wanted, stream=1).operation
        assert operation.method == "basic.ack", str(operation)
        tag = operation.arguments["delivery_tag"]
        missing -= set(range(1, tag + 1)) if operation.arguments["multiple"] else {tag}


def reaches_queue(client: AmqpConnection, queue: str) -> bool:
    """Whether there is a queue of this name. To ask so is no use of it, which would renew its lease.

    Channel 1 is in confirm mode. A publish is nacked by a queue that is deleted meanwhile.
    """
    client.send(Method.make("basic.publish", 1, routing_key=queue, mandatory=True, body=b"there?"))
    wanted = "basic.ack or basic.nack, or basic.return before it"
    answer = client.arrival(ANSWERED_WITHIN_S, wanted, stream=1).operation
    if answer.method == "basic.return":
        client.expect("basic.ack", 1)
        return False
    assert answer.method in ("basic.ack", "basic.nack"), str(answer)
    return bool(answer.method == "basic.ack")


def taken_from(client: AmqpConnection, queue: str, channel: int = 2) -> list[str]:
    """The bodies of all messages of ``queue``, in its order; they are settled."""
    found: list[str] = []
    while True:
        client.send(Method.make("basic.get", channel, queue=queue, no_ack=True))
        answer = client.arrival(
            ANSWERED_WITHIN_S, "basic.get-ok or basic.get-empty", stream=channel
        ).operation
        if answer.method != "basic.get-ok":
            assert answer.method == "basic.get-empty", str(answer)
            return found
        found.append(answer.body.decode())


def require_queues(
    session: AmqpSession,
    client: AmqpConnection,
    expected: Mapping[str, Sequence[str]],
    names: Mapping[str, str],
) -> None:
    """Each queue has these bodies and no others. ``names``: of the queues, by the keys of ``expected``."""
    found = {label: taken_from(client, names[label]) for label in expected}
    wrong = [label for label in expected if found[label] != list(expected[label])]
    session.require(
        not wrong,
        f"other messages than expected in: {'; '.join(wrong)}",
        expected="; ".join(f"{label}: {' '.join(expected[label]) or 'none'}" for label in wrong),
        actual="; ".join(f"{label}: {' '.join(found[label]) or 'none'}" for label in wrong),
    )


def require_routes(session: AmqpSession, kind: str, keys: str, routes: Mapping[str, str]) -> None:
    """Of messages with these routing keys each binding key leads those to its queue that ``routes`` has.

    Keys are words with blanks between; ``-`` is the empty key. A message's body is its key.
    """
    exchange = session.stage.exchange("EVENTS", type=kind)
    names = {}
    for number, binding in enumerate(routes):
        names[binding] = session.stage.queue(f"Q{number}")
        session.stage.bind(names[binding], exchange, _key(binding))
    client = session.connect()
    publish_confirmed(client, *(publish(exchange, _key(key), key) for key in keys.split()))
    require_queues(session, client, {binding: found.split() for binding, found in routes.items()}, names)


def publish(exchange: str, routing_key: str, body: str, **arguments: Any) -> Method:
    """basic.publish on channel 1."""
    return Method.make(
        "basic.publish", 1, exchange=exchange, routing_key=routing_key, body=body.encode(), **arguments
    )


def _key(word: str) -> str:
    return "" if word == "-" else word
