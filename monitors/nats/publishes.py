"""Rules of what streams answer to those who publish."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, Scope
from plumbline.monitors.nats import facts
from plumbline.monitors.observation import Side, Violation
from plumbline.monitors.ranges import Ranges


class StreamSequencesState(Struct):
    """``given``: the sequences of PubAcks so far."""

    given: Ranges | None = None


class StreamSequenceIsGivenOnce(Monitor):
    """Two messages do not get one sequence."""

    rule = "stream-sequence"
    title = "Each stored message has a stream sequence of its own; only a duplicate's PubAck repeats one."
    requirements = ("JS-PUB-001", "JS-PUB-003")
    source = 'docs.nats.io, "JetStream wire API Reference", Publishing; ADR-4, "Nats-Msg-Id"'
    side = Side.SERVER
    scope = Scope.STREAM
    State = StreamSequencesState
    state: StreamSequencesState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        if isinstance(fact, facts.Administered) and fact.consumer is None:
            self.state.given = None  # perhaps another stream of that name
        if not isinstance(fact, facts.PublishAnswered):
            return
        given = self.state.given = self.state.given or Ranges()
        if not fact.duplicate and fact.seq in given:
            yield self.violation(
                "a sequence that no other message has, or duplicate true",
                f"{fact.stream} answers sequence {fact.seq} again",
                fact.place,
                fact.asked,
            )
        given.add(fact.seq)
