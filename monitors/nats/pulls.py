"""Rules of pull requests on one connection."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.nats import facts
from plumbline.monitors.observation import Place, Side, Violation


class _Pull(Struct):
    inbox: str
    place: Place
    batch: int
    remaining: int


class _OpenPulls(Struct):
    """What one subscription asked one consumer for. ``last``: what used up or ended the last request."""

    open: list[_Pull] = []
    last: Place | None = None


class PullsState(Struct):
    """``open_pulls``: by sid, then by stream and consumer. ``seen_from_start``: seen from the connection's
    beginning."""

    seen_from_start: bool = False
    open_pulls: dict[str, dict[str, _OpenPulls]] = {}


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
    scope = MonitorScope.CONNECTION
    State = PullsState
    looks_at = frozenset(
        {
            facts.ClientConnected, facts.Subscribed, facts.Unsubscribed, facts.PullRequested,
            facts.PullStatus, facts.JetStreamDelivery,
        }
    )  # fmt: skip
    state: PullsState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        match fact:
            case facts.ClientConnected():
                self.state.seen_from_start = True
            case facts.Subscribed() | facts.Unsubscribed(max_msgs=None):
                self.state.open_pulls.pop(fact.sid, None)  # a sid that is used again is another subscription
            case facts.PullRequested(sid=str() as sid):
                pulls = self.state.open_pulls.setdefault(sid, {}).setdefault(_consumer(fact), _OpenPulls())
                pulls.open.append(_Pull(fact.inbox, fact.place, fact.batch, fact.batch))
            case facts.PullStatus():
                if fact.code != 100:
                    self._end_one(fact)
            case facts.JetStreamDelivery():
                yield from self._delivered(fact)

    def counts_for(self, fact: facts.JetStreamDelivery) -> Place | None:
        """The request that a delivery counts for. Ask before it is observed."""
        pulls = self.state.open_pulls.get(fact.sid, {}).get(_consumer(fact))
        return pulls.open[0].place if pulls is not None and pulls.open else None

    def ends(self, fact: facts.PullStatus) -> Place | None:
        """The request that a status ends. Ask before it is observed."""
        found = self._ended_by(fact)
        return found[1].place if found and fact.code != 100 else None

    def _ended_by(self, fact: facts.PullStatus) -> tuple[_OpenPulls, _Pull] | None:
        ended = [
            (pull.remaining, pulls, pull)
            for pulls in self.state.open_pulls.get(fact.sid, {}).values()
            for pull in pulls.open
            if pull.inbox == fact.inbox
        ]
        matching = [found for found in ended if found[0] == fact.pending]
        found = min(matching or ended, key=lambda found: found[0], default=None)
        return found and found[1:]

    def _end_one(self, fact: facts.PullStatus) -> None:
        if found := self._ended_by(fact):
            pulls, pull = found
            pulls.open.remove(pull)
            pulls.last = fact.place

    def _delivered(self, fact: facts.JetStreamDelivery) -> Iterator[Violation]:
        pulls = self.state.open_pulls.get(fact.sid, {}).get(_consumer(fact))
        if pulls is None:
            return  # a push consumer, or requests that were not seen
        if not pulls.open:
            earlier = () if pulls.last is None else (pulls.last,)
            yield self.violation(
                "no message beyond the requested batch",
                f"{fact.consumer} delivers stream sequence {fact.stream_seq} but no pull request is open",
                fact.place,
                *earlier,
                certain=self.state.seen_from_start,
            )
            return
        pull = pulls.open[0]
        pull.remaining -= 1
        if pull.remaining == 0:
            pulls.last = pulls.open.pop(0).place


def _consumer(fact: facts.PullRequested | facts.JetStreamDelivery) -> str:
    # A request on the plain API may be answered with the account's domain, so it is no part of the name.
    return f"{fact.stream}|{fact.consumer}"
