"""What a user may not do is refused, and the connection goes on. docs.nats.io, "Authorization".

The variant's user may publish and subscribe to *.ok.> and permitted.*, but not to *.ok.bad and
permitted.secret; a second user may do all, a third may subscribe to *.q in some queue groups, and two
may answer what they get there.
"""

from __future__ import annotations

import re
import time

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_refusals import (
    WITHIN_S,
    goes_on,
    hears_nothing,
    judged,
    publish_violation,
    refused,
    subscription_violation,
)
from plumbline.conformance.checks.nats.core.core_users import client_of, listening, next_message
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Inconclusive
from plumbline.wire.nats import HMsg, HPub, Msg, Ping, Pong, Pub, Sub

VARIANT = "permissions"
ERRORS = 'docs.nats.io, "Client Protocol", +OK/ERR'
AUTHORIZATION = 'docs.nats.io, "Authorization"'
RESPONSES = f'{AUTHORIZATION}, "Allow Responses Map"'
RESPONSES_EXPIRE_S = 1.0  # of the user "brief"
LATE = 1.3
ATTEMPTS = 3
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"


@verifies("CORE-051", variant=VARIANT, source=ERRORS)
def test_publish_without_permission_is_refused(session: NatsSession) -> None:
    """PUB without permission is refused by name of its subject and not delivered."""
    subject = f"{session.name('foo')}.no"
    listener = listening(client_of(session, "free"), subject)
    connection = session.connect()
    connection.send(Pub.make(subject, b"x"))
    refused(connection, publish_violation(subject))
    goes_on(connection)
    hears_nothing(session, listener)


@verifies("CORE-145", variant=VARIANT, source=ERRORS)
def test_publish_with_headers_without_permission_is_refused(session: NatsSession) -> None:
    """HPUB without permission, or to what is denied, is refused by name of its subject and not delivered."""
    foo = session.name("foo")
    no, bad, good = f"{foo}.no", f"{foo}.ok.bad", f"{foo}.ok.good"
    listener = listening(client_of(session, "free"), no, bad, good)
    connection = session.connect()
    connection.send(*(HPub.make(subject, HEADERS, b"x") for subject in (no, bad, good)))
    refused(connection, publish_violation(no))
    refused(connection, publish_violation(bad))
    goes_on(connection)
    next_message(listener, good, b"x")
    hears_nothing(session, listener)


@verifies("CORE-052", variant=VARIANT, source=AUTHORIZATION)
def test_denial_of_publishing_overrides_permission(session: NatsSession) -> None:
    """A subject that publish permissions allow and deny is denied; what they only allow is delivered."""
    bad, good = f"{session.name('foo')}.ok.bad", f"{session.name('foo')}.ok.good"
    listener = listening(client_of(session, "free"), bad, good)
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
    connection, publisher = session.connect(), client_of(session, "free")
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
    connection, publisher = session.connect(), client_of(session, "free")
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


@verifies("CORE-055", variant=VARIANT, source=AUTHORIZATION)
def test_denied_messages_are_filtered_in_queue_groups(session: NatsSession) -> None:
    """A permitted wildcard SUB in a queue group does not receive messages of a subject that is denied."""
    bad, good = session.name("secret").encode(), session.name("open").encode()
    connection, publisher = session.connect(), client_of(session, "free")
    connection.send(Sub.make("permitted.*", 1, session.name("group")))
    goes_on(connection)
    publisher.send(Pub.make("permitted.secret", bad), Pub.make("permitted.open", good))
    publisher.flush()
    messages = [operation for operation in connection.flush() if isinstance(operation, Msg)]
    came = [message.payload for message in messages if message.payload in (bad, good)]
    session.require(
        came == [good],
        "the wrong messages are delivered",
        expected="permitted.open, and not permitted.secret",
        actual=" ".join(message.subject for message in messages) or "none",
    )


@verifies("CORE-114", variant=VARIANT, source='docs.nats.io, "Authorization", "Queue Permissions"')
def test_queue_permissions_have_wildcards(session: NatsSession) -> None:
    """Only the queue groups v1, v1.> and *.dev are allowed, without *.prod, which is denied."""
    subject = f"{session.name('foo')}.q"
    connection, publisher = client_of(session, "queues"), client_of(session, "free")
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


