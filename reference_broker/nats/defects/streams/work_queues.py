"""Defects of which consumers a work queue takes. What is right: ``consumer_config.check_workqueue``."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_body
from plumbline.reference_broker.nats.defects.methods import (
    alter_streams,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig, check_workqueue
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

CREATE = "consumer_create"


@defect("JS-RET-002")
def ret_workqueue_takes_ack_none(broker: Broker) -> None:
    """A work queue takes a consumer with ack_policy none, as an explicit one."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if stream is not None and stream.config.retention == "workqueue":
            config = fields["config"]
            config["ack_policy"] = {"none": "explicit"}.get(config["ack_policy"], config["ack_policy"])

    alter_body(broker, CREATE, change)


def _before_the_check(
    broker: Broker, check: Callable[[Stream, ConsumerConfig], ConsumerConfig | None]
) -> None:
    """``check`` gives the configuration that is checked, or None for one that is taken as it is."""

    def check_consumer(self: Stream, config: ConsumerConfig) -> None:
        checked = check(self, config) if self.config.retention == "workqueue" else config
        if checked is not None:
            Stream.check_consumer(self, checked)

    alter_streams(broker, check_consumer=check_consumer)


@defect("JS-RET-003")
def ret_workqueue_takes_ack_all(broker: Broker) -> None:
    """A work queue takes ack_policy all."""
    _before_the_check(broker, lambda stream, config: None if config.ack_policy == "all" else config)


@defect("JS-RET-004")
def ret_workqueue_takes_any_deliver_policy(broker: Broker) -> None:
    """A work queue takes consumers that do not start with all."""
    _before_the_check(broker, lambda stream, config: msgspec.structs.replace(config, deliver_policy="all"))


@defect("JS-RET-005")
def ret_workqueue_wants_filters(broker: Broker) -> None:
    """A work queue takes no consumer without a filter."""

    def check(stream: Stream, config: ConsumerConfig) -> ConsumerConfig:
        if not config.filters:
            raise errors.WORKQUEUE_MULTIPLE_UNFILTERED()
        return config

    _before_the_check(broker, check)


@defect("JS-RET-006")
def ret_workqueue_takes_a_second_consumer(broker: Broker) -> None:
    """A work queue takes a second consumer without a filter."""
    _before_the_check(broker, lambda stream, config: config if config.filters else None)


@defect("JS-RET-011")
def ret_workqueue_takes_one_other_consumer(broker: Broker) -> None:
    """A work queue takes no second consumer, whatever its filter."""

    def check(stream: Stream, config: ConsumerConfig) -> ConsumerConfig:
        if stream.consumers and config.filters:
            raise errors.WORKQUEUE_FILTER_NOT_UNIQUE()
        return config

    _before_the_check(broker, check)


def _compare_with(broker: Broker, matters: Callable[[ConsumerConfig, ConsumerConfig], bool]) -> None:
    """A new consumer is compared only with those others that matter."""

    def check_consumer(self: Stream, config: ConsumerConfig) -> None:
        if self.config.retention == "workqueue":
            others = [other.config for other in self.consumers.values()]
            check_workqueue(
                config, [other for other in others if matters(config, other)], self.jetstream.rules
            )

    alter_streams(broker, check_consumer=check_consumer)


@defect("JS-RET-007")
def ret_workqueue_takes_a_filter_beside_none(broker: Broker) -> None:
    """A work queue takes a filtered consumer beside one without a filter."""
    _compare_with(broker, lambda config, other: not config.filters or bool(other.filters))


@defect("JS-RET-012")
def ret_workqueue_takes_overlapping_filters(broker: Broker) -> None:
    """A work queue takes filters that overlap, unless they are the same."""
    _compare_with(broker, lambda config, other: not other.filters or config.filters == other.filters)


@defect("JS-RET-013")
def ret_workqueue_takes_the_same_filter(broker: Broker) -> None:
    """A work queue takes the same filter twice."""
    _compare_with(broker, lambda config, other: not other.filters or config.filters != other.filters)


@defect("JS-RET-030")
def ret_workqueue_refuses_and_purges(broker: Broker) -> None:
    """A work queue that refuses ack_policy all loses its messages."""

    def check(stream: Stream, config: ConsumerConfig) -> ConsumerConfig:
        if config.ack_policy == "all":
            stream.purge(stream.jetstream.now)
        return config

    _before_the_check(broker, check)
