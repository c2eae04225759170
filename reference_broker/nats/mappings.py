"""Subject mapping: a client's message goes to another subject, which may be drawn by weight. Pure.

Source: docs.nats.io, "Subject Mapping and Partitioning".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from plumbline.reference_broker.nats.config import Destination, SubjectMapping
from plumbline.reference_broker.nats.jetstream.streams.mapping import (
    Mapping,
    mapping,
    mapping_problem,
    without_functions,
)
from plumbline.wire.nats import HPub, Pub
from plumbline.wire.nats.subjects import is_valid, is_valid_literal

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.connection import NatsClientConnection
    from plumbline.reference_broker.nats.core import Broker

LOST = b""  # the subject of a message that no destination takes
_ALL = 100  # percent


class Mappings:
    """The mappings of an account. A subject without wildcards comes before those with."""

    def __init__(self, mappings: Iterable[SubjectMapping], choose: Callable[[int], int]) -> None:
        entries = [(one.source.encode(), _destinations(one)) for one in mappings]
        self._literals = {source: found for source, found in entries if is_valid_literal(source)}
        self._patterns = [found for source, found in entries if source not in self._literals]
        self._choose = choose

    def find(self, subject: bytes) -> bytes | None:
        """Where a message goes, perhaps ``LOST``; None if nothing is mapped."""
        candidates = [self._literals[subject]] if subject in self._literals else self._patterns
        for destinations in candidates:
            if destinations[0][1](subject) is not None:
                return self._draw(destinations, subject)
        return None

    def _draw(self, destinations: list[tuple[int, Mapping]], subject: bytes) -> bytes:
        drawn = self._choose(_ALL) if len(destinations) > 1 or destinations[0][0] < _ALL else 0
        for weight, translate in destinations:
            if drawn < weight:
                return translate(subject) or LOST
            drawn -= weight
        return LOST


def _destinations(one: SubjectMapping) -> list[tuple[int, Mapping]]:
    """With the source itself for what is left of 100 percent, unless it is named: then that is lost."""
    found = [(each.weight, mapping(one.source, each.subject)) for each in one.destinations]
    left = _ALL - sum(weight for weight, _ in found)
    if left > 0 and all(each.subject != one.source for each in one.destinations):
        found.append((left, mapping(one.source, "")))
    return found


def mappings_problem(source: str, destinations: Iterable[Destination]) -> str:
    """Why nats-server does not take this mapping; empty if it does."""
    if not is_valid(source.encode()):
        return f'mapping of "{source}": invalid subject'
    total = 0
    for each in destinations:
        total += each.weight
        if not each.subject or not is_valid_literal(without_functions(each.subject).removesuffix(b".>")):
            return f'mapping of "{source}" to "{each.subject}": invalid subject'
        if problem := mapping_problem(source, each.subject):
            return f'mapping of "{source}": {problem}'
    return f'mapping of "{source}": the weights are more than 100%' if total > _ALL else ""


def install(broker: Broker, mappings: Iterable[SubjectMapping]) -> None:
    """Let these mappings decide where the messages of this broker's clients go."""
    wanted = broker.mappings = Mappings(mappings, broker.choose)

    def mapped(publish: Callable[[NatsClientConnection, Any, int], None]) -> Any:
        def on_publish(connection: NatsClientConnection, operation: Pub | HPub, now: int) -> None:
            subject = wanted.find(operation.args[0])
            if subject is None:
                publish(connection, operation, now)
            elif subject == LOST:
                broker.send_ok(connection, operation)
                reply = operation.reply
                broker.on_no_receivers(connection, LOST, reply.encode() if reply else None)
            else:
                publish(connection, _renamed(operation, subject), now)

        return on_publish

    vars(broker)["on_pub"] = mapped(broker.on_pub)
    vars(broker)["on_hpub"] = mapped(broker.on_hpub)


def _renamed(operation: Pub | HPub, subject: bytes) -> Pub | HPub:
    args = [subject, *operation.args[1:]]
    line = b" ".join([operation.verb.encode(), *args]) + b"\r\n"
    return type(operation)(line + operation.raw[operation.head :], args, len(line))
