"""What a user may not do is refused, and the connection goes on. docs.nats.io, "Authorization".

The variant's user may publish and subscribe to *.ok.> and permitted.*, but not to *.ok.bad and
permitted.secret; a second user may do all, and a third may subscribe to *.q in some queue groups.
"""

from __future__ import annotations

import re
from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_refusals import goes_on, hears_nothing, refused
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Untestable
from plumbline.conformance.variants import variants
from plumbline.wire.nats import HMsg, HPub, Msg, Pub, Sub

VARIANT = "permissions"
ERRORS = 'docs.nats.io, "Client Protocol", +OK/ERR'
AUTHORIZATION = 'docs.nats.io, "Authorization"'
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"


def publish_violation(subject: str) -> str:
    """The reason for a refused PUB: the document has the subject bare, servers have it in double quotes."""
    return f'Permissions Violation for Publish to "?{re.escape(subject)}"?'


def subscription_violation(subject: str) -> str:
    """The reason for a refused SUB without a queue group, likewise."""
    return f'Permissions Violation for Subscription to "?{re.escape(subject)}"?'


def unlimited(session: NatsSession) -> NatsConnection:
    """A connection of the user who may do all. Raises ``Untestable`` if the server does not know the user."""
    credentials: dict[str, Any] = dict(variants()[VARIANT].credentials["free"])
    try:
        return session.connect("free", **credentials)
    except Failed as error:
        message = f"the variant {VARIANT} has no user {credentials['user']!r}"
        raise Untestable(message, actual=error.actual) from None


def listening(session: NatsSession, *subjects: str) -> NatsConnection:
    """A connection of the unlimited user with a subscription to each subject; its sids count from 1."""
    connection = unlimited(session)
    connection.send(*(Sub.make(subject, sid) for sid, subject in enumerate(subjects, 1)))
    connection.flush()
    return connection


@verifies("CORE-051", variant=VARIANT, source=ERRORS)
def test_publish_without_permission_is_refused(session: NatsSession) -> None:
    """PUB without permission is refused by name of its subject and not delivered."""
    subject = f"{session.name('foo')}.no"
    listener = listening(session, subject)
    connection = session.connect()
    connection.send(Pub.make(subject, b"x"))
    refused(connection, publish_violation(subject))
    goes_on(connection)
    hears_nothing(session, listener)


@verifies("CORE-052", variant=VARIANT, source=AUTHORIZATION)
def test_denial_of_publishing_overrides_permission(session: NatsSession) -> None:
    """A subject that publish permissions allow and deny is denied; what they only allow is delivered."""
    bad, good = f"{session.name('foo')}.ok.bad", f"{session.name('foo')}.ok.good"
    listener = listening(session, bad, good)
    connection = session.connect()
    connection.send(Pub.make(bad, b"x"), Pub.make(good, b"y"))
    refused(connection, publish_violation(bad))
    goes_on(connection)
    listener.expect(Msg, subject=good, payload=b"y")
    hears_nothing(session, listener)


@verifies("CORE-053", variant=VARIANT, source=ERRORS)
def test_subscription_without_permission_is_refused(session: NatsSession) -> None:
    """SUB without permission is refused by name of its subject and receives nothing."""
    subject = f"{session.name('foo')}.no"
    connection, publisher = session.connect(), unlimited(session)
    connection.send(Sub.make(subject, 1))
    refused(connection, subscription_violation(subject))
    goes_on(connection)
    publisher.send(Pub.make(subject, b"x"))
    publisher.flush()
    hears_nothing(session, connection)


@verifies("CORE-054", variant=VARIANT, source=AUTHORIZATION)
def test_refused_queue_subscription_names_its_group(session: NatsSession) -> None:
    """The refusal of a SUB with a queue group names subject and group."""
    subject, group = f"{session.name('foo')}.no", session.name("group")
    connection = session.connect()
    connection.send(Sub.make(subject, 1, group))
    refused(connection, f"{subscription_violation(subject)}.*\\b{re.escape(group)}\\b.*")
    goes_on(connection)


@verifies("CORE-055", variant=VARIANT, source=AUTHORIZATION)
def test_denied_messages_are_filtered_at_delivery(session: NatsSession) -> None:
    """A permitted wildcard SUB does not receive messages of a literal subject that is denied."""
    # Literal subjects, which other runs may use too: the payloads are this session's own.
    bad, good = session.name("secret").encode(), session.name("open").encode()
    connection, publisher = session.connect(), unlimited(session)
    connection.send(Sub.make("permitted.*", 1))
    goes_on(connection)
    publisher.send(
        Pub.make("permitted.secret", bad),
        HPub.make("permitted.secret", HEADERS, bad),
        Pub.make("permitted.open", good),
        HPub.make("permitted.open", HEADERS, good),
    )
    publisher.flush()
    messages = [operation for operation in connection.flush() if isinstance(operation, Msg | HMsg)]
    came = [message for message in messages if message.payload in (bad, good)]
    session.require(
        [message.payload for message in came] == [good, good],
        "the wrong messages are delivered",
        expected="permitted.open, with and without headers, and not permitted.secret",
        actual=" ".join(message.subject for message in came) or "none",
    )


@verifies("CORE-114", variant=VARIANT, source='docs.nats.io, "Authorization", "Queue Permissions"')
def test_queue_permissions_have_wildcards(session: NatsSession) -> None:
    """Only the queue groups v1, v1.> and *.dev are allowed, without *.prod, which is denied."""
    subject = f"{session.name('foo')}.q"
    credentials: dict[str, Any] = dict(variants()[VARIANT].credentials["queues"])
    connection, publisher = session.connect(**credentials), unlimited(session)
    for sid, group in enumerate(("v2", "v1x", "dev", "a.b.dev", "v1.prod"), 1):
        connection.send(Sub.make(subject, sid, group))
        refused(connection, f"{subscription_violation(subject)}.*")
    connection.send(Sub.make(subject, 9))  # a subscription in no group
    refused(connection, subscription_violation(subject))
    allowed = {str(sid): group for sid, group in enumerate(("v1", "v1.east", "v1.east.new", "a.dev"), 10)}
    connection.send(*(Sub.make(subject, sid, group) for sid, group in allowed.items()))
    goes_on(connection)
    publisher.send(Pub.make(subject, b"x"))
    publisher.flush()
    came = [operation.sid for operation in connection.flush() if isinstance(operation, Msg)]
    session.require(
        sorted(came) == sorted(allowed),
        "not each of the allowed groups gets the message",
        expected=", ".join(allowed.values()),
        actual=", ".join(allowed.get(sid, sid) for sid in came) or "none",
    )
