"""Defects of priority groups. What is right: ``jetstream.priority``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import WaitingQueue


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


@defect("JS-CONS-099")
def pinned_client_is_not_told(broker: Broker) -> None:
    """The priority policy pinned_client delivers without Nats-Pin-Id."""
    alter_queues(broker, "pinned_client", marked=WaitingQueue.marked)


@defect("JS-CONS-099")
def priorities_are_ignored(broker: Broker) -> None:
    """The priority policy prioritized serves requests in the order they came."""
    alter_queues(broker, "prioritized", enqueue=WaitingQueue.enqueue, rotate=WaitingQueue.rotate)
