"""AMQP: what a broker does while it is short of memory. The variant's broker raises the alarm when asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from plumbline.conformance.amqp.connection import Alarm, AmqpConnection
from plumbline.conformance.amqp.handshake import CAPABILITIES
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.test_amqp_capabilities import expect_claimed
from plumbline.conformance.outcomes import Failed
from plumbline.wire.amqp import Method

NOTIFICATIONS = 'RabbitMQ, "Blocked Connection Notifications"'
ALARMS = 'RabbitMQ, "Memory and Disk Alarms"'
VARIANT = "amqp-settings"
KNOWN_S = 5.0  # within which a broker knows that it is short of memory, or no longer
EACH_S = 0.05  # between two messages
SILENT_S = 0.3  # so long nothing comes to a publisher that waits
UNAWARE = {name: has for name, has in CAPABILITIES.items() if name != "connection.blocked"}


class _Publisher:
    """Publishes numbered messages to a queue of its own. ``confirmed``: all up to that one are."""

    def __init__(self, session: AmqpSession, label: str, capabilities: dict[str, Any] = CAPABILITIES) -> None:
        self.queue = session.stage.queue(label)
        self.bodies: list[bytes] = []
        self.confirmed = 0
        self.alarms: list[str] = []
        self._connection = session.connect(label.lower(), capabilities=capabilities)
        self._connection.call("confirm.select")

    def publish(self) -> None:
        self.bodies.append(b"m%d" % (len(self.bodies) + 1))
        message = Method.make("basic.publish", 1, routing_key=self.queue, body=self.bodies[-1])
        self._connection.send(message)

    def read(self, within: float) -> bool:
        """Whether a confirm or a notification came. Raises ``Failed`` for anything else."""
        operation = self._connection.take(within, skip=())
        if operation is None:
            return False
        if isinstance(operation, Alarm):
            self.alarms.append(operation.method)
        elif isinstance(operation, Method) and operation.method == "basic.ack":
            self.confirmed = max(self.confirmed, operation.arguments["delivery_tag"])
        else:
            raise Failed("another method came", expected="basic.ack", actual=str(operation))
        return True

    def read_all(self) -> None:
        """What is under way."""
        while self.read(SILENT_S):
            pass

    def publish_until_blocked(self) -> None:
        """A broker tells those who publish; it may still take the message that it tells them for."""
        deadline = time.monotonic() + KNOWN_S
        while not self.alarms and not self._connection.blocked:  # it may have come with connection.open-ok
            if time.monotonic() > deadline:
                raise Failed(
                    f"connection.blocked did not come within {KNOWN_S:g} s",
                    expected="connection.blocked",
                    actual=f"{self.confirmed} of {len(self.bodies)} messages were confirmed",
                )
            self.publish()
            self.read(EACH_S)
        self.read_all()

    def await_all(self, notification: str = "") -> None:
        """Until everything is confirmed, and the notification has come."""
        while self.confirmed < len(self.bodies) or (notification and notification not in self.alarms):
            if not self.read(KNOWN_S):
                raise Failed(
                    f"nothing more came for {KNOWN_S:g} s after the alarm",
                    expected=", ".join(filter(None, (f"{len(self.bodies)} confirms", notification))),
                    actual=", ".join((f"{self.confirmed} confirms", *self.alarms)),
                )


@contextmanager
def _short_of_memory(session: AmqpSession) -> Iterator[None]:
    """Publishers wait. So they do from soon on: the broker has to notice."""
    server = session.variant_server(VARIANT)
    server.raise_alarm()
    try:
        yield
    finally:
        server.end_alarm()


def _stored(reader: AmqpConnection, queue: str) -> list[bytes]:
    """What the queue has; it is empty then."""
    bodies: list[bytes] = []
    while True:
        reader.send(Method.make("basic.get", 1, queue=queue, no_ack=True))
        answer = reader.arrival(KNOWN_S, "an answer to basic.get").operation
        if answer.method != "basic.get-ok":
            return bodies
        bodies.append(answer.body)


def _require_waiting(session: AmqpSession, publisher: _Publisher, reader: AmqpConnection) -> list[bytes]:
    """What it publishes now is neither confirmed nor queued. Returns what was published before."""
    confirmed = publisher.confirmed
    publisher.publish()
    publisher.read_all()
    session.require(
        publisher.confirmed == confirmed,
        "a message was confirmed during the alarm",
        expected=f"confirms up to {confirmed}",
        actual=f"basic.ack {publisher.confirmed}",
    )
    stored = _stored(reader, publisher.queue)
    session.require(
        publisher.bodies[-1] not in stored,
        "a message that was published during the alarm is in its queue",
        expected="no such message",
        actual=repr(stored[-1:]),
    )
    return stored


@verifies("AMQP-CONN-044", "AMQP-CONN-046", source=NOTIFICATIONS, variant=VARIANT)
def test_publishers_are_notified_that_they_wait(session: AmqpSession) -> None:
    """connection.blocked comes to who publishes during an alarm, and connection.unblocked after it."""
    publisher = _Publisher(session, "NOTIFIED")
    with _short_of_memory(session):
        publisher.publish_until_blocked()
    publisher.await_all("connection.unblocked")
    session.require(
        publisher.alarms == ["connection.blocked", "connection.unblocked"],
        "the notifications are others",
        expected="connection.blocked, connection.unblocked",
        actual=", ".join(publisher.alarms),
    )


@verifies("AMQP-CONN-044", "AMQP-CONN-046", source=NOTIFICATIONS, variant=VARIANT)
def test_publishers_that_come_during_an_alarm_are_notified(session: AmqpSession) -> None:
    """A client that connects during an alarm and publishes is sent connection.blocked, too."""
    publisher = _Publisher(session, "EARLY")
    with _short_of_memory(session):
        publisher.publish_until_blocked()
        newcomer = _Publisher(session, "NEWCOMER")
        newcomer.publish_until_blocked()
    newcomer.await_all("connection.unblocked")
    publisher.await_all("connection.unblocked")


@verifies("AMQP-CONN-045", "AMQP-CONN-047", source=ALARMS, variant=VARIANT)
def test_what_is_published_during_an_alarm_comes_after_it(session: AmqpSession) -> None:
    """A message that is published during an alarm is neither confirmed nor queued; after it, it is both."""
    publisher = _Publisher(session, "LATE")
    reader = session.connect("reader")
    with _short_of_memory(session):
        publisher.publish_until_blocked()
        stored = _require_waiting(session, publisher, reader)
        publisher.publish()
    publisher.await_all()
    stored += _stored(reader, publisher.queue)
    session.require(
        stored == publisher.bodies,
        "the queue did not get what was published, each message once and in order",
        expected=repr(publisher.bodies),
        actual=repr(stored),
    )


@verifies("AMQP-CONN-048", source=NOTIFICATIONS, variant=VARIANT)
def test_who_does_not_know_the_notifications_gets_none(session: AmqpSession) -> None:
    """A client without the capability connection.blocked waits too, and is sent no notification."""
    aware, unaware = _Publisher(session, "AWARE"), _Publisher(session, "UNAWARE", UNAWARE)
    with _short_of_memory(session):
        aware.publish_until_blocked()
        for _ in range(2):
            unaware.publish()
            unaware.read_all()
    unaware.await_all()
    session.require(
        not unaware.alarms,
        "a client that does not know the notifications was sent one",
        expected="no connection.blocked and no connection.unblocked",
        actual=", ".join(unaware.alarms),
    )


def _served(consumer: AmqpConnection, method: str, body: bytes = b"") -> Method:
    """This method comes to a client that does not publish. That nothing comes is what the check is about."""
    answer = consumer.take(KNOWN_S)
    if not isinstance(answer, Method) or answer.method != method or answer.body != body:
        raise Failed(
            "a client that does not publish is not served during the alarm",
            expected=method,
            actual=str(answer or f"nothing for {KNOWN_S:g} s"),
        )
    return answer


@verifies("AMQP-CONN-049", source=ALARMS, variant=VARIANT)
def test_consumers_do_not_wait(session: AmqpSession) -> None:
    """During an alarm a connection that does not publish gets messages, and can acknowledge them."""
    publisher = _Publisher(session, "WAITS")
    queue = session.stage.queue("FULL")
    for body in (b"a", b"b"):
        session.stage.publish(queue, body)
    consumer = session.connect("consumer")
    consumer.call("basic.qos", prefetch_count=1)
    with _short_of_memory(session):
        publisher.publish_until_blocked()
        consumer.send(Method.make("basic.consume", 1, queue=queue, consumer_tag="c"))
        _served(consumer, "basic.consume-ok")
        for body in (b"a", b"b"):
            delivered = _served(consumer, "basic.deliver", body)
            consumer.send(Method.make("basic.ack", 1, delivery_tag=delivered.arguments["delivery_tag"]))
    publisher.await_all()


@verifies("AMQP-CONN-054", source=NOTIFICATIONS, variant=VARIANT)
def test_blocked_connections_are_claimed(session: AmqpSession) -> None:
    """A server that sends connection.blocked claims connection.blocked."""
    publisher = _Publisher(session, "CLAIMED")
    with _short_of_memory(session):
        publisher.publish_until_blocked()
    publisher.await_all("connection.unblocked")
    expect_claimed(session, "connection.blocked")
