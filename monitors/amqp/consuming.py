"""Rules of what channels deliver and what clients acknowledge."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.monitors.amqp import facts
from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.observation import Place, Side, Violation

# Of messages that were seen with a message_id, the oldest are forgotten first.
MAX_REMEMBERED = 100_000


class TagsState(Struct):
    """``last`` None: the channel's beginning was not seen."""

    last: int | None = None
    place: Place | None = None


class DeliveryTagsRise(Monitor):
    """Delivery tags of a channel are 1, 2, 3: of its consumers and of basic.get together."""

    rule = "delivery-tag"
    title = "The delivery tags of a channel start at 1 and grow by 1, those of basic.get among them."
    requirements = ("AMQP-CONSUME-004", "AMQP-CONSUME-006", "AMQP-GET-006")
    source = 'RabbitMQ, "Consumer Acknowledgements and Publisher Confirms", Delivery Tags'
    side = Side.SERVER
    scope = MonitorScope.CHANNEL
    State = TagsState
    looks_at = frozenset({facts.ChannelOpened, facts.AmqpDelivery})
    state: TagsState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        if isinstance(fact, facts.ChannelOpened):
            self.state = TagsState(0, fact.place)
        elif isinstance(fact, facts.AmqpDelivery):
            last, place = self.state.last, self.state.place
            if last is not None and place is not None and fact.delivery_tag != last + 1:
                yield self.violation(
                    f"delivery tag {last + 1}", f"delivery tag {fact.delivery_tag}", fact.place, place
                )
            self.state = TagsState(fact.delivery_tag, fact.place)


class _Window(Struct):
    limit: int
    unacknowledged: int = 0


class PrefetchState(Struct):
    """``consumers``: tag to the key of its window. ``lowered``: the shared limit fell in flight."""

    for_new: int = 0
    shared: int = 0
    lowered: bool = False
    count: int = 0
    consumers: dict[str, int] = {}
    windows: dict[int, _Window] = {}
    outstanding: dict[int, int] = {}  # delivery tag -> key of its window, -1 for basic.get


class PrefetchIsTheLimit(Monitor):
    """Never more unacknowledged deliveries than prefetch_count.

    The client's acknowledgements are seen before the server has read them, so the count here is never higher
    than the server's own.
    """

    rule = "prefetch"
    title = "No more unacknowledged deliveries than prefetch_count, for each consumer and for the channel."
    requirements = ("AMQP-QOS-002", "AMQP-QOS-010", "AMQP-QOS-023")
    source = 'RabbitMQ, "Consumer Prefetch"; AMQP 0-9-1, basic.qos'
    side = Side.SERVER
    scope = MonitorScope.CHANNEL
    State = PrefetchState
    looks_at = frozenset(
        {
            facts.ChannelOpened,
            facts.PrefetchSet,
            facts.ConsumerStarted,
            facts.ConsumerCancelled,
            facts.AmqpDelivery,
            facts.AmqpAck,
            facts.ChannelRecovered,
        }
    )
    state: PrefetchState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        state = self.state
        match fact:
            case facts.ChannelOpened():
                self.state = PrefetchState()
            case facts.PrefetchSet(all_consumers=True):
                held = any(key >= 0 for key in state.outstanding.values())
                state.lowered = held and 0 < fact.prefetch_count < (state.shared or fact.prefetch_count + 1)
                state.shared = fact.prefetch_count
            case facts.PrefetchSet():
                state.for_new = fact.prefetch_count
            case facts.ConsumerStarted(no_ack=False):
                state.count += 1
                state.consumers[fact.consumer_tag] = state.count
                state.windows[state.count] = _Window(state.for_new)
            case facts.ConsumerCancelled():
                # What it still holds counts for no later consumer of that tag (AMQP-QOS-020).
                state.consumers.pop(fact.consumer_tag, None)
            case facts.AmqpDelivery(no_ack=False):
                yield from self._delivered(fact)
            case facts.AmqpAck():
                self._settle(fact)
            case facts.ChannelRecovered():
                state.outstanding.clear()
                for window in state.windows.values():
                    window.unacknowledged = 0

    def _delivered(self, fact: facts.AmqpDelivery) -> Iterator[Violation]:
        state = self.state
        key = state.consumers.get(fact.consumer_tag, -1) if fact.consumer_tag else -1
        state.outstanding[fact.delivery_tag] = key
        if key < 0:
            return  # basic.get, which prefetch does not limit (AMQP-QOS-008); or a consumer that ended
        window = state.windows[key]
        window.unacknowledged += 1
        if 0 < window.limit < window.unacknowledged:
            yield self.violation(
                f"at most {window.limit} unacknowledged deliveries to consumer {fact.consumer_tag}",
                f"{window.unacknowledged} with delivery tag {fact.delivery_tag}",
                fact.place,
            )
        held = sum(key >= 0 for key in state.outstanding.values()) if state.shared else 0
        if held > state.shared:
            yield self.violation(
                f"at most {state.shared} unacknowledged deliveries on channel {fact.channel}",
                f"{held} with delivery tag {fact.delivery_tag}",
                fact.place,
                certain=not state.lowered,
            )

    def _settle(self, fact: facts.AmqpAck) -> None:
        for tag in settled_by(fact, self.state.outstanding):
            key = self.state.outstanding.pop(tag)
            if key in self.state.windows:
                self.state.windows[key].unacknowledged -= 1


