"""How defects change where an exchange leads a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.topology.exchanges import Binding, Exchange, VirtualHost
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.reference_broker.registry import replace

Headers = Mapping[str, Any]
Stops = Iterator[str | None]  # as of VirtualHost.next_stops
Follows = Callable[[Binding, str, Headers], bool]


@dataclass(frozen=True, slots=True)
class Step:
    """A message at one exchange. ``right``: where a correct broker leads it."""

    vhost: VirtualHost
    exchange: Exchange
    routing_key: str
    headers: Headers
    queues: dict[str, Queue]
    right: Stops

    def along(self, binding: Binding) -> str | None:
        """The stop at the end of a binding."""
        if not binding.to_queue:
            return binding.destination
        self.queues[binding.destination] = self.vhost.queues[binding.destination]
        return None


def leads(broker: Broker, lead: Callable[[Step], Stops]) -> None:
    """Every exchange leads a message where ``lead`` says."""
    for vhost in broker.vhosts.values():
        replace(vhost, "next_stops", _next_stops(vhost, lead))


def _next_stops(vhost: VirtualHost, lead: Callable[[Step], Stops]) -> Callable[..., Stops]:
    original = vhost.next_stops

    def next_stops(exchange: Exchange, routing_key: str, headers: Headers, queues: dict[str, Queue]) -> Stops:
        right = original(exchange, routing_key, headers, queues)
        yield from lead(Step(vhost, exchange, routing_key, headers, queues, right))

    return next_stops


def compares(broker: Broker, kind: str, follows: Follows) -> None:
    """Exchanges of this kind decide by ``follows(binding, routing key, headers)``."""

    def lead(step: Step) -> Stops:
        if step.exchange.kind != kind or not step.exchange.name:
            yield from step.right
            return
        for binding in step.exchange.bindings.values():
            if follows(binding, step.routing_key, step.headers):
                yield step.along(binding)

    leads(broker, lead)
