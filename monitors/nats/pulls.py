"""Rules of pull requests on one connection."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, Scope
from plumbline.monitors.nats import facts
from plumbline.monitors.observation import Place, Side, Violation


class _Pull(Struct):
    inbox: str
    place: Place
    batch: int
    left: int


class _Asked(Struct):
    """What one subscription asked one consumer for. ``last``: what used up or ended the last request."""

    open: list[_Pull] = []
    last: Place | None = None


class PullsState(Struct):
    """``asked``: by sid, then by stream and consumer. ``whole``: seen from the connection's beginning."""

    whole: bool = False
    asked: dict[str, dict[str, _Asked]] = {}


class BatchIsTheLimit(Monitor):
    """A pull request delivers no more messages than its batch, and none after the status that ended it.

    Messages do not say which request they answer. Those of one subscription and one consumer are counted
    together, and where a status could end several requests, the one that leaves most to be delivered.
    """

    rule = "batch-is-the-limit"
    title = "No more messages come for a pull request than its batch, and none after the status that ends it."
    requirements = ("JS-PULL-057", "JS-PULL-065")
    source = 'ADR-13, "Pull(n) Requests"; ADR-37, "Status handling"'
    side = Side.SERVER
    scope = Scope.CONNECTION
    State = PullsState
    state: PullsState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        match fact:
            case facts.Began():
                self.state.whole = True
            case facts.Subscribed() | facts.Unsubscribed(max_msgs=None):
                self.state.asked.pop(fact.sid, None)  # a sid that is used again is another subscription
            case facts.Pulled(sid=str() as sid):
                asked = self.state.asked.setdefault(sid, {}).setdefault(_consumer(fact), _Asked())
                asked.open.append(_Pull(fact.inbox, fact.place, fact.batch, fact.batch))
            case facts.PullStatus():
                if fact.code != 100:
                    self._end_one(fact)
            case facts.Delivered():
                yield from self._delivered(fact)

    def counts_for(self, fact: facts.Delivered) -> Place | None:
        """The request that a delivery counts for. Ask before it is observed."""
        asked = self.state.asked.get(fact.sid, {}).get(_consumer(fact))
        return asked.open[0].place if asked is not None and asked.open else None

    def ends(self, fact: facts.PullStatus) -> Place | None:
        """The request that a status ends. Ask before it is observed."""
        found = self._ended_by(fact)
        return found[1].place if found and fact.code != 100 else None

    def _ended_by(self, fact: facts.PullStatus) -> tuple[_Asked, _Pull] | None:
        ended = [
            (pull.left, asked, pull)
            for asked in self.state.asked.get(fact.sid, {}).values()
            for pull in asked.open
            if pull.inbox == fact.inbox
        ]
        told = [found for found in ended if found[0] == fact.pending]
        found = min(told or ended, key=lambda found: found[0], default=None)
        return found and found[1:]

    def _end_one(self, fact: facts.PullStatus) -> None:
        if found := self._ended_by(fact):
            asked, pull = found
            asked.open.remove(pull)
            asked.last = fact.place

    def _delivered(self, fact: facts.Delivered) -> Iterator[Violation]:
        asked = self.state.asked.get(fact.sid, {}).get(_consumer(fact))
        if asked is None:
            return  # a push consumer, or requests that were not seen
        if not asked.open:
            earlier = () if asked.last is None else (asked.last,)
            yield self.violation(
                "no message beyond what was asked for",
                f"{fact.consumer} delivers stream sequence {fact.stream_seq} and nothing is asked for",
                fact.place,
                *earlier,
                certain=self.state.whole,
            )
            return
        pull = asked.open[0]
        pull.left -= 1
        if pull.left == 0:
            asked.last = asked.open.pop(0).place


def _consumer(fact: facts.Pulled | facts.Delivered) -> str:
    # A request on the plain API may be answered with the account's domain, so it is no part of the name.
    return f"{fact.stream}|{fact.consumer}"
