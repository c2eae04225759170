"""Defects of push consumers: who listens, what is delivered and shown. What is right: ``jetstream.push``."""

from __future__ import annotations

from collections.abc import Iterator

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_answer, alter_success
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    jetstream_defect,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream.api.consumers import describe
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.errors import CONSUMER_NAME_IN_USE
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.reference_broker.nats.routing import Target

# What is delivered


@jetstream_defect(
    "push-renames-messages",
    breaks=("JS-CONS-071",),
    summary="Push consumers deliver under the deliver_subject instead of the subject of the message.",
)
def _(broker: Broker) -> None:
    def send(
        self: Consumer, target: bytes, subject: bytes, reply: bytes, header_block: bytes, payload: bytes
    ) -> int:
        shown = subject if self.config.is_pull else target
        return Consumer.send(self, target, shown, reply, header_block, payload)

    alter_consumers(broker, send=send)


@jetstream_defect(
    "push-without-ack-subject",
    breaks=("JS-CONS-071",),
    summary="Push consumers deliver without a reply, so that nothing can be acknowledged.",
)
def _(broker: Broker) -> None:
    def ack_subject(self: Consumer, message: Message, deliveries: int) -> bytes:
        return Consumer.ack_subject(self, message, deliveries) if self.config.is_pull else b""

    alter_consumers(broker, ack_subject=ack_subject)


# What is shown


@jetstream_defect(
    "push-bound-is-never-shown",
    breaks=("JS-CONS-072",),
    summary="Consumer info leaves out push_bound.",
)
def _(broker: Broker) -> None:
    alter_success(broker, "consumer_info", lambda fields, request: fields.pop("push_bound", None))


@jetstream_defect(
    "push-bound-is-always-shown",
    breaks=("JS-CONS-072",),
    summary="Consumer info shows push_bound for a push consumer without a subscriber, too.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if "deliver_subject" in fields["config"]:
            fields["push_bound"] = True

    alter_success(broker, "consumer_info", change)


@jetstream_defect(
    "push-shows-max-waiting",
    breaks=("JS-CONS-073",),
    summary="A push consumer shows the max_waiting of pull consumers.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if "deliver_subject" in fields["config"]:
            fields["config"]["max_waiting"] = 512

    alter_success(broker, "consumer_create", change)


# Who listens


@jetstream_defect(
    "push-delivers-to-nobody",
    breaks=("JS-CONS-074",),
    summary="A push consumer without a subscriber delivers into the void, and counts it.",
)
def _(broker: Broker) -> None:
    def is_listened_to(self: Consumer) -> bool:
        return True

    def send(self: Consumer, *message: bytes) -> int:
        received = Consumer.send(self, *message)
        return received if self.config.is_pull else 1

    alter_consumers(broker, is_listened_to=is_listened_to, send=send)


@jetstream_defect(
    "push-does-not-notice-subscribers",
    breaks=("JS-CONS-075", "JS-CONS-091"),
    summary="A push consumer that was made before its subscriber never delivers to it.",
)
def _(broker: Broker) -> None:
    def interest_changed(self: Consumer, now: int) -> None:
        if self.active:
            Consumer.interest_changed(self, now)

    alter_consumers(broker, interest_changed=interest_changed)


@jetstream_defect(
    "push-target-moves-under-its-subscriber",
    breaks=("JS-CONS-078",),
    summary="Another deliver_subject for a push consumer that has its subscriber is not refused.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if fields.get("error", {}).get("err_code") != CONSUMER_NAME_IN_USE().err_code:
            return
        stream, name = request.names
        consumer = jetstream_of(broker).find_consumer(stream.encode(), name.encode())
        if consumer is not None:
            del fields["error"]
            fields.update(describe(consumer, request.now))

    alter_answer(broker, "consumer_create", change)


@jetstream_defect(
    "push-ephemeral-ignores-earlier-subscriptions",
    breaks=("JS-CONS-090",),
    summary="An ephemeral push consumer delivers only to subscriptions that are made after it.",
)
def _(broker: Broker) -> None:
    def begin(self: Consumer, now: int) -> None:
        Consumer.begin(self, now)
        if not self.config.durable_name:
            self.active = False
            self.run_timer.clear()

    alter_consumers(broker, begin=begin)


# Queue groups


@jetstream_defect(
    "push-group-gets-messages-twice",
    breaks=("JS-CONS-076",),
    summary="A push consumer with deliver_group gives each message to two members of it.",
)
def _(broker: Broker) -> None:
    def send(self: Consumer, *message: bytes) -> int:
        if self.config.deliver_group:
            Consumer.send(self, *message)
        return Consumer.send(self, *message)

    alter_consumers(broker, send=send)


@jetstream_defect(
    "push-group-has-a-favourite",
    breaks=("JS-CONS-076",),
    summary="A push consumer with deliver_group gives all messages to the member that came first.",
)
def _(broker: Broker) -> None:
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


@jetstream_defect(
    "push-group-is-bound-by-anybody",
    breaks=("JS-CONS-077",),
    summary="A push consumer with deliver_group delivers to any subscriber of its deliver_subject.",
)
def _(broker: Broker) -> None:
    def is_listened_to(self: Consumer) -> bool:
        return self.host.has_interest(self.target)

    alter_consumers(broker, is_listened_to=is_listened_to)


# The end of an ephemeral consumer


@jetstream_defect(
    "push-ephemeral-stays",
    breaks=("JS-CONS-092",),
    summary="An ephemeral push consumer whose subscriber has left is not deleted.",
)
def _(broker: Broker) -> None:
    def inactive_due(self: Consumer, now: int) -> None:
        if self.config.is_pull:
            Consumer.inactive_due(self, now)

    alter_consumers(broker, inactive_due=inactive_due)


@jetstream_defect(
    "push-ephemeral-goes-under-its-subscriber",
    breaks=("JS-CONS-092",),
    summary="An ephemeral push consumer is deleted after inactive_threshold although it has a subscriber.",
)
def _(broker: Broker) -> None:
    def bound(self: Consumer, now: int) -> None:
        Consumer.bound(self, now)
        self.watch_inactivity(now)

    def in_use_for(self: Consumer, now: int) -> int:
        return Consumer.in_use_for(self, now) if self.config.is_pull else 0

    alter_consumers(broker, bound=bound, in_use_for=in_use_for)


# Pauses and ordered consumers


@jetstream_defect(
    "push-pause-is-ignored",
    breaks=("JS-CONS-096",),
    summary="A paused push consumer delivers all the same.",
)
def _(broker: Broker) -> None:
    def run(self: Consumer, now: int) -> None:
        if self.config.is_pull:
            Consumer.run(self, now)
        else:
            self.push(now)

    alter_consumers(broker, run=run)


@jetstream_defect(
    "ordered-sequences-begin-at-the-start-sequence",
    breaks=("JS-CONS-098",),
    summary="A push consumer that starts at a sequence counts its deliveries from there, not from 1.",
)
def _(broker: Broker) -> None:
    def begin(self: Consumer, now: int) -> None:
        self.acks.delivered.consumer = max(self.config.opt_start_seq - 1, 0)
        Consumer.begin(self, now)

    alter_consumers(broker, begin=begin)
