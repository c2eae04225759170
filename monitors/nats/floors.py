"""The rule of what consumers state in the answers of the API."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from msgspec import Struct

from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.nats import facts
from plumbline.monitors.observation import Place, Side, Violation

MOST_STEPS = 500  # floors of one leader that are remembered, each above those before


class _Floors(Struct):
    """Floors of one consumer as one server states them, rising: ``at`` in ns, ``floors`` and ``places``."""

    at: list[int] = []
    floors: list[int] = []
    places: list[Place] = []

    def before(self, at: int) -> tuple[int, Place] | None:
        """The highest one that was stated before a time."""
        last = bisect_left(self.at, at) - 1
        return (self.floors[last], self.places[last]) if last >= 0 else None

    def add(self, floor: int, place: Place) -> None:
        if self.floors and floor <= self.floors[-1]:
            return
        self.at.append(max(place.at, self.at[-1]) if self.at else place.at)  # two clocks may differ
        self.floors.append(floor)
        self.places.append(place)
        if len(self.at) > 2 * MOST_STEPS:
            del self.at[:MOST_STEPS], self.floors[:MOST_STEPS], self.places[:MOST_STEPS]


class _StatedConsumer(Struct):
    created: str
    leaders: dict[str, _Floors] = {}


class AckFloorState(Struct):
    """By consumer. ``changed_at``: of the last request that may lower a floor, in ns."""

    consumers: dict[str, _StatedConsumer] = {}
    changed_at: int = -1


class AckFloorNeverFalls(Monitor):
    """What is acknowledged for good stays so.

    An old leader that does not know of its successor yet may state an old floor, so floors of one leader are
    compared. A consumer that is made again has another time of creation.
    """

    rule = "ack-floor"
    title = "The ack floor that a server states of a consumer never decreases."
    requirements = ("JS-ACK-045",)
    source = (
        'docs.nats.io, "JetStream wire API Reference", consumer_info_response: ack_floor, '
        "the highest contiguous acknowledged message; as JS-CLUS-014"
    )
    side = Side.SERVER
    scope = MonitorScope.STREAM
    State = AckFloorState
    looks_at = frozenset({facts.AssetChanged, facts.ConsumerStated})
    state: AckFloorState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        if isinstance(fact, facts.AssetChanged):
            self._forget(fact)
        if not isinstance(fact, facts.ConsumerStated) or fact.requested_at.at <= self.state.changed_at:
            return
        consumer = self.state.consumers.get(fact.consumer)
        if consumer is None or consumer.created != fact.created:
            consumer = self.state.consumers[fact.consumer] = _StatedConsumer(fact.created)
        floors = consumer.leaders.setdefault(fact.leader, _Floors())
        earlier = floors.before(fact.requested_at.at)
        if earlier is not None and fact.ack_floor < earlier[0]:
            yield self.violation(
                f"an ack floor of {earlier[0]} or above, which was stated before",
                f"{fact.consumer} of {fact.stream} has the ack floor {fact.ack_floor}",
                fact.place,
                fact.requested_at,
                earlier[1],
                # A server that was restarted may have lost what it had not written yet.
                certain=earlier[1].connection == fact.place.connection,
            )
        floors.add(fact.ack_floor, fact.place)

    def _forget(self, fact: facts.AssetChanged) -> None:
        """CONSUMER.RESET and STREAM.RESTORE may lower a floor. Another new consumer does not."""
        if fact.consumer is not None:
            self.state.consumers.pop(fact.consumer, None)
            self.state.changed_at = fact.place.at
        elif fact.verb.startswith("STREAM."):
            self.state = AckFloorState(changed_at=fact.place.at)
