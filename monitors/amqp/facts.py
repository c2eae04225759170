"""Facts: the meaning of AMQP operations, given the earlier operations of their channel.

A reader (``amqp_reader``) makes facts from operations; monitors judge them; pipelines keep them as tables.
Names are the specification's. A fact holds no message body.
"""

from __future__ import annotations

from plumbline.monitors.facts import Fact


class ChannelFact(Fact, frozen=True, kw_only=True, tag=lambda name: f"amqp.{name}"):
    """A fact about one channel of ``place.connection``."""

    channel: int


class ChannelOpened(ChannelFact, frozen=True, kw_only=True):
    """channel.open-ok: tags and counts start again."""


class ChannelClosed(ChannelFact, frozen=True, kw_only=True):
    """channel.close or connection.close (channel 0), by either side."""

    reply_code: int
    reply_text: str


class TransactionSelected(ChannelFact, frozen=True, kw_only=True):
    """tx.select: a rollback may take back what was acknowledged."""


class PrefetchSet(ChannelFact, frozen=True, kw_only=True):
    """basic.qos-ok, with what was asked for. ``all_consumers`` is the argument ``global``."""

    prefetch_count: int
    all_consumers: bool


class ConsumerStarted(ChannelFact, frozen=True, kw_only=True):
    """basic.consume-ok, or basic.consume with no_wait."""

    consumer_tag: str
    queue: str
    no_ack: bool


class ConsumerCancelled(ChannelFact, frozen=True, kw_only=True):
    """basic.cancel-ok, or the server's own basic.cancel, or the client's with no_wait.

    ``final``: no delivery may follow; false where the server has not confirmed yet that it knows.
    """

    consumer_tag: str
    final: bool


class AmqpDelivery(ChannelFact, frozen=True, kw_only=True):
    """basic.deliver, or basic.get-ok (``consumer_tag`` empty). ``no_ack`` None: not known."""

    vhost: str
    queue: str
    delivery_tag: int
    consumer_tag: str
    redelivered: bool
    no_ack: bool | None
    exchange: str
    routing_key: str
    size: int
    message_id: str = ""
    dead_lettered: bool = False  # has x-death headers: it may be in its queue for the second time


class AmqpAck(ChannelFact, frozen=True, kw_only=True):
    """The client's basic.ack, basic.nack or basic.reject: ``kind`` is its name without ``basic.``."""

    delivery_tag: int
    multiple: bool
    kind: str
    requeue: bool = False


class ChannelRecovered(ChannelFact, frozen=True, kw_only=True):
    """basic.recover-ok, or basic.recover-async: what was outstanding went back to its queues."""


class ConfirmsSelected(ChannelFact, frozen=True, kw_only=True):
    """confirm.select: the publishes after it are counted from 1, unless they were counted already."""


class AmqpPublish(ChannelFact, frozen=True, kw_only=True):
    """basic.publish. ``number``: its place in the channel's count of confirms, 0 if none is counted."""

    number: int
    exchange: str
    routing_key: str
    mandatory: bool
    size: int
    message_id: str = ""


class MessageReturned(ChannelFact, frozen=True, kw_only=True):
    """basic.return."""

    reply_code: int
    exchange: str
    routing_key: str


class PublishConfirmed(ChannelFact, frozen=True, kw_only=True):
    """The server's basic.ack or basic.nack (``kind``)."""

    delivery_tag: int
    multiple: bool
    kind: str
