"""Defects of priority groups. What is right: ``jetstream.priority``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.consumers.configuration import Config, alter_config, is_pull
from plumbline.reference_broker.nats.defects.methods import alter_consumers
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.priority import QUEUES, OverflowQueue
from plumbline.reference_broker.nats.jetstream.consumers.pull import WaitingQueue, WaitingRequest
from plumbline.wire.nats.jetstream import PullRequest


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
