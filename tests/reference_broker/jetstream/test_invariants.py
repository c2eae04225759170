"""Whatever clients do, in whatever order: the counters agree with each other and with what was delivered."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.position import deliveries_pending
from plumbline.wire.units import SECOND
from tests.reference_broker.jetstream.bench import INBOX, LEVELS, Bench, Sent

SUBJECTS = st.sampled_from(["s.a", "s.b"])
PAYLOADS = st.sampled_from(
    [b"", b"+ACK", b"-NAK", b'-NAK {"delay":2000000000}', b"+WPI", b"+TERM", b"+NXT", b"+NXT 2", b"junk"]
)
REQUESTS = st.fixed_dictionaries(
    {"batch": st.integers(1, 4)},
    optional={
        "expires": st.integers(1, 5).map(lambda seconds: seconds * SECOND),
        "no_wait": st.booleans(),
        "max_bytes": st.integers(1, 300),
    },
)
CONSUMERS = st.fixed_dictionaries(
    {"ack_policy": st.sampled_from(["explicit", "all", "none"]), "ack_wait": st.just(3 * SECOND)},
    optional={
        "filter_subject": SUBJECTS,
        "max_deliver": st.integers(1, 3),
        "max_ack_pending": st.integers(1, 3),
        "max_waiting": st.integers(1, 3),
        "deliver_policy": st.sampled_from(["all", "last", "new"]),
    },
)
STREAMS = st.fixed_dictionaries(
    {"retention": st.sampled_from(["limits", "interest"])},
    optional={"max_msgs": st.integers(1, 6), "max_age": st.just(10 * SECOND)},
)


class Clients(RuleBasedStateMachine):
    """A stream with one consumer, and somebody who does anything with them."""

    def __init__(self) -> None:
        super().__init__()
        self.deliveries: list[Sent] = []
        self.settled: set[int] = set()  # stream sequences that are never to come again
        self.seen = 0

    @initialize(level=st.sampled_from(LEVELS), stream=STREAMS, consumer=CONSUMERS)
    def begin(self, level: tuple[int, ...], stream: dict[str, Any], consumer: dict[str, Any]) -> None:
        self.bench = Bench(level)
        self.bench.stream("S", subjects=["s.*"], **stream)
        self.bench.consumer("S", "C", **consumer)
        self.policy = consumer["ack_policy"]
        self.limit = consumer.get("max_ack_pending", 1000)

    @property
    def consumer(self) -> Consumer:
        return self.bench.jetstream.streams["S"].consumers["C"]

    @rule(subject=SUBJECTS)
    def publish(self, subject: str) -> None:
        self.bench.request(subject, b"payload")
        self.look()

    @rule(request=REQUESTS)
    def pull(self, request: dict[str, Any]) -> None:
        self.bench.pull("S", "C", request)
        self.look()

    @rule(data=st.data(), payload=PAYLOADS)
    def acknowledge(self, data: st.DataObject, payload: bytes) -> None:
        if not self.deliveries:
            return
        message = data.draw(st.sampled_from(self.deliveries))
        seq = numbers(message)[1]
        self.bench.send(message.reply or b"", payload, INBOX)
        if payload in (b"", b"+ACK", b"+TERM") and self.policy == "explicit":
            self.settled.add(seq)
        self.look()

    @rule(seconds=st.sampled_from([0.5, 3, 7]))
    def wait(self, seconds: float) -> None:
        self.bench.advance(seconds)
        self.look()

    @rule(seq=st.integers(1, 12))
    def delete(self, seq: int) -> None:
        self.bench.request("$JS.API.STREAM.MSG.DELETE.S", {"seq": seq})
        self.look()

    @rule(body=st.sampled_from([b"", b'{"keep":1}', b'{"filter":"s.a"}', b'{"seq":4}']))
    def purge(self, body: bytes) -> None:
        self.bench.api("STREAM.PURGE.S", body)
        self.look()

    @rule(listens=st.booleans())
    def come_and_go(self, listens: bool) -> None:
        """The client's inboxes vanish, or come back."""
        self.bench.subscriptions[:] = [b"_INBOX.>"] if listens else [b"_INBOX.api"]

    def look(self) -> None:
        """Each delivery has the next consumer sequence, and none is of what is settled."""
        for sent in self.bench.sent[self.seen :]:
            if sent.reply is None:
                continue
            _, seq, consumer_seq = numbers(sent)
            last = numbers(self.deliveries[-1])[2] if self.deliveries else 0
            assert consumer_seq == last + 1
            assert seq not in self.settled
            self.deliveries.append(sent)
        self.seen = len(self.bench.sent)

    @invariant()
    def counters_agree(self) -> None:
        consumer = self.consumer
        acks, store = consumer.acks, consumer.stream.store
        assert consumer.num_pending == deliveries_pending(consumer.position, store, consumer.subject_filter)
        assert acks.delivered.consumer == len(self.deliveries)
        assert acks.floor.consumer <= acks.delivered.consumer
        assert all(store.load(seq) for seq in acks.pending)
        assert all(acks.floor.stream < seq <= acks.delivered.stream for seq in acks.pending)
        assert set(acks.queue) <= set(acks.pending)
        assert len(acks.pending) <= self.limit or self.policy == "none"

    @invariant()
    def requests_wait_only_for_a_reason(self) -> None:
        consumer = self.consumer
        waiting = consumer.waiting.requests
        assert len(waiting) <= consumer.config.max_waiting
        assert consumer.waiting.one_shots == sum(request.no_wait for request in waiting)
        heard = all(self.bench.has_interest(request.reply) for request in waiting)
        if waiting and heard and consumer.at_end():
            assert consumer.num_pending == 0
            assert not acks_to_deliver(consumer)


def acks_to_deliver(consumer: Consumer) -> list[int]:
    """Messages queued for redelivery that may still be delivered."""
    acks = consumer.acks
    return [seq for seq in acks.queue if not consumer.is_exhausted(acks.next_delivery_of(seq))]


def numbers(message: Sent) -> tuple[int, int, int]:
    """Delivery count, stream and consumer sequence of a delivery."""
    tokens = (message.reply or b"").split(b".")
    return int(tokens[4]), int(tokens[5]), int(tokens[6])


TestClients = Clients.TestCase
TestClients.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
