"""Defects in what a user may do."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.nats.auth import ConnectionPermissions, Credentials
from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect


def _with_permits(broker: Broker, change: Callable[[ConnectionPermissions], None]) -> None:
    """The permissions of every user are altered."""
    original = broker.authenticator.permissions

    def permissions(credentials: Credentials) -> ConnectionPermissions | None:
        permits = original(credentials)
        if permits is not None:
            change(permits)
        return permits

    replace(broker.authenticator, "permissions", permissions)


@defect("CORE-051")
def publishing_needs_no_permission(broker: Broker) -> None:
    """A user may publish whatever is not denied, allowed or not."""
    _with_permits(broker, lambda permits: replace(permits.publish, "allows", lambda subject: True))


@defect("CORE-052")
def publish_denials_are_ignored(broker: Broker) -> None:
    """A user may publish what is allowed although it is denied."""
    _with_permits(broker, lambda permits: replace(permits.publish, "denies", lambda subject: False))


@defect("CORE-053")
def subscribing_needs_no_permission(broker: Broker) -> None:
    """A user may subscribe to whatever is not denied, allowed or not, outside queue groups."""

    def change(permits: ConnectionPermissions) -> None:
        original = permits.subscribe.allows

        def allows(subject: bytes, queue: bytes | None = None) -> bool:
            return queue is None or original(subject, queue)

        replace(permits.subscribe, "allows", allows)

    _with_permits(broker, change)


@method_defect(Broker.subscribe_refusal, "CORE-054")
def refusal_does_not_name_the_queue(
    broker: Broker, connection: NatsClientConnection, subject: bytes, queue: bytes | None
) -> str | None:
    """The permissions violation of a queue subscription does not name the queue group."""
    found = Broker.subscribe_refusal(broker, connection, subject, queue)
    return found and found.partition(" using queue")[0]


@defect("CORE-055")
def denied_messages_reach_wildcards(broker: Broker) -> None:
    """A wildcard subscription gets messages that the user may not receive."""
    _with_permits(broker, lambda permits: replace(permits, "may_receive", lambda subject, queue: True))
