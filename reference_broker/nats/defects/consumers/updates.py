"""Defects of updates: what one shows in its answer, and does not change. What is right: ``consumer``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers, method_defect
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer


def _as_made(broker: Broker, field: str, *methods: Callable[..., Any]) -> None:
    """These methods of a consumer know ``field`` as it was when the consumer was made."""

    def filter_by(self: Consumer, config: ConsumerConfig) -> None:
        vars(self).setdefault("made", config)
        Consumer.filter_by(self, config)

    def faulty(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Consumer, *arguments: Any, **options: Any) -> Any:
            config = self.config
            made = vars(self).get("made", config)
            self.config = structs.replace(config, **{field: getattr(made, field)})
            try:
                return method(self, *arguments, **options)
            finally:
                self.config = config

        return call

    alter_consumers(broker, filter_by=filter_by, **{each.__name__: faulty(each) for each in methods})


@method_defect(Consumer.reconfigure, "JS-CONS-130")
def update_leaves_the_limits_of_pulls(self: Consumer, config: ConsumerConfig, now: int) -> None:
    """Pull requests are held to the limits that the consumer was made with."""
    limits = self.waiting.config
    Consumer.reconfigure(self, config, now)
    self.waiting.config = limits


@method_defect(Consumer.redirect, "JS-CONS-131")
def update_leaves_deliver_subject(self: Consumer, config: ConsumerConfig, now: int) -> None:
    """A push consumer goes on delivering to the deliver_subject that it was made with."""
    Consumer.redirect(self, structs.replace(config, deliver_subject=self.target.decode()), now)


@defect("JS-CONS-132")
def update_leaves_max_deliver(broker: Broker) -> None:
    """An update does not change how often a message is delivered."""
    _as_made(broker, "max_deliver", Consumer.is_exhausted, Consumer.request_redelivery_of)


@defect("JS-CONS-133")
def update_leaves_headers_only(broker: Broker) -> None:
    """An update does not change whether payloads are delivered."""
    _as_made(broker, "headers_only", Consumer.content)


@method_defect(Consumer.filter_by, "JS-CONS-134")
def update_of_filters_forgets_pending(self: Consumer, config: ConsumerConfig) -> None:
    """After an update of its filters a consumer takes as acknowledged what was delivered before."""
    self.acks.pending.clear()
    Consumer.filter_by(self, config)


@defect("JS-CONS-144")
def update_leaves_backoff(broker: Broker) -> None:
    """An update does not change the steps of backoff."""
    _as_made(broker, "backoff", Consumer.redelivery_delay)


@defect("JS-CONS-145")
def update_leaves_inactive_threshold(broker: Broker) -> None:
    """An update does not change when an unused consumer is deleted."""
    _as_made(broker, "inactive_threshold", Consumer.watch_inactivity, Consumer.minimum_lifetime)


@defect("JS-CONS-146")
def update_leaves_sampling(broker: Broker) -> None:
    """An update does not change whether acknowledgements are sampled."""
    _as_made(broker, "sample_freq", Consumer.ack)


@defect("JS-CONS-147")
def update_only_raises_max_ack_pending(broker: Broker) -> None:
    """An update that lowers max_ack_pending changes nothing."""
    _as_made(broker, "max_ack_pending", Consumer.is_blocked)


@method_defect(Consumer.redirect, "JS-CONS-154")
def update_leaves_the_rate(self: Consumer, config: ConsumerConfig, now: int) -> None:
    """An update does not change at which rate a push consumer delivers."""
    rate_limit = self.rate_limit
    Consumer.redirect(self, config, now)
    self.rate_limit = rate_limit
