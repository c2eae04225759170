"""Defects of which consumers a work queue takes. What is right: ``consumer_config.check_workqueue``."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_body, alter_error
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_streams,
    jetstream_defect,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig, check_workqueue
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

CREATE = "consumer_create"


@jetstream_defect(
    "ret-workqueue-takes-ack-none",
    breaks=("JS-RET-002",),
    summary="A work queue takes a consumer with ack_policy none, as an explicit one.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if stream is not None and stream.config.retention == "workqueue":
            config = fields["config"]
            config["ack_policy"] = {"none": "explicit"}.get(config["ack_policy"], config["ack_policy"])

    alter_body(broker, CREATE, change)


# Refused, but with another err_code: the requirement, the err_code, what comes instead.
_ERRORS = (
    ("JS-RET-002", errors.PULL_REQUIRES_ACK.err_code, errors.WORKQUEUE_NEEDS_EXPLICIT_ACK.err_code),
    ("JS-RET-003", errors.WORKQUEUE_NEEDS_EXPLICIT_ACK.err_code, errors.PULL_REQUIRES_ACK.err_code),
    ("JS-RET-004", errors.WORKQUEUE_NEEDS_DELIVER_ALL.err_code, errors.CONSUMER_INVALID_POLICY.err_code),
    ("JS-RET-006", errors.WORKQUEUE_MULTIPLE_UNFILTERED.err_code, errors.CONSUMER_LIMIT_REACHED.err_code),
)


def _error(requirement: str, err_code: int, instead: int) -> None:
    @jetstream_defect(
        f"ret-workqueue-refuses-with-{instead}-for-{err_code}",
        breaks=(requirement,),
        summary=f"A work queue that refuses a consumer with {err_code} gives err_code {instead}.",
    )
    def _(broker: Broker) -> None:
        alter_error(broker, CREATE, err_code, instead)


for _refusal in _ERRORS:
    _error(*_refusal)


def _before_the_check(
    broker: Broker, check: Callable[[Stream, ConsumerConfig], ConsumerConfig | None]
) -> None:
    """``check`` gives the configuration that is checked, or None for one that is taken as it is."""

    def check_consumer(self: Stream, config: ConsumerConfig) -> None:
        checked = check(self, config) if self.config.retention == "workqueue" else config
        if checked is not None:
            Stream.check_consumer(self, checked)

    alter_streams(broker, check_consumer=check_consumer)


@jetstream_defect(
    "ret-workqueue-takes-ack-all", breaks=("JS-RET-003",), summary="A work queue takes ack_policy all."
)
def _(broker: Broker) -> None:
    _before_the_check(broker, lambda stream, config: None if config.ack_policy == "all" else config)


@jetstream_defect(
    "ret-workqueue-takes-any-deliver-policy",
    breaks=("JS-RET-004",),
    summary="A work queue takes consumers that do not start with all.",
)
def _(broker: Broker) -> None:
    _before_the_check(broker, lambda stream, config: msgspec.structs.replace(config, deliver_policy="all"))


@jetstream_defect(
    "ret-workqueue-wants-filters",
    breaks=("JS-RET-005",),
    summary="A work queue takes no consumer without a filter.",
)
def _(broker: Broker) -> None:
    def check(stream: Stream, config: ConsumerConfig) -> ConsumerConfig:
        if not config.filters:
            raise errors.WORKQUEUE_MULTIPLE_UNFILTERED()
        return config

    _before_the_check(broker, check)


@jetstream_defect(
    "ret-workqueue-takes-a-second-consumer",
    breaks=("JS-RET-006",),
    summary="A work queue takes a second consumer without a filter.",
)
def _(broker: Broker) -> None:
    _before_the_check(broker, lambda stream, config: config if config.filters else None)


@jetstream_defect(
    "ret-workqueue-takes-one-other-consumer",
    breaks=("JS-RET-011",),
    summary="A work queue takes no second consumer, whatever its filter.",
)
def _(broker: Broker) -> None:
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


@jetstream_defect(
    "ret-workqueue-takes-a-filter-beside-none",
    breaks=("JS-RET-007",),
    summary="A work queue takes a filtered consumer beside one without a filter.",
)
def _(broker: Broker) -> None:
    _compare_with(broker, lambda config, other: not config.filters or bool(other.filters))


@jetstream_defect(
    "ret-workqueue-takes-overlapping-filters",
    breaks=("JS-RET-012",),
    summary="A work queue takes filters that overlap, unless they are the same.",
)
def _(broker: Broker) -> None:
    _compare_with(broker, lambda config, other: not other.filters or config.filters == other.filters)


@jetstream_defect(
    "ret-workqueue-takes-the-same-filter",
    breaks=("JS-RET-013",),
    summary="A work queue takes the same filter twice.",
)
def _(broker: Broker) -> None:
    _compare_with(broker, lambda config, other: not other.filters or config.filters != other.filters)


@jetstream_defect(
    "ret-workqueue-refuses-and-purges",
    breaks=("JS-RET-030",),
    summary="A work queue that refuses ack_policy all loses its messages.",
)
def _(broker: Broker) -> None:
    def check(stream: Stream, config: ConsumerConfig) -> ConsumerConfig:
        if config.ack_policy == "all":
            stream.purge(stream.jetstream.now)
        return config

    _before_the_check(broker, check)
