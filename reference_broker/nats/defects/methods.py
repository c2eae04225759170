"""How a defect puts methods of its own into the core, or into one class of the JetStream service.

Classes are made again for each broker, so nothing leaks from one to the next.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import WaitingQueue
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.scheduler import Scheduler
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

Method = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R")


def method_defect(
    method: Callable[Concatenate[Any, P], R], *requirements: str, name: str | None = None
) -> Callable[[Callable[Concatenate[Any, P], R]], Method]:
    """Register a defect: the decorated function takes the place of ``method``, whose signature it has.

    ``method`` is one of the core, of the JetStream service, of a stream, of its scheduler, of a consumer, of
    its queue of pull requests or of its counters.
    Name and summary come from the function, as with ``defect``.
    """
    replaced = method.__name__
    (alter,) = (alter for kind, alter in _ALTER.items() if getattr(kind, replaced, None) is method)

    def register(faulty: Callable[Concatenate[Any, P], R]) -> Method:
        def give(broker: Broker) -> None:
            alter(broker, **{replaced: faulty})

        give.__doc__ = faulty.__doc__
        defect(*requirements, name=name or faulty.__name__.replace("_", "-"))(give)
        return faulty

    return register


def push_defect(
    method: Callable[Concatenate[Consumer, P], R], *requirements: str
) -> Callable[[Callable[Concatenate[Consumer, P], R]], Method]:
    """As ``method_defect`` for a method of consumers, of which only those that push have the fault."""

    def register(faulty: Callable[Concatenate[Consumer, P], R]) -> Method:
        @functools.wraps(faulty)
        def of_push_consumers(self: Consumer, /, *arguments: P.args, **options: P.kwargs) -> R:
            chosen = method if self.config.is_pull else faulty
            return chosen(self, *arguments, **options)

        return method_defect(method, *requirements)(of_push_consumers)

    return register


def jetstream_of(broker: Broker) -> JetStream:
    """The service; defects that need it are only applied where there is one."""
    return cast("JetStream", broker.service)


def alter_core(broker: Broker, **methods: Method) -> None:
    """Methods of the core, bound to it."""
    for name, method in methods.items():
        replace(broker, name, method.__get__(broker))


def alter_service(broker: Broker, **methods: Method) -> None:
    """Methods of the JetStream service, bound to it."""
    service = jetstream_of(broker)
    for name, method in methods.items():
        replace(service, name, method.__get__(service))


def alter_streams(broker: Broker, **methods: Any) -> None:
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


def alter_schedulers(broker: Broker, **methods: Method) -> None:
    """Methods of every stream's scheduler."""
    stream_type = jetstream_of(broker).stream_type
    alter_streams(broker, scheduler_type=_subclass(stream_type.scheduler_type, methods))


_ALTER: dict[type[Any], Callable[..., None]] = {
    Stream: alter_streams,
    Scheduler: alter_schedulers,
    Consumer: alter_consumers,
    WaitingQueue: alter_waiting,
    AckState: alter_acks,
    JetStream: alter_service,
    Broker: alter_core,
}


def _subclass(base: type[Any], attributes: dict[str, Any]) -> Any:
    for name in attributes:
        getattr(base, name)  # a misspelled name must not pass for a defect
    return type(f"Faulty{base.__name__}", (base,), attributes)
