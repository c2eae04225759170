"""The rule of what consumers state in the answers of the API."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.nats import facts
from plumbline.monitors.observation import Side, Violation
from plumbline.monitors.rising import RisingSteps


class _StatedConsumer(Struct):
    created: str
    leaders: dict[str, RisingSteps] = {}


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
        floors = consumer.leaders.setdefault(fact.leader, RisingSteps())
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
