"""Defects of priority groups. What is right: ``jetstream.priority``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_answer,
    alter_body,
    alter_success,
)
from plumbline.reference_broker.nats.defects.consumers.configuration import Config, alter_config, is_pull
from plumbline.reference_broker.nats.defects.methods import alter_consumers, jetstream_of
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.priority import QUEUES, OverflowQueue
from plumbline.reference_broker.nats.jetstream.consumers.pull import WaitingQueue, WaitingRequest
from plumbline.wire.nats.jetstream import PullRequest

UNPIN = "consumer_unpin"


def alter_queues(broker: Broker, policy: str, **methods: Callable[..., Any]) -> None:
    """Methods of the queue of each consumer that has this priority_policy."""

    def pull(self: Consumer, *request: Any) -> None:
        if self.config.priority_policy == policy:
            for name, method in methods.items():
                setattr(self.waiting, name, method.__get__(self.waiting))
        Consumer.pull(self, *request)

    alter_consumers(broker, pull=pull)


@defect("JS-CONS-099")
def overflow_ignores_min_pending(broker: Broker) -> None:
    """The priority policy overflow serves every request, whatever its min_pending is."""
    alter_queues(broker, "overflow", is_its_turn=WaitingQueue.is_its_turn)


@defect("JS-CONS-105")
def overflow_ignores_min_ack_pending(broker: Broker) -> None:
    """The priority policy overflow serves a request with min_ack_pending alone as one without conditions."""

    def is_its_turn(self: WaitingQueue, request: WaitingRequest) -> bool:
        has_own = request.pull_request.min_pending > 0
        return not has_own or OverflowQueue.is_its_turn(cast("OverflowQueue", self), request)

    alter_queues(broker, "overflow", is_its_turn=is_its_turn)


@defect("JS-CONS-105")
def overflow_wants_both(broker: Broker) -> None:
    """The priority policy overflow serves a request only when min_pending and min_ack_pending are reached."""

    def is_its_turn(self: WaitingQueue, request: WaitingRequest) -> bool:
        asked, consumer = request.pull_request, cast("OverflowQueue", self).consumer
        has_enough = consumer.num_pending >= asked.min_pending
        return has_enough and consumer.reported_ack_pending() >= asked.min_ack_pending

    alter_queues(broker, "overflow", is_its_turn=is_its_turn)


@defect("JS-CONS-106")
def priority_needs_no_group(broker: Broker) -> None:
    """A priority_policy without a group is passed over."""

    def change(config: Config) -> None:
        if not config.get("priority_groups"):
            config.pop("priority_policy", None)

    alter_config(broker, change)


@defect("JS-CONS-107")
def priority_of_push_consumers_is_ignored(broker: Broker) -> None:
    """The priority_policy of a push consumer is passed over."""

    def change(config: Config) -> None:
        if not is_pull(config):
            config.pop("priority_policy", None)
            config.pop("priority_groups", None)

    alter_config(broker, change)


@defect("JS-CONS-099")
def pinned_client_is_not_told(broker: Broker) -> None:
    """The priority policy pinned_client delivers without Nats-Pin-Id."""
    alter_queues(broker, "pinned_client", marked=WaitingQueue.marked)


@defect("JS-CONS-099")
def priorities_are_ignored(broker: Broker) -> None:
    """The priority policy prioritized serves requests in the order they came."""
    alter_queues(broker, "prioritized", enqueue=WaitingQueue.enqueue, rotate=WaitingQueue.rotate)


@defect("JS-PULL-070")
def priorities_have_no_limit(broker: Broker) -> None:
    """A priority may be any number."""
    _with_priorities(broker, lambda priority: 0)


@defect("JS-PULL-070")
def priorities_have_no_lower_limit(broker: Broker) -> None:
    """A priority may be below 0."""
    _with_priorities(broker, lambda priority: max(priority, 0))


@defect("JS-PULL-070")
def priorities_go_to_ten(broker: Broker) -> None:
    """A priority may be 10."""
    _with_priorities(broker, lambda priority: priority - 1 if priority > 0 else priority)


def _with_priorities(broker: Broker, judged: Callable[[int], int]) -> None:
    """Another priority is compared with the limits."""

    def check_group(self: WaitingQueue, request: PullRequest) -> None:
        request = msgspec.structs.replace(request, priority=judged(request.priority))
        QUEUES["prioritized"].check_group(self, request)

    alter_queues(broker, "prioritized", check_group=check_group)


# -- pinned clients --------------------------------------------------------------------------------


@defect("JS-CONS-117")
def pinned_client_stays_pinned(broker: Broker) -> None:
    """A pinned client stays pinned, however long it makes no pull request."""
    alter_consumers(broker, pinned=lambda self: self.stream.jetstream.now)


@defect("JS-CONS-117")
def pinned_client_is_followed_too_early(broker: Broker) -> None:
    """A pinned client is followed by another after half of priority_timeout."""

    def pinned(self: Consumer) -> int:
        now = self.stream.jetstream.now
        self.pin_timer.set(now + self.config.priority_timeout // 2)
        return now

    alter_consumers(broker, pinned=pinned)


@defect("JS-CONS-117")
def pinned_client_is_not_heard(broker: Broker) -> None:
    """The priority_timeout of a pinned client runs from the moment when it was pinned."""

    def pinned(self: Consumer) -> int:
        now = self.stream.jetstream.now
        self.pin_timer.set_earliest(now + self.config.priority_timeout)
        return now

    alter_consumers(broker, pinned=pinned)


@defect("JS-CONS-117", "JS-CONS-118")
def pinned_clients_share_an_id(broker: Broker) -> None:
    """The client that is pinned next gets the Nats-Pin-Id of the one before."""

    def new_pin(self: Consumer) -> str:
        self.unannounced_pin = f"pin{self.name}"
        return self.unannounced_pin

    alter_consumers(broker, new_pin=new_pin)


@defect("JS-CONS-118")
def unpin_changes_nothing(broker: Broker) -> None:
    """CONSUMER.UNPIN is answered, and the pinned client stays pinned."""

    def unpin(self: Consumer, now: int, reason: str = "timeout") -> None:
        if reason != "admin":
            Consumer.unpin(self, now, reason)

    alter_consumers(broker, unpin=unpin)


@defect("JS-CONS-118")
def unpin_waits_for_a_message(broker: Broker) -> None:
    """After CONSUMER.UNPIN a pull request that waits is served when the next message is stored."""
    unpinning: set[str] = set()

    def unpin(self: Consumer, now: int, reason: str = "timeout") -> None:
        unpinning.add(self.name)
        Consumer.unpin(self, now, reason)
        unpinning.clear()

    def run(self: Consumer, now: int) -> None:
        if self.name not in unpinning:
            Consumer.run(self, now)

    alter_consumers(broker, unpin=unpin, run=run)


def _asked(broker: Broker, request: Request) -> Consumer:
    """The consumer that a request names."""
    return jetstream_of(broker).streams[request.names[0]].consumers[request.names[1]]


def _first_group(broker: Broker, request: Request) -> str:
    return _asked(broker, request).config.priority_groups[0]


@defect("JS-CONS-119")
def unpin_takes_any_group(broker: Broker) -> None:
    """CONSUMER.UNPIN of a group that the consumer does not have is one of its first group."""

    def change(body: Fields, request: Request) -> None:
        if body.get("group"):
            body["group"] = _first_group(broker, request)

    alter_body(broker, UNPIN, change)


@defect("JS-CONS-119")
def unpin_needs_no_group(broker: Broker) -> None:
    """CONSUMER.UNPIN without a group is one of the consumer's first group."""

    def change(body: Fields, request: Request) -> None:
        body["group"] = body.get("group") or _first_group(broker, request)

    alter_body(broker, UNPIN, change)


@defect("JS-CONS-119")
def unpin_is_refused_and_done(broker: Broker) -> None:
    """CONSUMER.UNPIN of a group that the consumer does not have is refused, and no client is pinned."""

    def change(fields: Fields, request: Request) -> None:
        if "error" in fields:
            _asked(broker, request).unpin(request.now, "admin")

    alter_answer(broker, UNPIN, change)


@defect("JS-CONS-120")
def info_does_not_show_the_pinned_client(broker: Broker) -> None:
    """CONSUMER.INFO shows priority groups without the pinned client."""

    def change(fields: Fields, request: Request) -> None:
        fields["priority_groups"] = [{"group": row["group"]} for row in fields.get("priority_groups", ())]

    alter_success(broker, "consumer_info", change)


@defect("JS-CONS-120")
def info_shows_who_was_pinned(broker: Broker) -> None:
    """CONSUMER.INFO shows the client that was pinned last, also when it no longer is."""
    shown: dict[str, Fields] = {}

    def change(fields: Fields, request: Request) -> None:
        for row in fields.get("priority_groups", ()):
            if "pinned_client_id" in row:
                shown[request.names[1]] = row
            row.update(shown.get(request.names[1], {}))

    alter_success(broker, "consumer_info", change)
