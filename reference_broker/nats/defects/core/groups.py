"""Defects in queue groups: who is a member, and what a member gets."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from plumbline.reference_broker.nats.connection import NatsClientConnection, Subscription
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.routing import Route, RoutedMessage, Target


def _groups(broker: Broker, change: Callable[[list[list[Target]]], list[list[Target]]]) -> None:
    """The queue groups of a subject are others."""
    original = broker.router.find_route

    def find_route(subject: bytes) -> Route:
        route = original(subject)
        groups = change(route.groups)
        return Route(route.plain, groups, reserved=route.reserved, served=route.served)

    replace(broker.router, "find_route", find_route)


def _grouped(broker: Broker, key: Callable[[Subscription], Hashable]) -> None:
    """The members with the same ``key`` are a group."""

    def change(groups: list[list[Target]]) -> list[list[Target]]:
        found: dict[Hashable, list[Target]] = {}
        for target in (target for group in groups for target in group):
            found.setdefault(key(target[0]), []).append(target)
        return list(found.values())

    _groups(broker, change)


@defect("CORE-095")
def groups_are_of_one_subject(broker: Broker) -> None:
    """Members of a queue group that subscribed to another subject are another group."""
    _grouped(broker, lambda member: (member.queue, member.subject))


@defect("CORE-095")
def names_of_groups_ignore_case(broker: Broker) -> None:
    """Capital letters in the name of a queue group are small ones."""
    _grouped(broker, lambda member: (member.queue or b"").lower())


@defect("CORE-096")
def one_member_of_a_connection_counts(broker: Broker) -> None:
    """Of several members of a queue group on one connection the first gets all."""

    def change(groups: list[list[Target]]) -> list[list[Target]]:
        return [
            list({target[0].connection: target for target in reversed(group)}.values()) for group in groups
        ]

    _groups(broker, change)


def _to_one(
    broker: Broker,
    change: Callable[[list[Target], RoutedMessage, NatsClientConnection | None], RoutedMessage | None],
) -> None:
    """A member gets another message, or none does."""
    original = broker.router.deliver_to_one

    def deliver_to_one(
        group: list[Target], message: RoutedMessage, publisher: NatsClientConnection | None
    ) -> int:
        changed = change(group, message, publisher)
        return 0 if changed is None else original(group, changed, publisher)

    replace(broker.router, "deliver_to_one", deliver_to_one)


@defect("CORE-094", "CORE-095")
def own_messages_without_echo_are_lost_in_groups(broker: Broker) -> None:
    """What a member without echo publishes to its own queue group goes to no member."""

    def change(
        group: list[Target], message: RoutedMessage, publisher: NatsClientConnection | None
    ) -> RoutedMessage | None:
        own = publisher is not None and any(member.connection is publisher for member, _ in group)
        return None if own and publisher is not None and not publisher.options.echo else message

    _to_one(broker, change)


@defect("CORE-071")
def members_get_no_headers(broker: Broker) -> None:
    """A member of a queue group gets a message with headers as MSG."""
    _to_one(
        broker,
        lambda group, message, publisher: (
            message if message.stripped is None else RoutedMessage(message.subject, message.stripped)
        ),
    )


@defect("CORE-098")
def members_get_no_reply_subject(broker: Broker) -> None:
    """A member of a queue group gets MSG without the reply subject."""

    def change(
        group: list[Target], message: RoutedMessage, publisher: NatsClientConnection | None
    ) -> RoutedMessage:
        line, _, rest = message.tail.partition(b"\r\n")
        if message.stripped is not None or b" " not in line:
            return message
        return RoutedMessage(message.subject, line.rpartition(b" ")[2] + b"\r\n" + rest)

    _to_one(broker, change)


@defect("CORE-095")
def members_stay_after_their_connection(broker: Broker) -> None:
    """A member of a queue group is chosen also when its connection is gone."""

    def remove_all(connection: NatsClientConnection) -> None:
        for subscription in list(connection.subscriptions.values()):
            if subscription.queue is None:
                broker.router.remove(subscription)

    replace(broker.router, "remove_all", remove_all)
