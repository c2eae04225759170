"""Rules of what streams answer to those who publish."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.nats import facts
from plumbline.monitors.observation import Place, Side, Violation
from plumbline.monitors.ranges import Ranges
from plumbline.monitors.rising import MOST_STEPS, RisingSteps
from plumbline.wire.units import MILLISECOND, SECOND

MOST_CHECKSUMS = 20_000  # of sequences; the oldest are forgotten
MOST_IDS = 20_000
DEFAULT_WINDOW = 120 * SECOND  # docs.nats.io, "Streams": Duplicate Window
LEAST_WINDOW = 100 * MILLISECOND  # a stream with a shorter one is refused


class StreamSequencesState(Struct):
    """``assigned``: the sequences of PubAcks so far. ``recent``: the last of them. ``accounts``: a login, or
    a connection of which it is unknown, of each PubAck."""

    assigned: Ranges = field(default_factory=Ranges)
    recent: dict[int, facts.PublishStored] = {}
    accounts: set[str] = set()


class StreamSequenceIsGivenOnce(Monitor):
    """Two messages do not get one sequence."""

    rule = "stream-sequence"
    title = "Each stored message has a stream sequence of its own; only a duplicate's PubAck repeats one."
    requirements = ("JS-PUB-001", "JS-PUB-003")
    source = 'docs.nats.io, "JetStream wire API Reference", Publishing; ADR-4, "Nats-Msg-Id"'
    side = Side.SERVER
    scope = MonitorScope.STREAM
    State = StreamSequencesState
    looks_at = frozenset({facts.AssetChanged, facts.PublishStored})
    state: StreamSequencesState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        if isinstance(fact, facts.AssetChanged) and fact.consumer is None:
            self.state = StreamSequencesState()  # perhaps another stream of that name
        if not isinstance(fact, facts.PublishStored):
            return
        state = self.state
        state.accounts.add(fact.login or f"connection {fact.place.connection}")
        if not fact.duplicate and fact.seq in state.assigned:
            first = state.recent.get(fact.seq)
            yield self.violation(
                "a sequence that no other message has, or duplicate true",
                f"{fact.stream} answers sequence {fact.seq} again",
                fact.place,
                fact.requested_at,
                *([first.place] if first else []),
                # Another account may have a stream of this name too.
                certain=len(state.accounts) == 1 or (first is not None and fact.shares_account(first)),
            )
        state.assigned.add(fact.seq)
        state.recent.setdefault(fact.seq, fact)
        if len(state.recent) > MOST_STEPS:
            del state.recent[next(iter(state.recent))]


class MessageIdsState(Struct):
    """``stored``: the PubAck of each Nats-Msg-Id, of the last ones. ``window``: duplicate_window, in ns, if
    it was stated."""

    stored: dict[str, facts.PublishStored] = {}
    window: int | None = None


class MessageIdIsStoredOnce(Monitor):
    """A publish that is sent again with its message id is not stored again."""

    rule = "message-id"
    title = "A stream stores one message of a Nats-Msg-Id within its duplicate_window."
    requirements = ("JS-PUB-003", "JS-PUB-004")
    source = 'JetStream model deep dive, "Message Deduplication"; docs.nats.io, "Streams", Duplicate Window'
    side = Side.SERVER
    scope = MonitorScope.STREAM
    State = MessageIdsState
    looks_at = frozenset({facts.AssetChanged, facts.PublishStored, facts.StreamStated})
    state: MessageIdsState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        state = self.state
        match fact:
            case facts.AssetChanged(consumer=None):
                self.state = MessageIdsState()  # perhaps another window
            case facts.StreamStated():
                state.window = fact.duplicate_window
            case facts.PublishStored(duplicate=False, msg_id=str(msg_id)) if msg_id:
                first = state.stored.get(msg_id)
                if first is not None and first.seq != fact.seq:
                    yield from self._stored_again(first, fact)
                state.stored[msg_id] = fact
                if len(state.stored) > MOST_IDS:
                    del state.stored[next(iter(state.stored))]

    def _stored_again(self, first: facts.PublishStored, fact: facts.PublishStored) -> Iterator[Violation]:
        window = self.state.window
        between = max(first.place.at, fact.place.at) - min(first.requested_at.at, fact.requested_at.at)
        if between >= (DEFAULT_WINDOW if window is None else window):
            return
        yield self.violation(
            f"the sequence {first.seq}, as which it was stored, and duplicate true",
            f"{fact.stream} stores the Nats-Msg-Id {fact.msg_id} again, as {fact.seq}",
            fact.place,
            fact.requested_at,
            first.place,
            # A server that was restarted may not have what it has removed by then.
            certain=first.place.connection == fact.place.connection
            and between < (LEAST_WINDOW if window is None else window),
        )


class StreamOrderState(Struct):
    """``acknowledged``: the sequences of PubAcks, as far as they rise. ``assigned``: all of them.
    ``changed_at``: of the last request that changes the stream, in ns."""

    acknowledged: RisingSteps = field(default_factory=RisingSteps)
    assigned: Ranges = field(default_factory=Ranges)
    changed_at: int = -1


class StreamOrder(Monitor):
    """A message that is sent after an acknowledgement gets a higher sequence."""

    rule = "stream-order"
    title = "A message that is sent after the PubAck of another one has a higher stream sequence."
    requirements = ("JS-PUB-001",)
    source = (
        'JetStream model deep dive, "Acknowledgement Models"; as JS-CLUS-008: docs.nats.io, "Replication and '
        'R=3" (the leader gives sequences in the order of its log)'
    )
    side = Side.SERVER
    scope = MonitorScope.STREAM
    State = StreamOrderState
    looks_at = frozenset({facts.AssetChanged, facts.PublishStored})
    state: StreamOrderState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        state = self.state
        if isinstance(fact, facts.AssetChanged) and fact.consumer is None:
            self.state = StreamOrderState(changed_at=fact.place.at)
        if not isinstance(fact, facts.PublishStored) or fact.requested_at.at <= state.changed_at:
            return
        if fact.duplicate or fact.seq in state.assigned:  # see StreamSequenceIsGivenOnce
            return
        state.assigned.add(fact.seq)
        earlier = state.acknowledged.before(fact.requested_at.at)
        if earlier is not None and fact.seq < earlier[0]:
            yield self.violation(
                f"a sequence above {earlier[0]}, whose PubAck came before the message was sent",
                f"{fact.stream} answers sequence {fact.seq}",
                fact.place,
                fact.requested_at,
                earlier[1],
                certain=earlier[1].connection == fact.place.connection,
            )
        state.acknowledged.add(fact.seq, fact.place)


class StoredPayloadsState(Struct):
    """``known``: by sequence the checksum of the payload, where it was seen first, and whether its PubAck
    came."""

    known: dict[int, tuple[int, Place, bool]] = {}


_OF_PAYLOADS = (facts.PublishStored, facts.JetStreamDelivery, facts.MessageRead)


class OnePayload(Monitor):
    """A sequence is one message, for its publisher, in each delivery and for each reader."""

    rule = "one-payload"
    title = "A message is delivered and read, each time and by each client, with the payload as published."
    requirements = ("JS-PUB-001", "JS-ACK-004")
    source = (
        'docs.nats.io, "Replication and R=3", "R=3 means three peers in one RAFT group", as JS-CLUS-007; '
        'ADR-15, "JS Ack"'
    )
    side = Side.SERVER
    scope = MonitorScope.STREAM
    State = StoredPayloadsState
    looks_at = frozenset({facts.AssetChanged, *_OF_PAYLOADS})
    state: StoredPayloadsState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        known = self.state.known
        if isinstance(fact, facts.AssetChanged) and fact.consumer is None:
            known.clear()
        if not isinstance(fact, _OF_PAYLOADS) or fact.checksum is None:
            return
        is_ack = isinstance(fact, facts.PublishStored)
        seq = fact.stream_seq if isinstance(fact, facts.JetStreamDelivery) else fact.seq
        checksum, place, is_acknowledged = known.get(seq, (fact.checksum, fact.place, False))
        if is_ack and is_acknowledged:  # see StreamSequenceIsGivenOnce
            return
        known[seq] = checksum, place, is_acknowledged or is_ack
        if checksum != fact.checksum:
            yield self.violation(
                "the payload that it had before",
                f"stream sequence {seq} of {fact.stream} has another payload",
                fact.place,
                place,
                certain=place.connection == fact.place.connection,
            )
        if len(known) > MOST_CHECKSUMS:
            del known[next(iter(known))]
