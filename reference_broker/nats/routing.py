"""From a subject to the connections that get the message: matching, queue groups, auto-unsubscribe, framing.

This is the hot path: what a subject leads to is worked out once and kept until subscriptions change.
Each rule is a small method that can be replaced on an instance. Knows nothing of who publishes but
the connection, which matters for ``echo``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plumbline.bounds import SUBSCRIPTIONS_AT_ONCE
from plumbline.reference_broker.nats.connection import NatsClientConnection, Subscription
from plumbline.reference_broker.nats.sublist import Sublist

REMEMBERED = 8192  # subjects whose route is kept

Target = tuple[Subscription, bytes]  # and the start of the MSG line, up to reply or size


class Route:
    """Where messages of one subject go: every plain subscription, one member of each queue group."""

    __slots__ = ("groups", "plain", "reserved", "served")

    def __init__(
        self,
        plain: list[Target],
        groups: list[list[Target]],
        *,
        reserved: bool = False,
        served: bool = False,
    ) -> None:
        self.plain = plain
        self.groups = groups
        self.reserved = reserved  # for the server's own messages
        self.served = served  # the service inside listens, too


# Acknowledgements go to subjects of their own, each once: one route serves them all.
_WITHOUT_RECEIVERS = {
    (reserved, served): Route([], [], reserved=reserved, served=served)
    for reserved in (False, True)
    for served in (False, True)
}


class RoutedMessage:
    """One message on its way: what follows the start of the line, with headers and without.

    ``stripped`` is None if there are no headers: then everybody gets ``tail``.
    """

    __slots__ = ("stripped", "subject", "tail")

    def __init__(self, subject: bytes, tail: bytes, stripped: bytes | None = None) -> None:
        self.subject = subject
        self.tail = tail
        self.stripped = stripped


class Router:
    """The subscriptions of the account, and how messages get to them.

    ``choose(n)`` gives a number below n; ``dirty`` collects connections that have something to be sent.
    """

    def __init__(
        self,
        choose: Callable[[int], int],
        dirty: list[NatsClientConnection],
        reserved_subjects: tuple[bytes, ...] = (),
    ) -> None:
        self.choose = choose
        self.dirty = dirty
        self.reserved_subjects = reserved_subjects
        self.ended: list[bytes] = []  # subjects of subscriptions that have ended since somebody looked
        self.leaving: list[dict[bytes, Subscription]] = []  # have ended, and wait for ``take_out_some``
        self.subscriptions: Sublist[Subscription] = Sublist()
        self.on_delivered: Callable[[Subscription, RoutedMessage], None] = lambda subscription, message: None
        self.serves: Callable[[bytes], bool] = lambda subject: False  # whether the service inside listens
        self.routes: dict[bytes, Route] = {}  # what ``route`` remembers

    def add(self, subscription: Subscription) -> None:
        self.subscriptions.insert(subscription.subject, subscription)
        self._forget(subscription.subject)

    def remove(self, subscription: Subscription) -> None:
        """End a subscription; nothing is delivered to it any more."""
        del subscription.connection.subscriptions[subscription.sid]
        self.ended.append(subscription.subject)
        self.subscriptions.remove(subscription.subject, subscription)
        self._forget(subscription.subject)

    def remove_all(self, connection: NatsClientConnection) -> None:
        """End all subscriptions of a connection: at once for who publishes, and if there are many, the rest
        of the work is left to ``take_out_some``."""
        subscriptions = connection.subscriptions
        if len(subscriptions) <= SUBSCRIPTIONS_AT_ONCE:
            for subscription in list(subscriptions.values()):
                self.remove(subscription)
            return
        connection.subscriptions = {}
        self.leaving.append(subscriptions)
        self.forget_routes()

    def take_out_some(self) -> None:
        """A part of those that have ended; no route leads to them any more."""
        leaving = self.leaving[-1]
        for _ in range(min(len(leaving), SUBSCRIPTIONS_AT_ONCE)):
            _, subscription = leaving.popitem()
            self.ended.append(subscription.subject)
            self.subscriptions.remove(subscription.subject, subscription)
        if not leaving:
            self.leaving.pop()

    def set_max_msgs(self, subscription: Subscription, max_msgs: int) -> None:
        """UNSUB with max: counted from SUB on. docs.nats.io, "Client Protocol", "UNSUB"."""
        if max_msgs > subscription.delivered:
            subscription.max_msgs = max_msgs
            self.mark_special(subscription)
        else:
            self.remove(subscription)

    def mark_special(self, subscription: Subscription) -> None:
        """Note whether a subscription can be delivered to without looking."""
        connection = subscription.connection
        responds = connection.permits is not None and connection.permits.responses is not None
        subscription.special = (
            subscription.filtered or subscription.max_msgs > 0 or not connection.options.echo or responds
        )

    def route(self, subject: bytes) -> Route:
        """Where a subject leads, remembered."""
        route = self.routes.get(subject)
        if route is None:
            if len(self.routes) >= REMEMBERED:
                self.routes.clear()
            route = self.routes[subject] = self.find_route(subject)
        return route

    def find_route(self, subject: bytes) -> Route:
        matching = self.matching(subject)
        reserved, served = subject.startswith(self.reserved_subjects), self.serves(subject)
        if not matching:
            return _WITHOUT_RECEIVERS[reserved, served]
        plain: list[Target] = []
        groups: dict[bytes, list[Target]] = {}
        for subscription in matching:
            target = (subscription, self.head(subject, subscription))
            if subscription.queue is None:
                plain.append(target)
            else:
                groups.setdefault(subscription.queue, []).append(target)
        return Route(plain, list(groups.values()), reserved=reserved, served=served)

    def matching(self, subject: bytes) -> list[Subscription]:
        found = self.subscriptions.match(subject)
        if not self.leaving:
            return found
        return [each for each in found if each.connection.subscriptions.get(each.sid) is each]

    def head(self, subject: bytes, subscription: Subscription) -> bytes:
        """The start of a MSG line; HMSG puts an H before it."""
        return b"MSG %b %b " % (subject, subscription.sid)

    def deliver(self, route: Route, message: RoutedMessage, publisher: NatsClientConnection | None) -> int:
        """Send a message to everybody it is for; how many got it."""
        count = 0
        for subscription, head in route.plain:
            count += self.deliver_to(subscription, head, message, publisher)
        for group in route.groups:
            count += self.deliver_to_one(group, message, publisher)
        return count

    def deliver_under(self, route: Route, subject: bytes, message: RoutedMessage) -> int:
        """``deliver`` of a message of the server's own under another subject than the one that routed it."""
        count = 0
        for subscription, _ in route.plain:
            count += self.deliver_to(subscription, self.head(subject, subscription), message, None)
        for group in route.groups:
            targets = [(member, self.head(subject, member)) for member, _ in group]
            count += self.deliver_to_one(targets, message, None)
        return count

    def deliver_plainly(
        self, route: Route, subject: bytes, tail: bytes, publisher: NatsClientConnection
    ) -> int:
        """``deliver`` of a message without headers, with ``deliver_to`` unrolled where nothing is special."""
        count = 0
        dirty = self.dirty
        for subscription, head in route.plain:
            if subscription.special:
                count += self.deliver_to(subscription, head, RoutedMessage(subject, tail), publisher)
                continue
            subscription.delivered += 1
            out = subscription.out
            if not out:
                dirty.append(subscription.connection)
            out += (head, tail)
            count += 1
        for group in route.groups:
            count += self.deliver_to_one(group, RoutedMessage(subject, tail), publisher)
        return count

    def deliver_to_one(
        self, group: list[Target], message: RoutedMessage, publisher: NatsClientConnection | None
    ) -> int:
        """A queue group: one member gets it, the next if the first cannot take it."""
        for subscription, head in self.in_random_order(group):
            if self.deliver_to(subscription, head, message, publisher):
                return 1
        return 0

    def in_random_order(self, group: list[Target]) -> Iterator[Target]:
        """All members, from a random one on. docs.nats.io, "Queue Groups"."""
        start = self.choose(len(group)) if len(group) > 1 else 0
        yield from group[start:]
        yield from group[:start]

    def deliver_to(
        self,
        subscription: Subscription,
        head: bytes,
        message: RoutedMessage,
        publisher: NatsClientConnection | None,
    ) -> int:
        """Send to one subscription, unless something forbids it; 1 if it was sent."""
        if subscription.special and not self.admits(subscription, message.subject, publisher):
            return 0
        subscription.delivered += 1
        connection = subscription.connection
        if not connection.out:
            self.dirty.append(connection)
        connection.out += self.framed(connection, head, message)
        if subscription.special:
            self.on_delivered(subscription, message)
        if subscription.max_msgs and subscription.delivered >= subscription.max_msgs:
            self.remove(subscription)
        return 1

    def admits(
        self, subscription: Subscription, subject: bytes, publisher: NatsClientConnection | None
    ) -> bool:
        """Whether a subscription takes this message."""
        connection = subscription.connection
        if publisher is connection and not self.echoes(connection):
            return False
        if subscription.filtered and connection.permits is not None:
            return connection.permits.may_receive(subject, subscription.queue)
        return True

    def echoes(self, connection: NatsClientConnection) -> bool:
        """Whether a connection hears its own messages. docs.nats.io, "CONNECT", ``echo``."""
        return connection.options.echo

    def framed(
        self, connection: NatsClientConnection, head: bytes, message: RoutedMessage
    ) -> tuple[bytes, ...]:
        """The operation as this connection is to see it: headers only for those who know them (ADR-4)."""
        if message.stripped is None:
            return (head, message.tail)
        if connection.headers:
            return (b"H", head, message.tail)
        return (head, message.stripped)

    def forget_routes(self) -> None:
        """Where any subject leads may have changed."""
        self.routes.clear()

    def _forget(self, subject: bytes) -> None:
        """Subscriptions to ``subject`` changed: what was worked out with them no longer holds."""
        if b"*" in subject or b">" in subject:
            self.routes.clear()
        else:
            self.routes.pop(subject, None)
