"""Rules of publisher confirms and returned messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile

from msgspec import Struct, field

from plumbline.monitors.amqp import facts
from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.observation import Place, Side, Violation
from plumbline.monitors.ranges import Ranges

# Mandatory publishes of a channel that may never ask for confirms; the oldest are forgotten first.
MAX_REMEMBERED = 1000


class ConfirmsState(Struct):
    """``waiting``: numbers of publishes without a confirm, in their order."""

    selected: bool = False
    published: int = 0
    waiting: dict[int, Place] = {}
    settled: Ranges = field(default_factory=Ranges)


class OneConfirm(Monitor):
    """Each publish of a confirm channel is confirmed once: basic.ack or basic.nack, never both."""

    rule = "one-confirm"
    title = "A server confirms each publish of a confirm channel once, with basic.ack or basic.nack."
    requirements = ("AMQP-CONFIRM-004", "AMQP-CONFIRM-009", "AMQP-CONFIRM-010")
    source = 'RabbitMQ, "Consumer Acknowledgements and Publisher Confirms", Publisher Confirms'
    side = Side.SERVER
    scope = MonitorScope.CHANNEL
    State = ConfirmsState
    looks_at = frozenset(
        {facts.ChannelOpened, facts.ConfirmsSelected, facts.AmqpPublish, facts.PublishConfirmed}
    )
    state: ConfirmsState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        state = self.state
        match fact:
            case facts.ChannelOpened():
                self.state = ConfirmsState()
            case facts.ConfirmsSelected():
                state.selected = True
            case facts.AmqpPublish() if fact.number:
                state.published = fact.number
                state.waiting[fact.number] = fact.place
            case facts.PublishConfirmed() if state.selected:
                yield from self._confirmed(fact)

    def _confirmed(self, fact: facts.PublishConfirmed) -> Iterator[Violation]:
        state, tag = self.state, fact.delivery_tag
        if tag == 0 or tag > state.published:
            known = f"{state.published} publishes were counted"
            yield self.violation(
                "the number of a publish", f"basic.{fact.kind} {tag}, and {known}", fact.place
            )
        elif tag in state.settled:
            yield self.violation("one confirm", f"basic.{fact.kind} {tag} is the second", fact.place)
        for number in confirmed_by(fact, state.waiting):
            del state.waiting[number]
            state.settled.add(number)


def confirmed_by(fact: facts.PublishConfirmed, waiting: Mapping[int, object]) -> list[int]:
    """The waiting numbers that ``fact`` confirms (RabbitMQ, "Publisher Confirms": ``multiple``)."""
    if not fact.multiple:
        return [fact.delivery_tag] if fact.delivery_tag in waiting else []
    in_order = takewhile(lambda number: number <= fact.delivery_tag, waiting)
    return [number for number in in_order if number > 0]


class MandatoryState(Struct):
    """``waiting``: mandatory publishes without a confirm, by number: exchange, routing key, place."""

    selected: bool = False
    waiting: dict[int, tuple[str, str, Place]] = {}


class ReturnComesFirst(Monitor):
    """basic.return of a message comes before its confirm."""

    rule = "return-first"
    title = "A mandatory message that cannot be routed is returned before it is confirmed."
    requirements = ("AMQP-CONFIRM-015",)
    source = (
        'RabbitMQ, "Consumer Acknowledgements and Publisher Confirms", When Are Published Messages Confirmed'
    )
    side = Side.SERVER
    scope = MonitorScope.CHANNEL
    State = MandatoryState
    looks_at = frozenset(
        {
            facts.ChannelOpened,
            facts.ConfirmsSelected,
            facts.AmqpPublish,
            facts.PublishConfirmed,
            facts.MessageReturned,
        }
    )
    state: MandatoryState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        state = self.state
        match fact:
            case facts.ChannelOpened():
                self.state = MandatoryState()
            case facts.ConfirmsSelected():
                state.selected = True
            case facts.AmqpPublish(mandatory=True):
                # What was published before confirm.select is returned and never confirmed.
                number = fact.number or -fact.place.index
                state.waiting[number] = (fact.exchange, fact.routing_key, fact.place)
                if not state.selected and len(state.waiting) > MAX_REMEMBERED:
                    del state.waiting[next(iter(state.waiting))]
            case facts.PublishConfirmed():
                for number in confirmed_by(fact, state.waiting):
                    del state.waiting[number]
            case facts.MessageReturned() if state.selected:
                route = (fact.exchange, fact.routing_key)
                found = next(
                    (number for number, publish in state.waiting.items() if publish[:2] == route), None
                )
                if found is not None:
                    del state.waiting[found]
                else:
                    yield self.violation(
                        "basic.return before the message's confirm",
                        f"exchange {fact.exchange!r}, routing key {fact.routing_key!r} returned,"
                        " and no such mandatory publish waits for its confirm",
                        fact.place,
                    )