def _answering(session: NatsSession, role: str) -> tuple[NatsConnection, NatsConnection, str]:
    """A service to which the free user has made a request, that user, and the reply subject."""
    subject, reply = f"{session.name('foo')}.q", f"{session.name('bar')}.1"
    service, client = listening(client_of(session, role), subject), client_of(session, "free")
    listening(client, f"{session.name('bar')}.*", f"{session.name('foo')}.x")
    client.send(Pub.make(subject, b"q", reply))
    client.flush()
    next_message(service, subject, b"q")
    return service, client, reply


@verifies("CORE-131", variant=VARIANT, source=RESPONSES)
def test_service_may_answer_once(session: NatsSession) -> None:
    """allow_responses lets a user answer each request once, and nothing else."""
    service, client, reply = _answering(session, "responder")
    other = f"{reply[:-1]}2"
    service.send(Pub.make(other, b"a0"), Pub.make(reply, b"a1"), Pub.make(reply, b"a2"))
    refused(service, publish_violation(other))
    refused(service, publish_violation(reply))
    goes_on(service)
    next_message(client, reply, b"a1")
    hears_nothing(session, client)
    client.send(Pub.make(f"{session.name('foo')}.q", b"q2", other))
    client.flush()
    next_message(service, f"{session.name('foo')}.q", b"q2")
    service.send(Pub.make(other, b"a3"))
    goes_on(service)
    next_message(client, other, b"a3")


@verifies("CORE-131", variant=VARIANT, source=RESPONSES)
def test_service_may_answer_a_request_with_headers(session: NatsSession) -> None:
    """allow_responses lets a user answer a request with headers once, with or without headers."""
    service, client, reply = _answering(session, "responder")
    service.send(HPub.make(reply, HEADERS, b"a1"), Pub.make(reply, b"a2"))
    refused(service, publish_violation(reply))
    next_message(client, reply, b"a1")
    other = f"{reply[:-1]}2"
    client.send(HPub.make(f"{session.name('foo')}.q", HEADERS, b"q2", other))
    client.flush()
    next_message(service, f"{session.name('foo')}.q", b"q2")
    service.send(Pub.make(other, b"a3"))
    goes_on(service)
    next_message(client, other, b"a3")


@verifies("CORE-131", variant=VARIANT, source=RESPONSES)
def test_service_may_answer_so_often(session: NatsSession) -> None:
    """With max of 2 there are two answers; what the publish permission allows is no answer."""
    service, client, reply = _answering(session, "brief")
    allowed = f"{session.name('foo')}.x"
    service.send(Pub.make(allowed, b"m"), *(Pub.make(reply, b"a%d" % number) for number in (1, 2, 3)))
    refused(service, publish_violation(reply))
    goes_on(service)
    for subject, payload in ((allowed, b"m"), (reply, b"a1"), (reply, b"a2")):
        next_message(client, subject, payload)
    hears_nothing(session, client)


@verifies("CORE-132", variant=VARIANT, source=RESPONSES)
def test_permission_to_answer_expires(session: NatsSession) -> None:
    """With expires of 1s an answer after half a second is delivered, and one after more than a second not."""
    for _ in range(ATTEMPTS):
        began = time.monotonic()
        service, client, reply = _answering(session, "brief")
        delivered = time.monotonic()
        session.pause(RESPONSES_EXPIRE_S / 2)
        is_refused = _is_refused(service, reply, b"a1")
        if not is_refused or time.monotonic() - began < RESPONSES_EXPIRE_S:
            break
    else:
        raise Inconclusive(f"no answer left this machine within {RESPONSES_EXPIRE_S:g} s of its request")
    session.require(
        not is_refused, "refused too early", expected="a1 is delivered", actual=publish_violation(reply)
    )
    next_message(client, reply, b"a1")
    session.pause(delivered + LATE * RESPONSES_EXPIRE_S - time.monotonic())
    session.require(
        _is_refused(service, reply, b"a2"), "not refused", expected=publish_violation(reply), actual="PONG"
    )
    hears_nothing(session, client)


def _is_refused(service: NatsConnection, subject: str, payload: bytes) -> bool:
    """Whether a publish is, in the words of a publish violation."""
    service.send(Pub.make(subject, payload), Ping.make())
    operation = service.arrival(WITHIN_S, "PONG or -ERR").operation
    if isinstance(operation, Pong):
        return False
    judged(service, operation, publish_violation(subject))
    service.expect(Pong)
    return True
