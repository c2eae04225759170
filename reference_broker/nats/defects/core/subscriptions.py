"""Defects in subscriptions: matching, UNSUB, echo, queue groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plumbline.reference_broker.nats.connection import NatsClientConnection, Subscription
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.reference_broker.nats.routing import RoutedMessage, Target
from plumbline.wire.nats import Sub, Unsub
from plumbline.wire.nats.subjects import ANY_TAIL, covers


@method_defect(Broker.on_sub, "CORE-099")
def sid_must_be_a_number(broker: Broker, connection: NatsClientConnection, operation: Sub, now: int) -> None:
    """SUB with a sid that is no number is refused."""
    if operation.args[-1].isdigit():
        Broker.on_sub(broker, connection, operation, now)
    else:
        broker.send_err(connection, "Invalid Sid")


@method_defect(Broker.on_sub, "CORE-093")
def sid_in_use_is_replaced(
    broker: Broker, connection: NatsClientConnection, operation: Sub, now: int
) -> None:
    """SUB with a sid in use ends the subscription that has it."""
    standing = connection.subscriptions.get(operation.args[-1])
    if standing is not None:
        broker.router.remove(standing)
    Broker.on_sub(broker, connection, operation, now)


def _not_matching(broker: Broker, unless: Callable[[bytes, bytes], bool]) -> None:
    original = broker.router.matching
    replace(
        broker.router,
        "matching",
        lambda subject: [one for one in original(subject) if not unless(subject, one.subject)],
    )


@defect("CORE-083")
def full_wildcard_matches_one_token(broker: Broker) -> None:
    """A subscription on > alone gets messages on subjects of one token only."""
    _not_matching(
        broker, lambda subject, pattern: pattern == ANY_TAIL and b"." in subject and subject[0] not in b"$_"
    )


@defect("CORE-087")
def full_wildcard_misses_reserved_subjects(broker: Broker) -> None:
    """A subscription on > alone gets no messages on subjects that begin with $ or _."""
    _not_matching(broker, lambda subject, pattern: pattern == ANY_TAIL and subject[0] in b"$_")


def _matching_too(broker: Broker, also: Callable[[bytes], list[Subscription]]) -> None:
    """More subscriptions match."""
    original = broker.router.matching
    replace(broker.router, "matching", lambda subject: original(subject) + also(subject))
    replace(broker.router, "route", broker.router.find_route)  # remembers too little for such rules


@defect("CORE-084")
def full_wildcard_matches_no_token(broker: Broker) -> None:
    """A subscription on foo.> gets messages on foo."""

    def also(subject: bytes) -> list[Subscription]:
        pattern = subject + b".>"
        return [one for one in broker.router.subscriptions.match(subject + b".x") if one.subject == pattern]

    _matching_too(broker, also)


@defect("CORE-085")
def asterisk_matches_two_tokens(broker: Broker) -> None:
    """A subscription on foo.* gets messages on foo.bar.baz."""

    def also(subject: bytes) -> list[Subscription]:
        shorter = subject.rpartition(b".")[0]
        return [one for one in broker.router.subscriptions.match(shorter) if one.subject.endswith(b".*")]

    _matching_too(broker, also)


@defect("CORE-086")
def subjects_are_case_insensitive(broker: Broker) -> None:
    """A subscription gets messages on its subject in any case."""

    def also(subject: bytes) -> list[Subscription]:
        return [
            one
            for connection in broker.connections.values()
            for one in connection.subscriptions.values()
            if covers(one.subject.lower(), subject.lower()) and not covers(one.subject, subject)
        ]

    _matching_too(broker, also)


@method_defect(Broker.on_unsub, "CORE-017")
def unsub_of_an_unknown_sid_is_an_error(
    broker: Broker, connection: NatsClientConnection, operation: Unsub
) -> None:
    """UNSUB of a sid without subscription gets -ERR."""
    if operation.args[0] in connection.subscriptions:
        Broker.on_unsub(broker, connection, operation)
    else:
        broker.send_err(connection, "Invalid Subscription")


def _limit(broker: Broker, change: Callable[[Subscription, int], int | None]) -> None:
    """UNSUB has another max_msgs, or is ignored."""
    original = broker.router.set_max_msgs

    def limit(subscription: Subscription, max_msgs: int) -> None:
        changed = change(subscription, max_msgs)
        if changed is not None:
            original(subscription, changed)

    replace(broker.router, "set_max_msgs", limit)


@defect("CORE-088")
def unsub_max_lets_one_more_through(broker: Broker) -> None:
    """A subscription limited before its first message gets one message too many."""

    def change(subscription: Subscription, max_msgs: int) -> int:
        is_fresh = subscription.delivered == 0 and subscription.queue is None
        return max_msgs + 1 if is_fresh and max_msgs > 0 else max_msgs

    _limit(broker, change)


@defect("CORE-089")
def unsub_max_reached_already_lets_one_more_through(broker: Broker) -> None:
    """UNSUB whose max_msgs is reached already ends the subscription with its next message."""

    def change(subscription: Subscription, max_msgs: int) -> int:
        return subscription.delivered + 1 if 0 < max_msgs <= subscription.delivered else max_msgs

    _limit(broker, change)


@defect("CORE-090")
def unsub_max_counts_from_unsub(broker: Broker) -> None:
    """max_msgs of UNSUB counts messages from UNSUB on."""

    def change(subscription: Subscription, max_msgs: int) -> int:
        return max_msgs + subscription.delivered if max_msgs > subscription.delivered else max_msgs

    _limit(broker, change)


@defect("CORE-097")
def queue_members_have_no_limit(broker: Broker) -> None:
    """max_msgs of UNSUB does not limit a member of a queue group."""
    _limit(broker, lambda subscription, max_msgs: None if subscription.queue and max_msgs > 0 else max_msgs)


def _ignore_unsub(broker: Broker, when: Callable[[bytes], bool]) -> None:
    original = broker.on_unsub

    def unsubscribed(connection: NatsClientConnection, operation: Unsub) -> None:
        if not (len(operation.args) == 2 and when(operation.args[1])):
            original(connection, operation)

    replace(broker, "on_unsub", unsubscribed)


@defect("CORE-091")
def unsub_max_zero_is_ignored(broker: Broker) -> None:
    """UNSUB with max_msgs 0 does nothing."""
    _ignore_unsub(broker, lambda max_msgs: max_msgs == b"0")


@defect("CORE-092")
def unsub_negative_max_is_ignored(broker: Broker) -> None:
    """UNSUB with a negative max_msgs does nothing."""
    _ignore_unsub(broker, lambda max_msgs: max_msgs.startswith(b"-"))


@defect("CORE-094")
def echo_cannot_be_switched_off(broker: Broker) -> None:
    """echo false in CONNECT does nothing."""
    replace(broker.router, "echoes", lambda connection: True)


@defect("CORE-095")
def every_queue_member_gets_every_message(broker: Broker) -> None:
    """All members of a queue group get each message, unless one has an UNSUB limit."""
    original = broker.router.deliver_to_one

    def deliver_to_one(
        group: list[Target], message: RoutedMessage, publisher: NatsClientConnection | None
    ) -> int:
        if any(member.max_msgs for member, _ in group):
            return original(group, message, publisher)
        return sum(broker.router.deliver_to(member, head, message, publisher) for member, head in group)

    replace(broker.router, "deliver_to_one", deliver_to_one)


@defect("CORE-096")
def first_queue_member_gets_every_message(broker: Broker) -> None:
    """Of a queue group, the member that came first gets every message."""

    def in_order(group: list[Target]) -> Iterator[Target]:
        return iter(group)

    replace(broker.router, "in_random_order", in_order)
