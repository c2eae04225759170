"""Defects in who may do what: patterns, virtual hosts, and what is refused and done all the same."""

from __future__ import annotations

import re

from plumbline.reference_broker.amqp.access import ALL, DEFAULT_EXCHANGE
from plumbline.reference_broker.amqp.config import Permission
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling
from plumbline.reference_broker.amqp.errors import AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.wire.amqp import Method

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


# What is refused


def _done_all_the_same(broker: Broker, *methods: str) -> None:
    """These methods have their effect, and no answer, before they are refused."""

    @handling(broker, *methods)
    def handle(handler: Handler, channel: Channel, operation: Method, now: int) -> None:
        refusals: list[AmqpReplyError] = []
        original, write = broker.access.check, broker.outbox.write

        def check(connection: AmqpClientConnection, right: str, kind: str, name: str) -> None:
            try:
                original(connection, right, kind, name)
            except AmqpReplyError as refusal:
                refusals.append(refusal)
                replace(broker.outbox, "write", lambda connection, data: None)

        replace(broker.access, "check", check)
        try:
            handler(channel, operation, now)
        finally:
            replace(broker.access, "check", original)
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


@defect("AMQP-PERM-010", "AMQP-PERM-012")
def unpermitted_binds_bind(broker: Broker) -> None:
    """A bind that is refused because a permission is missing binds."""
    _done_all_the_same(broker, "queue.bind", "exchange.bind")


@defect("AMQP-PERM-011", "AMQP-PERM-013")
def unpermitted_unbinds_unbind(broker: Broker) -> None:
    """An unbind that is refused because a permission is missing unbinds."""
    _done_all_the_same(broker, "queue.unbind", "exchange.unbind")


@defect("AMQP-PERM-014")
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
