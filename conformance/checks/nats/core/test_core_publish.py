"""What was published arrives as it was published. docs.nats.io, "Client Protocol", PUB; "Core NATS"."""

from __future__ import annotations

import random

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats import Msg, Operation, Pub, Sub

MESSAGES = 200
LONGEST = 600


@verifies("CORE-100", source='docs.nats.io, "Core NATS"')
def test_messages_arrive_in_order(session: NatsSession) -> None:
    """Messages of one publisher on one subject reach every subscription in the order they were published."""
    subject = session.name("foo")
    publisher, other = session.connect("publisher"), session.connect("other")
    publisher.send(Sub.make(subject, 1))
    other.send(Sub.make(subject, 2), Sub.make(f"{subject}.*", 3))
    other.flush()
    # Of many sizes, since a server may treat short and long messages in different ways.
    chance = random.Random(1)
    sent = [str(number).encode().ljust(chance.randrange(4, LONGEST), b".") for number in range(MESSAGES)]
    for number, payload in enumerate(sent):
        publisher.send(Pub.make(subject if number % 2 else f"{subject}.bar", payload))
    to_itself, to_other = publisher.flush(), other.flush()
    require_order(session, "the publisher's own subscription", received(to_itself, "1"), sent[1::2])
    require_order(session, "another connection's subscription", received(to_other, "2"), sent[1::2])
    require_order(session, "a wildcard subscription", received(to_other, "3"), sent[0::2])


def received(operations: list[Operation], sid: str) -> list[bytes]:
    """The payloads that came for one subscription."""
    return [message.payload for message in operations if isinstance(message, Msg) and message.sid == sid]


def require_order(session: NatsSession, what: str, found: list[bytes], sent: list[bytes]) -> None:
    """``found`` is what was sent, in the same order."""
    session.require(
        found == sent,
        f"{what} does not get what was published in that order",
        expected=shown(sent),
        actual=shown(found),
    )


def shown(payloads: list[bytes]) -> str:
    """The numbers that payloads begin with."""
    return " ".join(payload.rstrip(b".").decode(errors="replace") for payload in payloads)
