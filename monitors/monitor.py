"""A monitor: one rule over facts in order, with a state that can be stored and restored.

A rule stands once, here, and runs in three places: live beside the proxy, over a session in ``gate``, and
over captures in the pipeline, which groups facts by ``key`` and pickles the monitor between batches. So it
sees the facts of its own key only, and knows no clock, no socket and no other monitor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct

from plumbline.monitors.amqp.facts import AmqpDelivery, ChannelFact
from plumbline.monitors.facts import Fact, StreamFact
from plumbline.monitors.observation import Place, Side, Violation


class MonitorScope(StrEnum):
    """What one monitor watches."""

    CONNECTION = "connection"
    STREAM = "stream"  # with its consumers, on whichever connections
    CHANNEL = "channel"
    QUEUE = "queue"  # on whichever channels


class Monitor(ABC):
    """One rule. A subclass says what it is and keeps all it remembers in ``state``."""

    rule: ClassVar[str]
    title: ClassVar[str]  # the rule as one sentence
    requirements: ClassVar[tuple[str, ...]]
    source: ClassVar[str]
    side: ClassVar[Side]
    scope: ClassVar[MonitorScope]
    State: ClassVar[type[Struct]]
    looks_at: ClassVar[frozenset[type[Fact]]] = frozenset()  # other facts change nothing; empty: all

    def __init__(self, state: Any = None) -> None:
        self.state: Any = self.State() if state is None else state

    @classmethod
    def wants(cls, kind: type[Fact]) -> bool:
        """Whether facts of this type are for this rule. No other fact needs to be observed."""
        return not cls.looks_at or kind in cls.looks_at

    @classmethod
    def key(cls, fact: Fact) -> str | None:
        """Whose fact this is: facts of one key go to one monitor, in their order. None: not for this rule."""
        match fact:
            case AmqpDelivery() if cls.scope is MonitorScope.QUEUE:
                return f"{fact.server}|{fact.vhost}|{fact.queue}"
            case ChannelFact():
                return (
                    f"{fact.place.connection}/{fact.channel}" if cls.scope is MonitorScope.CHANNEL else None
                )
            case StreamFact() if cls.scope is MonitorScope.STREAM:
                return f"{fact.server}|{fact.domain}|{fact.stream}"
            case _:
                return fact.place.connection if cls.scope is MonitorScope.CONNECTION else None

    @abstractmethod
    def observe(self, fact: Fact) -> Iterator[Violation]:
        """What ``fact`` breaks, after all that came before it."""

    def finish(self) -> Iterator[Violation]:
        """What is certain only at the end, if all traffic of the server is known."""
        yield from ()

    def violation(
        self, expected: str, actual: str, place: Place, *earlier: Place, certain: bool = True
    ) -> Violation:
        return Violation(
            self.rule, self.requirements, self.side, expected, actual, place, earlier, certain=certain
        )
