"""Runs every monitor over observations as they come: live beside a proxy, over a session, over a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plumbline.monitors.amqp.consuming import (
    DeliveriesHaveConsumers,
    DeliveryTagsRise,
    KnownTagsOnly,
    PrefetchIsTheLimit,
    RedeliveredFlagIsSet,
)
from plumbline.monitors.amqp.publishing import OneConfirm, ReturnComesFirst
from plumbline.monitors.amqp.reader import AmqpReader
from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.nats.consumers import (
    ConsumerSequenceRises,
    DeliveryCountRises,
    NoRedeliveryAfterAck,
    OneAcknowledgement,
)
from plumbline.monitors.nats.floors import AckFloorNeverFalls
from plumbline.monitors.nats.publishes import (
    MessageIdIsStoredOnce,
    OnePayload,
    StreamOrder,
    StreamSequenceIsGivenOnce,
)
from plumbline.monitors.nats.pulls import BatchIsTheLimit
from plumbline.monitors.nats.reader import NatsReader
from plumbline.monitors.nats.subscriptions import LiveSubscriptions, SubjectsMatch
from plumbline.monitors.observation import Observation, Violation
from plumbline.wire import amqp

MONITORS: tuple[type[Monitor], ...] = (
    LiveSubscriptions,
    SubjectsMatch,
    BatchIsTheLimit,
    ConsumerSequenceRises,
    DeliveryCountRises,
    NoRedeliveryAfterAck,
    OneAcknowledgement,
    AckFloorNeverFalls,
    StreamSequenceIsGivenOnce,
    MessageIdIsStoredOnce,
    StreamOrder,
    OnePayload,
    DeliveryTagsRise,
    PrefetchIsTheLimit,
    KnownTagsOnly,
    DeliveriesHaveConsumers,
    RedeliveredFlagIsSet,
    OneConfirm,
    ReturnComesFirst,
)


_ByKey = dict[str, tuple[Monitor, ...]]


class _ScopeMonitors:
    """The monitors of one scope: a fact goes to those of one key that want its type, or, if its type has no
    key here, to none."""

    def __init__(self, kinds: tuple[type[Monitor], ...]) -> None:
        self.kinds = kinds
        self.key = kinds[0].key
        self.keys: set[str] = set()
        self._by_type: dict[type[Fact], _ByKey] = {}

    def of_type(self, kind: type[Fact]) -> _ByKey:
        """Those that were begun, by key."""
        return self._by_type.setdefault(kind, {})

    def forget(self, key: str) -> None:
        """All of this key."""
        self.keys.discard(key)
        for by_key in self._by_type.values():
            by_key.pop(key, None)


class MonitorRunner:
    """Observations of any number of connections in, violations out; memory grows with what is alive."""

    def __init__(self, monitors: Iterable[type[Monitor]] = MONITORS) -> None:
        kinds = tuple(monitors)
        of_scope = (tuple(kind for kind in kinds if kind.scope is scope) for scope in MonitorScope)
        self._scopes = [_ScopeMonitors(of_one) for of_one in of_scope if of_one]
        self._routes: dict[type[Fact], list[tuple[_ScopeMonitors, _ByKey]]] = {}
        self.readers: dict[str, NatsReader | AmqpReader] = {}
        self.monitors: dict[tuple[type[Monitor], str], Monitor] = {}

    def observe(self, observation: Observation) -> Iterator[Violation]:
        """What ``observation`` breaks. Observations of one connection come in its order."""
        reader = self.readers.get(observation.connection)
        if reader is None:
            kind = AmqpReader if isinstance(observation.operation, amqp.Operation) else NatsReader
            reader = self.readers[observation.connection] = kind()
        for fact in reader.read(observation):
            yield from self.judge(fact)

    def judge(self, fact: Fact) -> Iterator[Violation]:
        """What a fact breaks, for callers that keep their own readers."""
        routes = self._routes.get(type(fact))
        if routes is None:
            routes = self._routes[type(fact)] = self._routes_of(fact)
        for scope, begun in routes:
            key = scope.key(fact)
            if key is not None:
                for monitor in begun.get(key) or self._begin(scope, key, type(fact)):
                    yield from monitor.observe(fact)

    def _routes_of(self, fact: Fact) -> list[tuple[_ScopeMonitors, _ByKey]]:
        kind = type(fact)
        scopes = [scope for scope in self._scopes if any(one.wants(kind) for one in scope.kinds)]
        return [(scope, scope.of_type(kind)) for scope in scopes if scope.key(fact) is not None]

    def _begin(self, scope: _ScopeMonitors, key: str, kind_of_fact: type[Fact]) -> tuple[Monitor, ...]:
        scope.keys.add(key)
        for kind in scope.kinds:
            if (kind, key) not in self.monitors:
                self.monitors[kind, key] = kind()
        wanting = tuple(self.monitors[kind, key] for kind in scope.kinds if kind.wants(kind_of_fact))
        scope.of_type(kind_of_fact)[key] = wanting
        return wanting

    def close(self, connection: str) -> None:
        """The connection ended: what only it could break is forgotten."""
        self.readers.pop(connection, None)
        for kind, key in list(self.monitors):
            if _is_of(kind.scope, key, connection):
                del self.monitors[kind, key]
        for scope in self._scopes:
            for key in [key for key in scope.keys if _is_of(scope.kinds[0].scope, key, connection)]:
                scope.forget(key)

    def finish(self) -> Iterator[Violation]:
        """What the end of the traffic shows. Call it only if all traffic of the servers was observed."""
        for monitor in self.monitors.values():
            yield from monitor.finish()


def _is_of(scope: MonitorScope, key: str, connection: str) -> bool:
    if scope is MonitorScope.CHANNEL:
        return key.rpartition("/")[0] == connection
    return scope is MonitorScope.CONNECTION and key == connection
