"""Rules of what streams answer to those who publish."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.nats import facts
from plumbline.monitors.observation import Side, Violation
from plumbline.monitors.ranges import Ranges


class StreamSequencesState(Struct):
    """``assigned``: the sequences of PubAcks so far."""

    assigned: Ranges | None = None


class StreamSequenceIsGivenOnce(Monitor):
    """Two messages do not get one sequence."""

    rule = "stream-sequence"
    title = "Each stored message has a stream sequence of its own; only a duplicate's PubAck repeats one."
    requirements = ("JS-PUB-001", "JS-PUB-003")
    source = 'docs.nats.io, "JetStream wire API Reference", Publishing; ADR-4, "Nats-Msg-Id"'
    side = Side.SERVER
    scope = MonitorScope.STREAM
    State = StreamSequencesState
    state: StreamSequencesState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        if isinstance(fact, facts.AssetChanged) and fact.consumer is None:
            self.state.assigned = None  # perhaps another stream of that name
        if not isinstance(fact, facts.PublishStored):
            return
        given = self.state.assigned = self.state.assigned or Ranges()
        if not fact.duplicate and fact.seq in given:
            yield self.violation(
                "a sequence that no other message has, or duplicate true",
                f"{fact.stream} answers sequence {fact.seq} again",
                fact.place,
                fact.requested_at,
            )
        given.add(fact.seq)
