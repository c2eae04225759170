"""Queue groups: one member of each group gets a message. docs.nats.io, "Queue Groups"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats import Msg, Operation, Pub, Sub, Unsub

MESSAGES = 40


def numbered(subject: str, count: int) -> list[Pub]:
    """Messages whose payloads are 0, 1, 2 and so on."""
    return [Pub.make(subject, str(number).encode()) for number in range(count)]


def payloads(operations: Iterable[Operation], sid: str) -> list[int]:
    """The numbers that came for one subscription."""
    return [int(message.payload) for message in operations if isinstance(message, Msg) and message.sid == sid]


def published(session: NatsSession, messages: list[Pub], to: list[NatsConnection]) -> list[list[Operation]]:
    """Publish on a connection of its own; what each of ``to`` got."""
    for member in to:
        member.flush()
    publisher = session.connect("publisher")
    publisher.send(*messages)
    publisher.flush()
    return [member.flush() for member in to]


def require_each_once(session: NatsSession, what: str, numbers: list[int], count: int) -> None:
    """``numbers`` are 0 to ``count`` - 1, each once, in any order."""
    twice = [number for number, times in Counter(numbers).items() if times > 1]
    lost = sorted(set(range(count)) - set(numbers))
    session.require(
        not twice and not lost,
        f"{what} does not get each message once",
        expected=f"{count} messages, each once",
        actual=f"{len(numbers)} messages; more than once: {twice}; never: {lost}",
    )


@verifies("CORE-095", source='docs.nats.io, "Client Protocol", SUB')
def test_one_member_of_each_group_and_every_other_subscriber(session: NatsSession) -> None:
    """Each message goes to one member of each queue group, and to every subscription without one."""
    subject, first, second = session.name("foo"), session.name("first"), session.name("second")
    a, b = session.connect("a"), session.connect("b")
    a.send(Sub.make(subject, 1, first), Sub.make(subject, 2, second), Sub.make(subject, 3))
    b.send(Sub.make(subject, 1, first), Sub.make(subject, 2, second), Sub.make(subject, 3))
    to_a, to_b = published(session, numbered(subject, MESSAGES), [a, b])
    require_each_once(session, "the first group", payloads(to_a, "1") + payloads(to_b, "1"), MESSAGES)
    require_each_once(session, "the second group", payloads(to_a, "2") + payloads(to_b, "2"), MESSAGES)
    require_each_once(session, "the plain subscription of a", payloads(to_a, "3"), MESSAGES)
    require_each_once(session, "the plain subscription of b", payloads(to_b, "3"), MESSAGES)


@verifies("CORE-095", source='docs.nats.io, "Client Protocol", SUB')
def test_members_of_one_connection(session: NatsSession) -> None:
    """Two members of a queue group on the same connection share its messages like any others."""
    subject, group = session.name("foo"), session.name("group")
    both = session.connect()
    both.send(Sub.make(subject, 1, group), Sub.make(subject, 2, group))
    [came] = published(session, numbered(subject, MESSAGES), [both])
    require_each_once(session, "the group", payloads(came, "1") + payloads(came, "2"), MESSAGES)


@verifies("CORE-095", source='docs.nats.io, "Queue Groups"')
def test_group_is_its_name(session: NatsSession) -> None:
    """Members with the same name are one group, whatever their subjects; names differ in case."""
    prefix, group = session.name("foo"), session.name("group")
    a, b = session.connect("a"), session.connect("b")
    a.send(Sub.make(f"{prefix}.bar", 1, group), Sub.make(f"{prefix}.bar", 2, group.swapcase()))
    b.send(Sub.make(f"{prefix}.*", 1, group))
    to_a, to_b = published(session, numbered(f"{prefix}.bar", MESSAGES), [a, b])
    require_each_once(session, "the group", payloads(to_a, "1") + payloads(to_b, "1"), MESSAGES)
    require_each_once(session, "the group in another case", payloads(to_a, "2"), MESSAGES)


@verifies("CORE-095", source='docs.nats.io, "Queue Groups"')
def test_members_that_have_gone(session: NatsSession) -> None:
    """When members have left, by UNSUB or with their connection, the others get all messages."""
    subject, group = session.name("foo"), session.name("group")
    stays, leaves, lost = session.connect("stays"), session.connect("leaves"), session.connect("lost")
    for member in (stays, leaves, lost):
        member.send(Sub.make(subject, 1, group))
        member.flush()
    leaves.send(Unsub.make(1))
    lost.close()
    to_stays, to_leaves = published(session, numbered(subject, MESSAGES), [stays, leaves])
    require_each_once(session, "the group", payloads(to_stays, "1") + payloads(to_leaves, "1"), MESSAGES)


@verifies("CORE-094", "CORE-095", source='docs.nats.io, "Client Protocol", CONNECT')
def test_own_messages_go_to_other_members(session: NatsSession) -> None:
    """Without echo a member of a queue group gets none of its own messages, and the others get all."""
    subject, group = session.name("foo"), session.name("group")
    quiet, other = session.connect("quiet", echo=False), session.connect("other")
    for member in (quiet, other):
        member.send(Sub.make(subject, 1, group))
        member.flush()
    quiet.send(*numbered(subject, MESSAGES))
    require_each_once(session, "the group", payloads(quiet.flush(), "1"), 0)
    require_each_once(session, "the other member", payloads(other.flush(), "1"), MESSAGES)


@verifies("CORE-096", source='docs.nats.io, "Queue Groups"')
def test_members_of_one_connection_share(session: NatsSession) -> None:
    """Of 40 messages to a queue group, each of two members on one connection receives some."""
    subject, group = session.name("foo"), session.name("group")
    both = session.connect()
    both.send(Sub.make(subject, 1, group), Sub.make(subject, 2, group))
    [came] = published(session, numbered(subject, MESSAGES), [both])
    counts = [len(payloads(came, sid)) for sid in ("1", "2")]
    session.require(
        all(counts),
        "one member got everything",
        expected="some messages to each member",
        actual=f"{counts[0]} to the first, {counts[1]} to the second",
    )


@verifies("CORE-096", source='docs.nats.io, "Queue Groups"')
def test_members_share_the_messages(session: NatsSession) -> None:
    """Of 40 messages to a queue group, each of two members receives some."""
    subject, group = session.name("foo"), session.name("group")
    a, b = session.connect("a"), session.connect("b")
    a.send(Sub.make(subject, 1, group))
    b.send(Sub.make(subject, 1, group))
    to_a, to_b = published(session, numbered(subject, MESSAGES), [a, b])
    # A fair server leaves one of two members without any of 40 messages once in 5e11 runs.
    session.require(
        to_a and to_b,
        "one member got everything",
        expected="some messages to each member",
        actual=f"{len(to_a)} to a, {len(to_b)} to b",
    )


@verifies("CORE-097", source='docs.nats.io, "Client Protocol", UNSUB')
def test_limited_member_leaves_the_rest_to_others(session: NatsSession) -> None:
    """A member with an UNSUB limit gets no more than that, and the others get the rest."""
    subject, group = session.name("foo"), session.name("group")
    limited, other = session.connect("limited"), session.connect("other")
    limited.send(Sub.make(subject, 1, group), Unsub.make(1, 3))
    other.send(Sub.make(subject, 1, group))
    to_limited, to_other = published(session, numbered(subject, MESSAGES), [limited, other])
    session.require(
        len(payloads(to_limited, "1")) <= 3,
        "the limit is exceeded",
        expected="at most 3 messages to the limited member",
        actual=str(len(to_limited)),
    )
    require_each_once(session, "the group", payloads(to_limited, "1") + payloads(to_other, "1"), MESSAGES)
