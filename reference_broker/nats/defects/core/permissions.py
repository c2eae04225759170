"""Defects in what a user may do."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from plumbline.reference_broker.nats.auth import ConnectionPermissions, Credentials, SubjectPermissions
from plumbline.reference_broker.nats.connection import NatsClientConnection, Subscription
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.reference_broker.nats.routing import Route, RoutedMessage
from plumbline.wire.nats import HPub, Pub


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


@defect("CORE-145")
def publishing_with_headers_needs_no_permission(broker: Broker) -> None:
    """A user may publish with HPUB whatever it likes."""
    original = broker.admits

    def admits(
        connection: NatsClientConnection, operation: Pub | HPub, reply: bytes | None, route: Route
    ) -> bool:
        permits = connection.permits
        if not isinstance(operation, HPub) or permits is None:
            return original(connection, operation, reply, route)
        connection.permits = None
        try:
            return original(connection, operation, reply, route)
        finally:
            connection.permits = permits

    replace(broker, "admits", admits)


@defect("CORE-055")
def denials_are_not_for_queue_groups(broker: Broker) -> None:
    """A subscription in a queue group also gets messages of subjects that are denied."""
    original = broker.router.admits

    def admits(subscription: Subscription, subject: bytes, publisher: NatsClientConnection | None) -> bool:
        return subscription.queue is not None or original(subscription, subject, publisher)

    replace(broker.router, "admits", admits)


@defect("CORE-131")
def requests_with_headers_have_no_answer(broker: Broker) -> None:
    """allow_responses is for requests without headers."""
    original = broker.router.on_delivered

    def on_delivered(subscription: Subscription, message: RoutedMessage) -> None:
        if message.stripped is None:
            original(subscription, message)

    replace(broker.router, "on_delivered", on_delivered)


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


@method_defect(Broker.message, "CORE-055")
def denied_messages_with_headers_reach_wildcards(
    broker: Broker,
    subject: bytes,
    reply: bytes | None,
    sizes: tuple[bytes, bytes],
    block: bytes,
    payload: bytes,
) -> RoutedMessage:
    """A wildcard subscription gets messages with headers that the user may not receive."""
    message = Broker.message(broker, subject, reply, sizes, block, payload)
    return RoutedMessage(b"", message.tail, message.stripped)


def _of_groups(broker: Broker, list_: str, found: Callable[[SubjectPermissions, bytes, bytes], bool]) -> None:
    """Another answer of ``allows`` or ``denies`` about subscriptions in queue groups."""

    def change(permits: ConnectionPermissions) -> None:
        original = getattr(permits.subscribe, list_)

        def answer(subject: bytes, queue: bytes | None = None) -> bool:
            given: bool = original(subject, queue)
            return given if not queue else found(permits.subscribe, subject, queue)

        replace(permits.subscribe, list_, answer)

    _with_permits(broker, change)


@defect("CORE-114")
def queue_permissions_are_for_any_group(broker: Broker) -> None:
    """A permission of a queue group allows every group on its subject."""
    _of_groups(
        broker, "allows", lambda lists, subject, queue: SubjectPermissions.allows(lists, subject, b"v1")
    )


@defect("CORE-114")
def queue_permissions_have_no_wildcards(broker: Broker) -> None:
    """Wildcards in the queue group of a permission are literal."""
    _of_groups(
        broker,
        "allows",
        lambda lists, subject, queue: queue == b"v1" and SubjectPermissions.allows(lists, subject, queue),
    )


@defect("CORE-114")
def queue_permissions_begin_alike(broker: Broker) -> None:
    """The queue group of a permission allows every group whose name begins with it."""
    _of_groups(
        broker,
        "allows",
        lambda lists, subject, queue: (
            queue.startswith(b"v1") or SubjectPermissions.allows(lists, subject, queue)
        ),
    )


@defect("CORE-114")
def queue_denials_are_ignored(broker: Broker) -> None:
    """A denial of a queue group denies nothing."""
    _of_groups(broker, "denies", lambda lists, subject, queue: False)


@defect("CORE-114")
def queue_permissions_are_for_no_group_as_well(broker: Broker) -> None:
    """A permission of a queue group allows a subscription in no group, too."""

    def change(permits: ConnectionPermissions) -> None:
        original = permits.subscribe.allows

        def allows(subject: bytes, queue: bytes | None = None) -> bool:
            return original(subject, queue or b"v1")

        replace(permits.subscribe, "allows", allows)

    _with_permits(broker, change)


@defect("CORE-131")
def answers_are_without_number(broker: Broker) -> None:
    """A user with allow_responses may answer a message as often as it likes."""

    def change(permits: ConnectionPermissions) -> None:
        replace(permits, "may_respond", lambda subject, now: subject in permits.replies)

    _with_permits(broker, change)


@defect("CORE-131")
def one_answer_is_all(broker: Broker) -> None:
    """A user with allow_responses may answer one message, and no other one after it."""

    def change(permits: ConnectionPermissions) -> None:
        expect_response, answered = permits.expect_response, set[bytes]()

        def expected(reply: bytes, now: int) -> None:
            if not answered or reply in answered:
                answered.add(reply)
                expect_response(reply, now)

        replace(permits, "expect_response", expected)

    _with_permits(broker, change)


@defect("CORE-131")
def max_of_responses_is_ignored(broker: Broker) -> None:
    """A user with allow_responses may answer a message once, whatever its max is."""
    _with_responses(broker, max_msgs=1)


@defect("CORE-131")
def who_may_answer_may_publish_all(broker: Broker) -> None:
    """A user with allow_responses may publish on every subject."""
    _with_permits(
        broker,
        lambda permits: replace(permits.publish, "allows", lambda subject: permits.responses is not None),
    )


@defect("CORE-132")
def permission_to_answer_does_not_expire(broker: Broker) -> None:
    """A user with allow_responses may answer a message however late it is."""
    _with_responses(broker, expires=-1.0)


@defect("CORE-132")
def permission_to_answer_expires_early(broker: Broker) -> None:
    """The permission to answer expires after a third of its time."""
    _with_responses(broker, expires=1 / 3)


def _with_responses(broker: Broker, **other: float) -> None:
    """The permissions to answer of every user that has one."""

    def change(permits: ConnectionPermissions) -> None:
        if permits.responses is not None:
            replace(permits, "responses", structs.replace(permits.responses, **other))

    _with_permits(broker, change)
