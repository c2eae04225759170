"""How a JetStream defect alters a broker: it puts methods of its own into one class of its service.

The classes are made anew for each broker, so nothing leaks from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import Alteration, defect, replace
from plumbline.reference_broker.nats.jetstream.service import JetStream

Method = Callable[..., Any]


def jetstream_defect(
    name: str, *, breaks: tuple[str, ...], summary: str
) -> Callable[[Alteration], Alteration]:
    """Register a defect that only a broker with JetStream can have."""
    return defect(name, breaks=breaks, summary=summary, needs=("jetstream",))


def jetstream_of(broker: Broker) -> JetStream:
    """The service; defects that need it are only applied where there is one."""
    return cast("JetStream", broker.service)


def alter_service(broker: Broker, **methods: Method) -> None:
    """Methods of the service itself, bound to it."""
    service = jetstream_of(broker)
    for name, method in methods.items():
        replace(service, name, method.__get__(service))


def alter_streams(broker: Broker, **methods: Method) -> None:
    """Methods of every stream."""
    service = jetstream_of(broker)
    service.stream_type = _subclass(service.stream_type, methods)


def alter_consumers(broker: Broker, **methods: Any) -> None:
    """Methods of every consumer."""
    service = jetstream_of(broker)
    service.consumer_type = _subclass(service.consumer_type, methods)


def alter_waiting(broker: Broker, **methods: Method) -> None:
    """Methods of every consumer's queue of pull requests."""
    consumer_type = jetstream_of(broker).consumer_type
    alter_consumers(broker, waiting_type=_subclass(consumer_type.waiting_type, methods))


def alter_acks(broker: Broker, **methods: Method) -> None:
    """Methods of every consumer's counters."""
    consumer_type = jetstream_of(broker).consumer_type
    alter_consumers(broker, ack_state_type=_subclass(consumer_type.ack_state_type, methods))


def _subclass(base: type[Any], attributes: dict[str, Any]) -> Any:
    for name in attributes:
        getattr(base, name)  # a misspelled name must not pass for a defect
    return type(f"Faulty{base.__name__}", (base,), attributes)
