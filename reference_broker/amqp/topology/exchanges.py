"""Exchanges and bindings, and which queues a message reaches. One virtual host each.

Sources: AMQP 0-9-1, section 3.1.3 ("Exchange types"); RabbitMQ, "Exchange to Exchange Bindings", "Alternate
Exchanges", "Headers Exchange".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from plumbline.reference_broker.amqp.messages.message import further_keys
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import encode_table

TYPES = ("direct", "fanout", "headers", "topic")
# AMQP 0-9-1, 3.1.3: what every virtual host has from the beginning.
PREDECLARED = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.headers": "headers",
    "amq.match": "headers",
    "amq.topic": "topic",
}
MAX_CACHED_ROUTES = 10_000


class Binding(Struct, frozen=True, eq=False):
    """From an exchange to a queue or to another exchange."""

    source: str
    to_queue: bool
    destination: str
    routing_key: str
    arguments: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, bool, str, str, bytes]:
        """What makes two bindings the same one."""
        return (
            self.source,
            self.to_queue,
            self.destination,
            self.routing_key,
            encode_table(dict(sorted(self.arguments.items()))),
        )


class Exchange:
    """One exchange and the bindings that lead away from it."""

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments or {}
        self.bindings: dict[Any, Binding] = {}

    @property
    def alternate(self) -> str | None:
        name: str | None = self.arguments.get("alternate-exchange")
        return name

    def matching(self, routing_key: str, headers: Mapping[str, Any]) -> Iterator[Binding]:
        """The bindings that a message with this key and these headers follows."""
        for binding in self.bindings.values():
            if self.follows(binding, routing_key, headers):
                yield binding

    def follows(self, binding: Binding, routing_key: str, headers: Mapping[str, Any]) -> bool:
        match self.kind:
            case "fanout":
                return True
            case "topic":
                return topic_matches(binding.routing_key, routing_key)
            case "headers":
                return headers_match(binding.arguments, headers)
        return binding.routing_key == routing_key


class VirtualHost:
    """Names, and what they stand for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: dict[str, Queue] = {}
        self.exchanges = {one: Exchange(one, kind) for one, kind in PREDECLARED.items()}
        self._routes: dict[tuple[str, str], tuple[Queue, ...]] = {}

    def forget_routes(self) -> None:
        """Routes that were found before may be others now."""
        self._routes.clear()

    def route(self, exchange: Exchange, routing_key: str, headers: Mapping[str, Any]) -> tuple[Queue, ...]:
        """The queues that get the message, each once."""
        key = (exchange.name, routing_key)
        found = self._routes.get(key)
        if found is None:
            found, by_headers = self._find_queues(exchange, (routing_key,), headers)
            if not by_headers:
                if len(self._routes) >= MAX_CACHED_ROUTES:
                    self._routes.clear()
                self._routes[key] = found
        return found

    def route_all(
        self, exchange: Exchange, routing_key: str, headers: Mapping[str, Any]
    ) -> tuple[Queue, ...]:
        """The same for all routing keys of a message: those in the headers CC and BCC, too."""
        further = further_keys(headers) if headers else ()
        if not further:
            return self.route(exchange, routing_key, headers)
        queues, _ = self._find_queues(exchange, (routing_key, *further), headers)
        return queues

    def _find_queues(
        self, start: Exchange, routing_keys: Sequence[str], headers: Mapping[str, Any]
    ) -> tuple[tuple[Queue, ...], bool]:
        """The queues, and whether headers had a say. An exchange takes all keys at once: its alternate
        exchange gets what none of them leads anywhere."""
        queues: dict[str, Queue] = {}
        seen = {start.name}
        ahead = [start]
        by_headers = False
        while ahead:
            exchange = ahead.pop()
            by_headers |= exchange.kind == "headers"
            names = [name for key in routing_keys for name in self.next_stops(exchange, key, headers, queues)]
            if not names and exchange.alternate is not None:
                names = [exchange.alternate] if exchange.alternate in self.exchanges else []
            for name in names:
                if name is not None and name not in seen:
                    seen.add(name)
                    ahead.append(self.exchanges[name])
        return tuple(queues.values()), by_headers

    def next_stops(
        self, exchange: Exchange, routing_key: str, headers: Mapping[str, Any], queues: dict[str, Queue]
    ) -> Iterator[str | None]:
        """Adds to ``queues`` those that ``exchange`` feeds, and gives the exchanges; None for each queue."""
        if exchange.name == "":
            if (queue := self.queues.get(routing_key)) is not None:
                queues[routing_key] = queue
                yield None
            return
        for binding in exchange.matching(routing_key, headers):
            if binding.to_queue:
                queues[binding.destination] = self.queues[binding.destination]
                yield None
            else:
                yield binding.destination

    def bind(self, binding: Binding) -> bool:
        """False if it is there already."""
        bindings = self.exchanges[binding.source].bindings
        if binding.key in bindings:
            return False
        bindings[binding.key] = binding
        self.forget_routes()
        return True

    def bound_to(self, name: str, *, is_queue: bool) -> list[Binding]:
        """The bindings that lead to a queue or exchange."""
        return [
            binding
            for exchange in self.exchanges.values()
            for binding in exchange.bindings.values()
            if binding.to_queue is is_queue and binding.destination == name
        ]


@lru_cache(maxsize=1024)
def _words(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split(".")) if pattern else ()


def topic_matches(pattern: str, routing_key: str) -> bool:
    """``*`` means one word, ``#`` any number of them. AMQP 0-9-1, 3.1.3.3."""
    words = _words(routing_key)
    # The places in the key that what was read of the pattern may end at.
    reached = {0}
    for word in _words(pattern):
        if word == "#":
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and word in ("*", words[at])}
        if not reached:
            return False
    return len(words) in reached


def headers_match(binding_headers: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    """Every header that a binding names, or any of them (``x-match``). AMQP 0-9-1, 3.1.3.4."""
    how = binding_headers.get("x-match", "all")
    compared = (
        binding_headers.items()
        if how.endswith("-with-x")
        else ((name, value) for name, value in binding_headers.items() if not name.startswith("x-"))
    )
    agree: Iterable[bool] = (
        name in headers and (value is None or _same(value, headers[name]))
        for name, value in compared
        if name != "x-match"
    )
    return any(agree) if how.startswith("any") else all(agree)


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
