"""Defects of CONSUMER.RESET. ADR-60, "Consumer delivery state reset API"."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_answer, body_of
from plumbline.reference_broker.nats.defects.methods import alter_consumers, jetstream_of, method_defect
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import ApiRoute
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer

RESET = "consumer_reset"


@method_defect(Consumer.reset, "JS-CONS-111", "JS-CONS-112")
def cons_reset_keeps_pending(self: Consumer, seq: int, now: int) -> None:
    """What was pending before a reset stays so."""
    pending = self.acks.pending
    Consumer.reset(self, seq, now)
    self.acks.pending.update(pending)


@method_defect(Consumer.reset, "JS-CONS-111", "JS-CONS-112")
def cons_reset_keeps_redelivered(self: Consumer, seq: int, now: int) -> None:
    """What was delivered again before a reset stays counted."""
    redelivered = self.acks.redelivered
    Consumer.reset(self, seq, now)
    self.acks.redelivered.update(redelivered)


@method_defect(Consumer.reset, "JS-CONS-111", "JS-CONS-112")
def cons_reset_counts_on(self: Consumer, seq: int, now: int) -> None:
    """The consumer sequence goes on after a reset."""
    delivered = self.acks.delivered.consumer
    Consumer.reset(self, seq, now)
    self.acks.delivered.consumer = delivered


@method_defect(Consumer.reset, "JS-CONS-111", "JS-CONS-112")
def cons_reset_skips_one(self: Consumer, seq: int, now: int) -> None:
    """Delivery after a reset begins one message later."""
    Consumer.reset(self, seq, now)
    self.position.passed(seq)


@method_defect(Consumer.reset, "JS-CONS-111", "JS-CONS-112")
def cons_reset_stays_where_it_is(self: Consumer, seq: int, now: int) -> None:
    """A reset forgets what is pending, and delivers what comes next all the same."""
    position = self.position
    Consumer.reset(self, seq, now)
    self.position = position


@method_defect(Consumer.reset, "JS-CONS-111", "JS-CONS-112")
def cons_reset_moves_no_floor(self: Consumer, seq: int, now: int) -> None:
    """The ack_floor begins at 0 again after a reset, or stays beyond it."""
    floor = self.acks.floor.stream
    Consumer.reset(self, seq, now)
    self.acks.floor.stream = 0 if floor == seq - 1 else floor


@defect("JS-CONS-111", "JS-CONS-112")
def cons_reset_is_done_once(broker: Broker) -> None:
    """A second reset is answered and does nothing."""
    done: list[Consumer] = []

    def reset(self: Consumer, seq: int, now: int) -> None:
        if self not in done:
            done.append(self)
            Consumer.reset(self, seq, now)

    alter_consumers(broker, reset=reset)


def _resets_as(broker: Broker, change: Callable[[ConsumerConfig], ConsumerConfig]) -> None:
    """CONSUMER.RESET looks at another configuration."""
    service = jetstream_of(broker)
    answer = service.api.answer

    def altered(route: ApiRoute, request: Request, header_block: bytes) -> Fields:
        if route.kind != RESET:
            return answer(route, request, header_block)
        consumer = service.streams[request.names[0]].consumers[request.names[1]]
        right, consumer.config = consumer.config, change(consumer.config)
        try:
            return answer(route, request, header_block)
        finally:
            consumer.config = right

    replace(service.api, "answer", altered)


@defect("JS-CONS-121")
def cons_reset_is_for_every_policy(broker: Broker) -> None:
    """A reset to a sequence is done, whatever the deliver_policy is."""
    _resets_as(broker, lambda config: msgspec.structs.replace(config, deliver_policy="all"))


@defect("JS-CONS-121")
def cons_reset_goes_below_the_first_sequence(broker: Broker) -> None:
    """A reset may go below opt_start_seq."""
    _resets_as(broker, lambda config: msgspec.structs.replace(config, opt_start_seq=0))


@defect("JS-CONS-121")
def cons_reset_goes_before_the_first_time(broker: Broker) -> None:
    """A reset may go before opt_start_time."""
    _resets_as(broker, lambda config: msgspec.structs.replace(config, opt_start_time=None))


@defect("JS-CONS-121")
def cons_reset_is_refused_and_done(broker: Broker) -> None:
    """A reset that is refused is done all the same."""
    service = jetstream_of(broker)

    def change(fields: Fields, request: Request) -> None:
        consumer = service.streams[request.names[0]].consumers[request.names[1]]
        if "error" in fields:
            consumer.reset((body_of(request) or {}).get("seq", 1), request.now)

    alter_answer(broker, RESET, change)


@defect("JS-CONS-122")
def cons_reset_is_for_one_policy(broker: Broker) -> None:
    """A reset to a sequence is refused unless deliver_policy is all."""

    def change(config: ConsumerConfig) -> ConsumerConfig:
        is_all = config.deliver_policy == "all"
        return config if is_all else msgspec.structs.replace(config, deliver_policy="new")

    _resets_as(broker, change)


@defect("JS-CONS-122")
def cons_reset_to_the_first_sequence_is_refused(broker: Broker) -> None:
    """A reset to opt_start_seq itself is refused."""
    _resets_as(
        broker, lambda config: msgspec.structs.replace(config, opt_start_seq=(config.opt_start_seq or 0) + 1)
    )
