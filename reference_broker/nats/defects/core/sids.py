"""Defects in sids and in UNSUB: whose subscription it is, and when it ends."""

from __future__ import annotations

from plumbline.reference_broker.nats.connection import NatsClientConnection, Subscription
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.reference_broker.nats.routing import Route
from plumbline.wire.nats import Sub, Unsub


@defect("CORE-095")
def one_subscription_to_a_subject_counts(broker: Broker) -> None:
    """Of two subscriptions of a connection to the same subject the first gets the messages."""
    original = broker.router.find_route

    def find_route(subject: bytes) -> Route:
        route = original(subject)
        firsts = {(one[0].connection.id, one[0].subject): one for one in reversed(route.plain)}
        return Route(list(firsts.values()), route.groups, reserved=route.reserved, served=route.served)

    replace(broker.router, "find_route", find_route)


def _on_end(broker: Broker, ended: dict[tuple[int, bytes], int]) -> None:
    """Remember how many messages each subscription had when it ended."""
    original = broker.router.remove

    def remove(subscription: Subscription) -> None:
        ended[subscription.connection.id, subscription.sid] = subscription.delivered
        original(subscription)

    replace(broker.router, "remove", remove)


@defect("CORE-141")
def sids_are_used_once(broker: Broker) -> None:
    """SUB with a sid whose subscription has ended makes no other."""
    ended: dict[tuple[int, bytes], int] = {}
    _on_end(broker, ended)
    original = broker.on_sub

    def on_sub(connection: NatsClientConnection, operation: Sub, now: int) -> None:
        if (connection.id, operation.args[-1]) in ended:
            broker.send_ok(connection, operation)
        else:
            original(connection, operation, now)

    replace(broker, "on_sub", on_sub)


@defect("CORE-141")
def sids_go_on_counting(broker: Broker) -> None:
    """max_msgs also counts what an earlier subscription with the sid got."""
    ended: dict[tuple[int, bytes], int] = {}
    _on_end(broker, ended)
    original = broker.on_sub

    def on_sub(connection: NatsClientConnection, operation: Sub, now: int) -> None:
        sid = operation.args[-1]
        is_new = sid not in connection.subscriptions
        original(connection, operation, now)
        if is_new and sid in connection.subscriptions:
            connection.subscriptions[sid].delivered = ended.get((connection.id, sid), 0)

    replace(broker, "on_sub", on_sub)


@method_defect(Broker.on_unsub, "CORE-142")
def unsub_ends_the_sid_everywhere(broker: Broker, connection: NatsClientConnection, operation: Unsub) -> None:
    """UNSUB also ends the subscriptions of other connections that have the sid."""
    Broker.on_unsub(broker, connection, operation)
    for other in list(broker.connections.values()):
        found = other.subscriptions.get(operation.args[0])
        if other is not connection and found is not None and not operation.max_msgs:
            broker.router.remove(found)


@method_defect(Broker.on_unsub, "CORE-143")
def unsub_waits_for_max_msgs(broker: Broker, connection: NatsClientConnection, operation: Unsub) -> None:
    """UNSUB of a subscription that has a max_msgs does nothing."""
    found = connection.subscriptions.get(operation.args[0])
    if found is not None and found.max_msgs and not operation.max_msgs:
        broker.send_ok(connection, operation)
    else:
        Broker.on_unsub(broker, connection, operation)


@method_defect(Broker.on_unsub, "CORE-144")
def first_max_msgs_holds(broker: Broker, connection: NatsClientConnection, operation: Unsub) -> None:
    """A second UNSUB with max_msgs does nothing."""
    found = connection.subscriptions.get(operation.args[0])
    if found is not None and found.max_msgs and operation.max_msgs:
        broker.send_ok(connection, operation)
    else:
        Broker.on_unsub(broker, connection, operation)


@defect("CORE-064")
def ended_subscriptions_count(broker: Broker) -> None:
    """Subscriptions that have ended count for max_subscriptions."""
    made: dict[int, int] = {}
    original = broker.on_sub

    def on_sub(connection: NatsClientConnection, operation: Sub, now: int) -> None:
        original(connection, operation, now)
        made[connection.id] = made.get(connection.id, 0) + 1

    def is_at_subscription_limit(connection: NatsClientConnection) -> bool:
        return 0 < broker.config.max_subscriptions <= made.get(connection.id, 0)

    replace(broker, "on_sub", on_sub)
    replace(broker, "is_at_subscription_limit", is_at_subscription_limit)


@method_defect(Broker.is_valid_subject, "CORE-146")
def subjects_are_ascii(broker: Broker, subject: bytes) -> bool:
    """SUB to a subject with characters that are no ASCII is refused."""
    return subject.isascii() and Broker.is_valid_subject(broker, subject)


@defect("CORE-083", "CORE-085")
def wildcards_have_sixteen_tokens(broker: Broker) -> None:
    """Subscriptions with wildcards get no messages on subjects of more than 16 tokens."""
    original = broker.router.matching

    def matching(subject: bytes) -> list[Subscription]:
        found = original(subject)
        is_long = subject.count(b".") >= 16
        return [one for one in found if one.subject == subject] if is_long else found

    replace(broker.router, "matching", matching)
