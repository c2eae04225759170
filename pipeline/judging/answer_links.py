"""Links each operation to the earlier operations of its connection that it answers.

What is remembered is bounded: what is not answered is forgotten, the oldest first.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from plumbline.monitors.amqp import facts as amqp
from plumbline.monitors.amqp.consuming import settled_by
from plumbline.monitors.amqp.publishing import confirmed_by
from plumbline.monitors.facts import Fact
from plumbline.monitors.nats import facts as nats
from plumbline.monitors.nats.pulls import BatchIsTheLimit

MAX_REMEMBERED = 100_000


class _LinkedChannel:
    def __init__(self) -> None:
        self.deliveries: dict[int, int] = {}  # delivery tag -> operation
        self.publishes: dict[int, int] = {}  # number -> operation
        self.mandatory: dict[tuple[str, str], deque[int]] = {}  # exchange and routing key -> operations


class AnswerLinks:
    """One for each connection. Ask for ``answers`` before the monitors see the fact."""

    def __init__(self) -> None:
        self._deliveries: dict[tuple[str, str, int], int] = {}  # stream, consumer, consumer sequence
        self._channels: dict[int, _LinkedChannel] = {}

    def answers(self, fact: Fact, pulls: BatchIsTheLimit | None) -> list[int]:
        """Numbers of operations. ``pulls`` is the connection's monitor of pull requests."""
        match fact:
            case nats.JetStreamDelivery():
                key = (fact.stream, fact.consumer, fact.consumer_seq)
                _remember(self._deliveries, key, fact.place.index)
                pull = pulls.counts_for(fact) if pulls is not None else None
                return [] if pull is None else [pull.index]
            case nats.JetStreamAck(kind="+WPI"):
                found = self._deliveries.get((fact.stream, fact.consumer, fact.consumer_seq))
                return [] if found is None else [found]
            case nats.JetStreamAck():
                found = self._deliveries.pop((fact.stream, fact.consumer, fact.consumer_seq), None)
                return [] if found is None else [found]
            case nats.AckConfirmed() | nats.PublishStored() | nats.MessageRead() | nats.ConsumerStated():
                return [fact.requested_at.index]
            case nats.PullStatus():
                pull = pulls.ends(fact) if pulls is not None else None
                return [] if pull is None else [pull.index]
            case amqp.ChannelFact():
                return self._of_channel(fact)
        return []

    def _of_channel(self, fact: amqp.ChannelFact) -> list[int]:
        channel = self._channels.get(fact.channel)
        if channel is None or isinstance(fact, amqp.ChannelOpened):
            channel = self._channels[fact.channel] = _LinkedChannel()
        match fact:
            case amqp.AmqpDelivery(no_ack=None | False):
                _remember(channel.deliveries, fact.delivery_tag, fact.place.index)
            case amqp.AmqpAck():
                settled = settled_by(fact, channel.deliveries)
                return [channel.deliveries.pop(tag) for tag in settled]
            case amqp.ChannelRecovered():
                channel.deliveries.clear()
            case amqp.AmqpPublish():
                if fact.number:
                    _remember(channel.publishes, fact.number, fact.place.index)
                if fact.mandatory:
                    pending = channel.mandatory.setdefault((fact.exchange, fact.routing_key), deque())
                    pending.append(fact.place.index)
                    if len(pending) > MAX_REMEMBERED:
                        pending.popleft()
            case amqp.PublishConfirmed():
                confirmed = confirmed_by(fact, channel.publishes)
                return [channel.publishes.pop(number) for number in confirmed]
            case amqp.MessageReturned():
                waiting = channel.mandatory.get((fact.exchange, fact.routing_key))
                return [waiting.popleft()] if waiting else []
        return []


def _remember(kept: dict[Any, int], key: Any, number: int) -> None:
    kept[key] = number
    if len(kept) > MAX_REMEMBERED:
        del kept[next(iter(kept))]
