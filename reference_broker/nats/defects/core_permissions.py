"""Defects in what a user may do."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.nats.auth import Credentials, Permits
from plumbline.reference_broker.nats.connection import Connection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace


def _with_permits(broker: Broker, change: Callable[[Permits], None]) -> None:
    """The permissions of every user are altered."""
    original = broker.authenticator.permissions

    def permissions(credentials: Credentials) -> Permits | None:
        permits = original(credentials)
        if permits is not None:
            change(permits)
        return permits

    replace(broker.authenticator, "permissions", permissions)


@defect(
    "publishing-needs-no-permission",
    breaks=("CORE-051",),
    summary="A user may publish whatever is not denied, allowed or not.",
)
def _(broker: Broker) -> None:
    _with_permits(broker, lambda permits: replace(permits.publish, "allows", lambda subject: True))


@defect(
    "publish-denials-are-ignored",
    breaks=("CORE-052",),
    summary="A user may publish what is allowed although it is denied.",
)
def _(broker: Broker) -> None:
    _with_permits(broker, lambda permits: replace(permits.publish, "denies", lambda subject: False))


@defect(
    "subscribing-needs-no-permission",
    breaks=("CORE-053",),
    summary="A user may subscribe to whatever is not denied, allowed or not, outside queue groups.",
)
def _(broker: Broker) -> None:
    def change(permits: Permits) -> None:
        original = permits.subscribe.allows

        def allows(subject: bytes, queue: bytes | None = None) -> bool:
            return queue is None or original(subject, queue)

        replace(permits.subscribe, "allows", allows)

    _with_permits(broker, change)


@defect(
    "refusal-does-not-name-the-queue",
    breaks=("CORE-054",),
    summary="The permissions violation of a queue subscription does not name the queue group.",
)
def _(broker: Broker) -> None:
    original = broker.subscribe_refusal

    def subscribe_refusal(connection: Connection, subject: bytes, queue: bytes | None) -> str | None:
        found = original(connection, subject, queue)
        return found and found.partition(" using queue")[0]

    replace(broker, "subscribe_refusal", subscribe_refusal)


@defect(
    "denied-messages-reach-wildcards",
    breaks=("CORE-055",),
    summary="A wildcard subscription gets messages that the user may not receive.",
)
def _(broker: Broker) -> None:
    _with_permits(broker, lambda permits: replace(permits, "may_receive", lambda subject, queue: True))
