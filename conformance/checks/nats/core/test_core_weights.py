"""Mappings to several subjects. docs.nats.io, "Subject Mapping and Transforms", "Weighted mappings".

Chance decides for each message, so a share is judged by what a correct server misses once in 10**9 times: six
standard deviations.
"""

from __future__ import annotations

import math
from collections import Counter

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_users import client_of, listening
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats import Msg, Pub

VARIANT = "accounts"
MAPPING = 'docs.nats.io, "Subject Mapping and Transforms"'
MESSAGES = 1000
DEVIATIONS = 6


def _delivered(session: NatsSession, published: str, *listened: str) -> Counter[str]:
    """How many of the messages came on which subject. Each comes at most once, in its order."""
    client = listening(client_of(session, "mapper", "client"), *listened)
    client.send(*(Pub.make(published, b"%d" % number) for number in range(MESSAGES)))
    messages = [operation for operation in client.flush(10.0) if isinstance(operation, Msg)]
    numbers = [message.payload for message in messages]
    session.require(
        len(numbers) == len(set(numbers)),
        "a message came on two subjects",
        expected="each message on one",
        actual=f"{len(numbers) - len(set(numbers))} of {MESSAGES} on two",
    )
    return Counter(message.subject for message in messages)


def _require_share(session: NatsSession, found: int, share: float, what: str) -> None:
    deviation = math.sqrt(MESSAGES * share * (1 - share))
    low, high = MESSAGES * share - DEVIATIONS * deviation, MESSAGES * share + DEVIATIONS * deviation
    session.require(
        low <= found <= high,
        f"the share of {what} is another one",
        expected=f"{low:.0f} to {high:.0f} of {MESSAGES} messages",
        actual=str(found),
    )


@verifies("CORE-128", variant=VARIANT, source=f'{MAPPING}, "For A/B testing or canary releases"')
def test_messages_are_shared_by_weight(session: NatsSession) -> None:
    """80 and 20 percent of the messages go to two subjects."""
    name = session.name("foo")
    came = _delivered(session, f"{name}.weighted", f"{name}.>")
    total = came[f"{name}.v1"] + came[f"{name}.v2"]
    session.require(
        total == MESSAGES and len(came) == 2,
        "not each message goes to one of the two subjects",
        expected=f"{MESSAGES} messages on {name}.v1 and {name}.v2",
        actual=", ".join(f"{count} on {subject}" for subject, count in came.items()) or "none",
    )
    _require_share(session, came[f"{name}.v2"], 0.2, "the second subject")


@verifies("CORE-129", variant=VARIANT, source=f'{MAPPING}, "For artificial loss"')
def test_rest_of_the_weights_is_lost(session: NatsSession) -> None:
    """Of the messages of a mapping to the same subject with 50 percent the others are not delivered."""
    subject = f"lossy.{session.name('foo')}"
    _require_share(session, _delivered(session, subject, subject)[subject], 0.5, "what is delivered")
