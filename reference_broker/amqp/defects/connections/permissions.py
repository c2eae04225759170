"""Defects in who may do what: patterns, virtual hosts, and what is refused and done all the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from plumbline.reference_broker.amqp.access import ALL, DEFAULT_EXCHANGE, READ, TOPIC, WRITE
from plumbline.reference_broker.amqp.config import Permission
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling
from plumbline.reference_broker.amqp.errors import AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.wire.amqp import Method

TopicCheck = Callable[[AmqpClientConnection, str, str, str, str], None]

# Virtual hosts


@defect("AMQP-PERM-001")
def any_virtual_host_is_open(broker: Broker) -> None:
    """A virtual host can be opened without permissions in it; there all is refused."""
    original = broker.access.permission
    nothing = Permission("", "", "")
    replace(broker.access, "permission", lambda vhost, user: original(vhost, user) or nothing)


@defect("AMQP-PERM-002")
def missing_virtual_hosts_are_others(broker: Broker) -> None:
    """connection.open of a virtual host that does not exist opens "/"."""
    original = broker.handshake.open

    def open_(connection: AmqpClientConnection, vhost: str) -> None:
        original(connection, vhost if vhost in broker.vhosts else "/")

    replace(broker.handshake, "open", open_)


@defect("AMQP-PERM-003")
def virtual_hosts_share_queues(broker: Broker) -> None:
    """A queue is there in every virtual host."""
    shared = broker.vhosts["/"].queues
    for vhost in broker.vhosts.values():
        vhost.queues = shared


@defect("AMQP-PERM-004")
def permissions_are_for_every_virtual_host(broker: Broker) -> None:
    """Who may do all in some virtual host may do all in every one."""
    users = {user for (_, user), permission in broker.access.permissions.items() if permission == ALL}
    original = broker.access.permission
    replace(broker.access, "permission", lambda vhost, user: ALL if user in users else original(vhost, user))


@defect("AMQP-PERM-004", "AMQP-PERM-001")
def virtual_hosts_have_the_permissions_of_the_first(broker: Broker) -> None:
    """In every virtual host a user may do what he may do in "/"."""
    original = broker.access.permission
    replace(broker.access, "permission", lambda vhost, user: original("/", user))


# Patterns


def _search(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


@defect("AMQP-PERM-023")
def an_empty_pattern_is_for_all(broker: Broker) -> None:
    """The empty pattern matches every name, as a regular expression does."""

    def allows(permission: Permission, right: str, name: str) -> bool:
        return _search(getattr(permission, right), name or DEFAULT_EXCHANGE)

    replace(broker.access, "allows", allows)


@defect("AMQP-PERM-021", "AMQP-PERM-023")
def the_default_exchange_has_no_name(broker: Broker) -> None:
    """Patterns are compared with the empty name of the default exchange, which '^$' matches."""

    def allows(permission: Permission, right: str, name: str) -> bool:
        return _search(getattr(permission, right) or "$^", name)

    replace(broker.access, "allows", allows)


@defect("AMQP-PERM-006", "AMQP-PERM-014", "AMQP-PERM-015")
def patterns_are_whole_names(broker: Broker) -> None:
    """A pattern must match the whole name, though it has no ^."""

    def allows(permission: Permission, right: str, name: str) -> bool:
        return re.fullmatch(getattr(permission, right), name or DEFAULT_EXCHANGE) is not None

    replace(broker.access, "allows", allows)


@defect("AMQP-PERM-014")
def who_has_published_may_publish(broker: Broker) -> None:
    """Once a channel may publish to one exchange, it may publish to all."""
    original = broker.access.check
    allowed: set[AmqpClientConnection] = set()

    def check(connection: AmqpClientConnection, right: str, kind: str, name: str) -> None:
        if right != "write" or connection not in allowed:
            original(connection, right, kind, name)
        if right == "write" and kind == "exchange":
            allowed.add(connection)

    replace(broker.access, "check", check)


# Names that the server makes up


@defect("AMQP-PERM-022")
def server_named_queues_are_for_all(broker: Broker) -> None:
    """Queues that the server names need no permission."""
    original = broker.access.check

    def check(connection: AmqpClientConnection, right: str, kind: str, name: str) -> None:
        if not name.startswith("amq.gen-"):
            original(connection, right, kind, name)

    replace(broker.access, "check", check)


@defect("AMQP-PERM-022")
def server_named_queues_have_no_name_yet(broker: Broker) -> None:
    """For a queue that the server names, the empty name is what permissions are compared with."""
    original = broker.access.check

    def check(connection: AmqpClientConnection, right: str, kind: str, name: str) -> None:
        is_new = right == "configure" and name.startswith("amq.gen-")
        original(connection, right, kind, "none" if is_new else name)

    replace(broker.access, "check", check)


# Routing keys of topic exchanges


def _check_topics_otherwise(broker: Broker, check: Callable[..., None]) -> None:
    """``check`` gets the original and its arguments."""
    replace(broker.access, "check_topic", partial(check, broker.access.check_topic))


@defect("AMQP-PERM-026", "AMQP-PERM-030")
def any_topic_can_be_written(broker: Broker) -> None:
    """Topic permissions hold for bindings alone."""

    def check(
        original: TopicCheck, of: AmqpClientConnection, right: str, exchange: str, kind: str, key: str
    ) -> None:
        if right != WRITE:
            original(of, right, exchange, kind, key)

    _check_topics_otherwise(broker, check)


@defect("AMQP-PERM-027")
def any_topic_can_be_bound(broker: Broker) -> None:
    """Topic permissions hold for messages alone."""

    def check(
        original: TopicCheck, of: AmqpClientConnection, right: str, exchange: str, kind: str, key: str
    ) -> None:
        if right != READ:
            original(of, right, exchange, kind, key)

    _check_topics_otherwise(broker, check)


@defect("AMQP-PERM-026", "AMQP-PERM-027")
def topics_are_read_by_writers(broker: Broker) -> None:
    """Of topic permissions, what matches to read may be written, and the other way round."""

    def check(
        original: TopicCheck, of: AmqpClientConnection, right: str, exchange: str, kind: str, key: str
    ) -> None:
        original(of, READ if right == WRITE else WRITE, exchange, kind, key)

    _check_topics_otherwise(broker, check)


@defect("AMQP-PERM-027")
def exchanges_may_be_bound_to_any_topic(broker: Broker) -> None:
    """exchange.bind and exchange.unbind do not look at topic permissions."""

    @handling(broker, "exchange.bind", "exchange.unbind")
    def handle(handler: Handler, channel: Channel, operation: Method, now: int) -> None:
        original = broker.access.check_topic
        replace(broker.access, "check_topic", lambda *arguments: None)
        try:
            handler(channel, operation, now)
        finally:
            replace(broker.access, "check_topic", original)


@defect("AMQP-PERM-026")
def topics_match_anywhere(broker: Broker) -> None:
    """A topic permission may match in the middle of a routing key."""
    original = broker.access.with_variables
    replace(broker.access, "with_variables", lambda pattern, of: original(pattern, of).replace("^", ""))


@defect("AMQP-PERM-028")
def topic_permissions_are_for_every_type(broker: Broker) -> None:
    """Topic permissions also hold for exchanges of other types."""

    def check(
        original: TopicCheck, of: AmqpClientConnection, right: str, exchange: str, kind: str, key: str
    ) -> None:
        original(of, right, exchange, TOPIC, key)

    _check_topics_otherwise(broker, check)


@defect("AMQP-PERM-028")
def topic_permissions_are_for_every_exchange(broker: Broker) -> None:
    """What a user may do with one topic exchange holds for all of them."""

    def check(
        original: TopicCheck, of: AmqpClientConnection, right: str, exchange: str, kind: str, key: str
    ) -> None:
        original(of, right, "amq.topic" if kind == TOPIC else exchange, kind, key)

    _check_topics_otherwise(broker, check)


@defect("AMQP-PERM-028")
def topic_permissions_are_for_every_user(broker: Broker) -> None:
    """What one user may do with a topic exchange holds for users without one for it."""
    known = broker.access.topic_permissions

    def check(
        original: TopicCheck, of: AmqpClientConnection, right: str, exchange: str, kind: str, key: str
    ) -> None:
        others = [keys for (vhost, _, name), keys in known.items() if (vhost, name) == (of.vhost, exchange)]
        if others:
            known.setdefault((of.vhost, of.user, exchange), others[0])
        original(of, right, exchange, kind, key)

    _check_topics_otherwise(broker, check)


@defect("AMQP-PERM-029")
def topic_permissions_are_enough_to_publish(broker: Broker) -> None:
    """Who has a topic permission for an exchange needs no write permission for it."""
    original = broker.access.check

    def check(connection: AmqpClientConnection, right: str, kind: str, name: str) -> None:
        has_topics = (connection.vhost, connection.user, name) in broker.access.topic_permissions
        if right != WRITE or kind != "exchange" or not has_topics:
            original(connection, right, kind, name)

    replace(broker.access, "check", check)


@defect("AMQP-PERM-030")
def topic_permissions_have_no_variables(broker: Broker) -> None:
    """{username} and {vhost} stand for themselves."""
    replace(broker.access, "with_variables", lambda pattern, of: pattern)


@defect("AMQP-PERM-030")
def users_of_topics_are_any_user(broker: Broker) -> None:
    """{username} stands for any word."""
    original = broker.access.with_variables
    replace(
        broker.access,
        "with_variables",
        lambda pattern, of: original(pattern.replace("{username}", "[a-z]+"), of),
    )


# What is refused


def _done_all_the_same(broker: Broker, *methods: str) -> None:
    """These methods have their effect, and no answer, before they are refused."""

    @handling(broker, *methods)
    def handle(handler: Handler, channel: Channel, operation: Method, now: int) -> None:
        refusals: list[AmqpReplyError] = []
        access, write = broker.access, broker.outbox.write
        originals: dict[str, Callable[..., None]] = {"check": access.check, "check_topic": access.check_topic}

        def noting(original: Callable[..., None]) -> Callable[..., None]:
            def check(*arguments: Any) -> None:
                try:
                    original(*arguments)
                except AmqpReplyError as refusal:
                    refusals.append(refusal)
                    replace(broker.outbox, "write", lambda connection, data: None)

            return check

        for name, original in originals.items():
            replace(access, name, noting(original))
        try:
            handler(channel, operation, now)
        finally:
            for name, original in originals.items():
                replace(access, name, original)
            replace(broker.outbox, "write", write)
        if refusals:
            raise refusals[0]


@defect("AMQP-PERM-006", "AMQP-PERM-007", "AMQP-PERM-018", "AMQP-PERM-019")
def unpermitted_declares_make(broker: Broker) -> None:
    """A declare that is refused because a permission is missing makes its queue or exchange."""
    _done_all_the_same(broker, "queue.declare", "exchange.declare")


@defect("AMQP-PERM-008", "AMQP-PERM-009")
def unpermitted_deletes_delete(broker: Broker) -> None:
    """A delete that is refused because a permission is missing deletes."""
    _done_all_the_same(broker, "queue.delete", "exchange.delete")


@defect("AMQP-PERM-010", "AMQP-PERM-012", "AMQP-PERM-027")
def unpermitted_binds_bind(broker: Broker) -> None:
    """A bind that is refused because a permission is missing binds."""
    _done_all_the_same(broker, "queue.bind", "exchange.bind")


@defect("AMQP-PERM-011", "AMQP-PERM-013")
def unpermitted_unbinds_unbind(broker: Broker) -> None:
    """An unbind that is refused because a permission is missing unbinds."""
    _done_all_the_same(broker, "queue.unbind", "exchange.unbind")


@defect("AMQP-PERM-014", "AMQP-PERM-026")
def unpermitted_messages_are_queued(broker: Broker) -> None:
    """A message that is refused because a permission is missing is queued."""
    _done_all_the_same(broker, "basic.publish")


@defect("AMQP-PERM-015")
def unpermitted_gets_take(broker: Broker) -> None:
    """basic.get that is refused because a permission is missing takes the message."""
    _done_all_the_same(broker, "basic.get")


@defect("AMQP-PERM-016")
def unpermitted_consumers_consume(broker: Broker) -> None:
    """basic.consume that is refused because a permission is missing makes a consumer."""
    _done_all_the_same(broker, "basic.consume")


@defect("AMQP-PERM-017")
def unpermitted_purges_purge(broker: Broker) -> None:
    """queue.purge that is refused because a permission is missing removes messages."""
    _done_all_the_same(broker, "queue.purge")
