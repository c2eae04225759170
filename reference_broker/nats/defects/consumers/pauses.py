"""Defects of pauses where they meet redelivery and other pauses. What is right: ``delivery.pause``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers, method_defect
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer


def _run_as_if_not_paused(consumer: Consumer, now: int) -> None:
    paused_until, consumer.paused_until = consumer.paused_until, 0
    Consumer.run(consumer, now)
    consumer.paused_until = paused_until


@method_defect(Consumer.run, "JS-CONS-137")
def paused_consumer_redelivers(self: Consumer, now: int) -> None:
    """A paused consumer delivers again what is due."""
    if self.acks.queue:
        _run_as_if_not_paused(self, now)
    else:
        Consumer.run(self, now)


@defect("JS-CONS-150")
def pause_of_a_new_pull_consumer_is_shown_alone(broker: Broker) -> None:
    """A pull consumer that is made with pause_until shows that it is paused, and delivers."""

    def pause(self: Consumer, config: ConsumerConfig) -> None:
        vars(self)["is_new"] = "is_new" not in vars(self)
        Consumer.pause(self, config)

    def run(self: Consumer, now: int) -> None:
        if self.config.is_pull and vars(self)["is_new"]:
            _run_as_if_not_paused(self, now)
        else:
            Consumer.run(self, now)

    alter_consumers(broker, pause=pause, run=run)


@method_defect(Consumer.pause, "JS-CONS-151")
def second_pause_only_prolongs(self: Consumer, config: ConsumerConfig) -> None:
    """A second pause that ends before the first one changes nothing."""
    before = vars(self).get("paused_until", 0)
    Consumer.pause(self, config)
    if 0 < self.paused_until < before:
        self.paused_until = before


@method_defect(Consumer.resume, "JS-CONS-153")
def pause_ends_with_a_restart(self: Consumer, now: int) -> None:
    """After a restart of the broker a consumer that was paused delivers."""
    self.paused_until = 0
    Consumer.resume(self, now)
