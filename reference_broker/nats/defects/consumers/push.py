"""Defects of push consumers: who listens, what is delivered and shown. What is right: ``jetstream.push``."""

from __future__ import annotations

from collections.abc import Iterator

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_answer
from plumbline.reference_broker.nats.defects.methods import (
    alter_consumers,
    alter_service,
    jetstream_of,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.api.consumers import describe
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.flow_control import FlowWindow
from plumbline.reference_broker.nats.jetstream.errors import CONSUMER_NAME_IN_USE
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.routing import Target

# What is delivered


@method_defect(Consumer.send, "JS-CONS-071")
def push_renames_messages(
    self: Consumer, target: bytes, subject: bytes, reply: bytes, header_block: bytes, payload: bytes
) -> int:
    """Push consumers deliver under the deliver_subject instead of the subject of the message."""
    shown = subject if self.config.is_pull else target
    return Consumer.send(self, target, shown, reply, header_block, payload)


@method_defect(Consumer.ack_subject, "JS-CONS-071")
def push_without_ack_subject(self: Consumer, message: StoredMessage, deliveries: int) -> bytes:
    """Push consumers deliver without a reply, so that nothing can be acknowledged."""
    return Consumer.ack_subject(self, message, deliveries) if self.config.is_pull else b""


# What is shown


# Who listens


@defect("JS-CONS-074")
def push_delivers_to_nobody(broker: Broker) -> None:
    """A push consumer without a subscriber delivers into the void, and counts it."""

    def is_listened_to(self: Consumer) -> bool:
        return True

    def send(self: Consumer, *message: bytes) -> int:
        received = Consumer.send(self, *message)
        return received if self.config.is_pull else 1

    alter_consumers(broker, has_interest=is_listened_to, send=send)


@method_defect(Consumer.on_interest_changed, "JS-CONS-075", "JS-CONS-091")
def push_does_not_notice_subscribers(self: Consumer, now: int) -> None:
    """A push consumer that was made before its subscriber never delivers to it."""
    if self.active:
        Consumer.on_interest_changed(self, now)


@defect("JS-CONS-078")
def push_target_moves_under_its_subscriber(broker: Broker) -> None:
    """Another deliver_subject for a push consumer that has its subscriber is not refused."""

    def change(fields: Fields, request: Request) -> None:
        if fields.get("error", {}).get("err_code") != CONSUMER_NAME_IN_USE().err_code:
            return
        stream, name = request.names
        consumer = jetstream_of(broker).find_consumer(stream.encode(), name.encode())
        if consumer is not None:
            del fields["error"]
            fields.update(describe(consumer, request.now))

    alter_answer(broker, "consumer_create", change)


@method_defect(Consumer.start, "JS-CONS-090")
def push_ephemeral_ignores_earlier_subscriptions(self: Consumer, now: int) -> None:
    """An ephemeral push consumer delivers only to subscriptions that are made after it."""
    Consumer.start(self, now)
    if not self.config.durable_name:
        self.active = False
        self.run_timer.clear()


@defect("JS-PUSH-027")
def push_serves_one_of_two_subscribers(broker: Broker) -> None:
    """A push consumer without deliver_group gives each message to the subscriber that came first."""

    def send(self: Consumer, target: bytes, *message: bytes) -> int:
        route = broker.router.route(target)
        subscribers, route.plain = route.plain, route.plain[:1]
        try:
            return Consumer.send(self, target, *message)
        finally:
            route.plain = subscribers

    alter_consumers(broker, send=send)


# Queue groups


@method_defect(Consumer.send, "JS-CONS-076")
def push_group_gets_messages_twice(
    self: Consumer, target: bytes, subject: bytes, reply: bytes, header_block: bytes, payload: bytes
) -> int:
    """A push consumer with deliver_group gives each message to two members of it."""
    if self.config.deliver_group:
        Consumer.send(self, target, subject, reply, header_block, payload)
    return Consumer.send(self, target, subject, reply, header_block, payload)


@defect("JS-CONS-076")
def push_group_has_a_favourite(broker: Broker) -> None:
    """A push consumer with deliver_group gives all messages to the member that came first."""
    router = broker.router
    fair = router.in_random_order

    def in_order(group: list[Target]) -> Iterator[Target]:
        return iter(group)

    def send(self: Consumer, *message: bytes) -> int:
        replace(router, "in_random_order", in_order)
        try:
            return Consumer.send(self, *message)
        finally:
            replace(router, "in_random_order", fair)

    alter_consumers(broker, send=send)


@method_defect(Consumer.has_interest, "JS-CONS-077")
def push_group_is_bound_by_anybody(self: Consumer) -> bool:
    """A push consumer with deliver_group delivers to any subscriber of its deliver_subject."""
    return self.host.has_interest(self.target)


# The end of an ephemeral consumer


@method_defect(Consumer.on_inactive, "JS-CONS-092")
def push_ephemeral_stays(self: Consumer, now: int) -> None:
    """An ephemeral push consumer whose subscriber has left is not deleted."""
    if self.config.is_pull:
        Consumer.on_inactive(self, now)


@defect("JS-CONS-092")
def push_ephemeral_goes_under_its_subscriber(broker: Broker) -> None:
    """An ephemeral push consumer is deleted after inactive_threshold although it has a subscriber."""

    def bound(self: Consumer, now: int) -> None:
        Consumer.on_subscribed(self, now)
        self.watch_inactivity(now)

    def in_use_for(self: Consumer, now: int) -> int:
        return Consumer.minimum_lifetime(self, now) if self.config.is_pull else 0

    alter_consumers(broker, on_subscribed=bound, minimum_lifetime=in_use_for)


# Pauses and ordered consumers


@method_defect(Consumer.run, "JS-CONS-096")
def push_pause_is_ignored(self: Consumer, now: int) -> None:
    """A paused push consumer delivers all the same."""
    if self.config.is_pull:
        Consumer.run(self, now)
    else:
        self.push(now)


@method_defect(Consumer.start, "JS-CONS-098")
def ordered_sequences_begin_at_the_start_sequence(self: Consumer, now: int) -> None:
    """A push consumer that starts at a sequence counts its deliveries from there, not from 1."""
    self.acks.delivered.consumer = max(self.config.opt_start_seq - 1, 0)
    Consumer.start(self, now)


@method_defect(Consumer.on_interest_changed, "JS-CONS-113")
def push_other_groups_begin_the_threshold_anew(self: Consumer, now: int) -> None:
    """A subscription in another queue group begins the inactive_threshold anew."""
    Consumer.on_interest_changed(self, now)
    if not self.active:
        self.watch_inactivity(now)


@method_defect(Consumer.minimum_lifetime, "JS-CONS-113")
def push_other_groups_keep_the_consumer(self: Consumer, now: int) -> int:
    """An ephemeral push consumer stays while anybody is subscribed to its deliver_subject."""
    listened_to = not self.config.is_pull and self.host.has_interest(self.target)
    return self.config.inactive_threshold if listened_to else Consumer.minimum_lifetime(self, now)


@defect("JS-CONS-072", needs=("jetstream",))
def push_bound_outlives_clients_of_many_subscriptions(broker: Broker) -> None:
    """That a subscription has ended is not noticed if its client, with thousands of others, is gone."""
    take_out_some = broker.router.take_out_some

    def unnoticed() -> None:
        take_out_some()
        broker.router.ended.clear()

    replace(broker.router, "take_out_some", unnoticed)


# Flow control


@method_defect(Consumer.record_sent, "JS-CONS-115")
def push_flow_requests_do_not_wait(self: Consumer, window: FlowWindow, size: int) -> None:
    """Beyond half of the window each message is followed by a flow control request."""
    window.sent(size)
    if window.pending > window.size // 2:
        self.send_flow_request(window)


@method_defect(Consumer.on_heartbeat_timer, "JS-CONS-116")
def push_flow_requests_go_to_nobody(self: Consumer, now: int) -> None:
    """With ack_policy flow_control a request is sent although there is no subscriber."""
    if not self.active and self.window is not None and self.acks_are_due(self.window):
        self.send_flow_request(self.window)
    Consumer.on_heartbeat_timer(self, now)


@defect("CORE-076", needs=("jetstream",))
def flow_control_subjects_are_always_served(broker: Broker) -> None:
    """A request to any flow control subject gets no 503."""

    def answer_flow_control(self: JetStream, subject: bytes, header_block: bytes, now: int) -> bool:
        JetStream.answer_flow_control(self, subject, header_block, now)
        return True

    alter_service(broker, answer_flow_control=answer_flow_control)