def settled_by(fact: facts.AmqpAck, outstanding: dict[int, int]) -> list[int]:
    """The outstanding tags that ``fact`` settles; tag 0 with multiple is all (AMQP 0-9-1, basic.ack)."""
    if not fact.multiple:
        return [fact.delivery_tag] if fact.delivery_tag in outstanding else []
    return [tag for tag in outstanding if fact.delivery_tag == 0 or tag <= fact.delivery_tag]


class OutstandingState(Struct):
    """``seen_from_start``: seen from the channel's opening. ``transacted``: a rollback may restore what was
    settled."""

    seen_from_start: bool = False
    transacted: bool = False
    outstanding: dict[int, int] = {}


class KnownTagsOnly(Monitor):
    """A client acknowledges what was delivered to it on that channel, once."""

    rule = "known-delivery-tag"
    title = "A client acknowledges only deliveries of the same channel that it has not settled yet."
    requirements = ("AMQP-ACK-008", "AMQP-ACK-009", "AMQP-ACK-012", "AMQP-ACK-014")
    source = 'RabbitMQ, "Consumer Acknowledgements and Publisher Confirms", Double Acking and Unknown Tags'
    side = Side.CLIENT
    scope = MonitorScope.CHANNEL
    State = OutstandingState
    looks_at = frozenset(
        {
            facts.ChannelOpened,
            facts.TransactionSelected,
            facts.AmqpDelivery,
            facts.ChannelRecovered,
            facts.AmqpAck,
        }
    )
    state: OutstandingState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        state = self.state
        match fact:
            case facts.ChannelOpened():
                self.state = OutstandingState(seen_from_start=True)
            case facts.TransactionSelected():
                state.transacted = True
            case facts.AmqpDelivery():
                if fact.no_ack is None:
                    state.seen_from_start = False  # whether it wants an acknowledgement is not known
                elif not fact.no_ack:
                    state.outstanding[fact.delivery_tag] = 1
            case facts.ChannelRecovered():
                state.outstanding.clear()
            case facts.AmqpAck():
                known = fact.delivery_tag in state.outstanding or (fact.multiple and not fact.delivery_tag)
                for tag in settled_by(fact, state.outstanding):
                    del state.outstanding[tag]
                if not known and state.seen_from_start and not state.transacted:
                    yield self.violation(
                        f"basic.{fact.kind} for an unsettled delivery of channel {fact.channel}",
                        f"delivery tag {fact.delivery_tag} is unknown",
                        fact.place,
                    )


class ConsumersState(Struct):
    """``seen_from_start``: the channel was seen from its opening."""

    seen_from_start: bool = False
    consumers: list[str] = []
    cancelled: dict[str, Place] = {}


class DeliveriesHaveConsumers(Monitor):
    """basic.deliver comes between its consumer's consume-ok and cancel-ok."""

    rule = "live-consumer"
    title = "A delivery is for a consumer whose basic.consume-ok came before and whose cancellation did not."
    requirements = ("AMQP-CONSUME-007", "AMQP-CONSUME-012")
    source = "AMQP 0-9-1, basic.consume and basic.cancel"
    side = Side.SERVER
    scope = MonitorScope.CHANNEL
    State = ConsumersState
    looks_at = frozenset(
        {facts.ChannelOpened, facts.ConsumerStarted, facts.ConsumerCancelled, facts.AmqpDelivery}
    )
    state: ConsumersState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        state = self.state
        match fact:
            case facts.ChannelOpened():
                self.state = ConsumersState(seen_from_start=True)
            case facts.ConsumerStarted():
                state.consumers.append(fact.consumer_tag)
                state.cancelled.pop(fact.consumer_tag, None)
            case facts.ConsumerCancelled(final=True):
                state.cancelled[fact.consumer_tag] = fact.place
            case facts.AmqpDelivery() if fact.consumer_tag:
                tag, cancelled = fact.consumer_tag, state.cancelled.get(fact.consumer_tag)
                if cancelled is not None:
                    yield self.violation(
                        f"no delivery to consumer {tag} after its end",
                        f"tag {fact.delivery_tag}",
                        fact.place,
                        cancelled,
                    )
                elif state.seen_from_start and tag not in state.consumers:
                    yield self.violation(f"basic.consume-ok for {tag} first", "a delivery", fact.place)


class RedeliveriesState(Struct):
    """By message_id: where it was first delivered."""

    first: dict[str, Place] = {}


class RedeliveredFlagIsSet(Monitor):
    """A message that comes from its queue again has redelivered set.

    Only messages with a message_id can be recognised, and nothing but habit keeps publishers from using one
    twice: every finding is possible, none certain.
    """

    rule = "redelivered"
    title = "A message that a queue delivers again has redelivered set."
    requirements = ("AMQP-REQUEUE-004",)
    source = 'RabbitMQ, "Consumer Acknowledgements and Publisher Confirms", Automatic Requeueing'
    side = Side.SERVER
    scope = MonitorScope.QUEUE
    State = RedeliveriesState
    looks_at = frozenset({facts.AmqpDelivery})
    state: RedeliveriesState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        if not isinstance(fact, facts.AmqpDelivery) or not fact.message_id or fact.dead_lettered:
            return
        first = self.state.first.get(fact.message_id)
        if first is None:
            self.state.first[fact.message_id] = fact.place
            if len(self.state.first) > MAX_REMEMBERED:
                del self.state.first[next(iter(self.state.first))]
        elif not fact.redelivered:
            yield self.violation(
                "redelivered true", f"message {fact.message_id} again, redelivered false", fact.place, first,
                certain=False,
            )  # fmt: skip
