"""Defects in subscriptions: matching, UNSUB, echo, queue groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plumbline.reference_broker.nats.connection import Connection, Subscription
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.routing import Message, Target
from plumbline.reference_broker.nats.subjects import ANY_TAIL, covers
from plumbline.wire.nats import Sub, Unsub


@defect("sid-must-be-a-number", breaks=("CORE-099",), summary="SUB with a sid that is no number is refused.")
def _(broker: Broker) -> None:
    original = broker.subscribed

    def subscribed(connection: Connection, operation: Sub, now: int) -> None:
        if operation.args[-1].isdigit():
            original(connection, operation, now)
        else:
            broker.complain(connection, "Invalid Sid")

    replace(broker, "subscribed", subscribed)


@defect(
    "sid-in-use-is-replaced",
    breaks=("CORE-093",),
    summary="SUB with a sid in use ends the subscription that has it.",
)
def _(broker: Broker) -> None:
    original = broker.subscribed

    def subscribed(connection: Connection, operation: Sub, now: int) -> None:
        standing = connection.subscriptions.get(operation.args[-1])
        if standing is not None:
            broker.router.remove(standing)
        original(connection, operation, now)

    replace(broker, "subscribed", subscribed)


def _not_matching(broker: Broker, unless: Callable[[bytes, bytes], bool]) -> None:
    original = broker.router.matching
    replace(
        broker.router,
        "matching",
        lambda subject: [one for one in original(subject) if not unless(subject, one.subject)],
    )


@defect(
    "full-wildcard-matches-one-token",
    breaks=("CORE-083",),
    summary="A subscription on > alone gets messages on subjects of one token only.",
)
def _(broker: Broker) -> None:
    _not_matching(
        broker, lambda subject, pattern: pattern == ANY_TAIL and b"." in subject and subject[0] not in b"$_"
    )


@defect(
    "full-wildcard-misses-reserved-subjects",
    breaks=("CORE-087",),
    summary="A subscription on > alone gets no messages on subjects that begin with $ or _.",
)
def _(broker: Broker) -> None:
    _not_matching(broker, lambda subject, pattern: pattern == ANY_TAIL and subject[0] in b"$_")


def _matching_too(broker: Broker, also: Callable[[bytes], list[Subscription]]) -> None:
    """More subscriptions match."""
    original = broker.router.matching
    replace(broker.router, "matching", lambda subject: original(subject) + also(subject))
    replace(broker.router, "route", broker.router.find_route)  # remembers too little for such rules


@defect(
    "full-wildcard-matches-no-token",
    breaks=("CORE-084",),
    summary="A subscription on foo.> gets messages on foo.",
)
def _(broker: Broker) -> None:
    def also(subject: bytes) -> list[Subscription]:
        pattern = subject + b".>"
        return [one for one in broker.router.subscriptions.match(subject + b".x") if one.subject == pattern]

    _matching_too(broker, also)


@defect(
    "asterisk-matches-two-tokens",
    breaks=("CORE-085",),
    summary="A subscription on foo.* gets messages on foo.bar.baz.",
)
def _(broker: Broker) -> None:
    def also(subject: bytes) -> list[Subscription]:
        shorter = subject.rpartition(b".")[0]
        return [one for one in broker.router.subscriptions.match(shorter) if one.subject.endswith(b".*")]

    _matching_too(broker, also)


@defect(
    "subjects-are-case-insensitive",
    breaks=("CORE-086",),
    summary="A subscription gets messages on its subject in any case.",
)
def _(broker: Broker) -> None:
    def also(subject: bytes) -> list[Subscription]:
        return [
            one
            for connection in broker.connections.values()
            for one in connection.subscriptions.values()
            if covers(one.subject.lower(), subject.lower()) and not covers(one.subject, subject)
        ]

    _matching_too(broker, also)


@defect(
    "unsub-of-an-unknown-sid-is-an-error",
    breaks=("CORE-017",),
    summary="UNSUB of a sid without subscription gets -ERR.",
)
def _(broker: Broker) -> None:
    original = broker.unsubscribed

    def unsubscribed(connection: Connection, operation: Unsub) -> None:
        if operation.args[0] in connection.subscriptions:
            original(connection, operation)
        else:
            broker.complain(connection, "Invalid Subscription")

    replace(broker, "unsubscribed", unsubscribed)


def _limit(broker: Broker, change: Callable[[Subscription, int], int | None]) -> None:
    """UNSUB has another max_msgs, or is ignored."""
    original = broker.router.limit

    def limit(subscription: Subscription, max_msgs: int) -> None:
        changed = change(subscription, max_msgs)
        if changed is not None:
            original(subscription, changed)

    replace(broker.router, "limit", limit)


@defect(
    "unsub-max-lets-one-more-through",
    breaks=("CORE-088",),
    summary="A subscription limited before its first message gets one message too many.",
)
def _(broker: Broker) -> None:
    def change(subscription: Subscription, max_msgs: int) -> int:
        is_fresh = subscription.delivered == 0 and subscription.queue is None
        return max_msgs + 1 if is_fresh and max_msgs > 0 else max_msgs

    _limit(broker, change)


@defect(
    "unsub-max-reached-already-lets-one-more-through",
    breaks=("CORE-089",),
    summary="UNSUB whose max_msgs is reached already ends the subscription with its next message.",
)
def _(broker: Broker) -> None:
    def change(subscription: Subscription, max_msgs: int) -> int:
        return subscription.delivered + 1 if 0 < max_msgs <= subscription.delivered else max_msgs

    _limit(broker, change)


@defect(
    "unsub-max-counts-from-unsub",
    breaks=("CORE-090",),
    summary="max_msgs of UNSUB counts messages from UNSUB on.",
)
def _(broker: Broker) -> None:
    def change(subscription: Subscription, max_msgs: int) -> int:
        return max_msgs + subscription.delivered if max_msgs > subscription.delivered else max_msgs

    _limit(broker, change)


@defect(
    "queue-members-have-no-limit",
    breaks=("CORE-097",),
    summary="max_msgs of UNSUB does not limit a member of a queue group.",
)
def _(broker: Broker) -> None:
    _limit(broker, lambda subscription, max_msgs: None if subscription.queue and max_msgs > 0 else max_msgs)


def _ignore_unsub(broker: Broker, when: Callable[[bytes], bool]) -> None:
    original = broker.unsubscribed

    def unsubscribed(connection: Connection, operation: Unsub) -> None:
        if not (len(operation.args) == 2 and when(operation.args[1])):
            original(connection, operation)

    replace(broker, "unsubscribed", unsubscribed)


@defect("unsub-max-zero-is-ignored", breaks=("CORE-091",), summary="UNSUB with max_msgs 0 does nothing.")
def _(broker: Broker) -> None:
    _ignore_unsub(broker, lambda max_msgs: max_msgs == b"0")


@defect(
    "unsub-negative-max-is-ignored",
    breaks=("CORE-092",),
    summary="UNSUB with a negative max_msgs does nothing.",
)
def _(broker: Broker) -> None:
    _ignore_unsub(broker, lambda max_msgs: max_msgs.startswith(b"-"))


@defect("echo-cannot-be-switched-off", breaks=("CORE-094",), summary="echo false in CONNECT does nothing.")
def _(broker: Broker) -> None:
    replace(broker.router, "echoes", lambda connection: True)


@defect(
    "every-queue-member-gets-every-message",
    breaks=("CORE-095",),
    summary="All members of a queue group get each message, unless one has an UNSUB limit.",
)
def _(broker: Broker) -> None:
    original = broker.router.deliver_to_one

    def deliver_to_one(group: list[Target], message: Message, publisher: Connection | None) -> int:
        if any(member.max_msgs for member, _ in group):
            return original(group, message, publisher)
        return sum(broker.router.deliver_to(member, head, message, publisher) for member, head in group)

    replace(broker.router, "deliver_to_one", deliver_to_one)


@defect(
    "first-queue-member-gets-every-message",
    breaks=("CORE-096",),
    summary="Of a queue group, the member that came first gets every message.",
)
def _(broker: Broker) -> None:
    def in_order(group: list[Target]) -> Iterator[Target]:
        return iter(group)

    replace(broker.router, "in_random_order", in_order)
