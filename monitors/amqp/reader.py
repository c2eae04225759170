"""Reads the operations of one AMQP connection, in their order, into facts.

It knows what only this connection's own past can tell: which request an ``-ok`` answers, and what a consumer
tag consumes. A reader that begins in the middle says less, and never guesses. Its state is serialisable.
Sources: AMQP 0-9-1, sections 1.6 to 1.8; RabbitMQ, "Consumer Acknowledgements and Publisher Confirms".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from plumbline.monitors.amqp import facts
from plumbline.monitors.facts import Fact
from plumbline.monitors.observation import Observation
from plumbline.wire import amqp


class _ConsumerQueue(Struct, frozen=True):
    queue: str
    no_ack: bool


class _Channel(Struct):
    """What was asked and not answered yet, first in first out; and what consumer tags stand for."""

    qos: list[tuple[int, bool]] = []
    consume: list[tuple[str, str, bool]] = []  # tag as asked, queue, no_ack
    get: list[tuple[str, bool]] = []  # queue, no_ack
    consumers: dict[str, _ConsumerQueue] = {}
    confirms: bool = False
    published: int = 0


class AmqpReaderState(Struct):
    """``vhost`` is empty until connection.open is seen."""

    vhost: str = ""
    channels: dict[int, _Channel] = {}


class AmqpReader:
    """Observations of one connection in, facts out."""

    def __init__(self, state: AmqpReaderState | None = None) -> None:
        self.state = state or AmqpReaderState()

    def read(self, observation: Observation) -> Iterator[Fact]:
        """The facts that ``observation`` adds."""
        operation = observation.operation
        if not isinstance(operation, amqp.Method):
            return
        read = _READERS.get((observation.sender, operation.method))
        if read is not None:
            channel = self.state.channels.get(operation.channel)
            if channel is None:
                channel = self.state.channels[operation.channel] = _Channel()
            about = {"place": observation.place, "server": observation.server, "channel": operation.channel}
            yield from read(self, channel, operation, about)

    # -- connections and channels --

    def _vhost(self, _: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        self.state.vhost = operation.arguments["virtual_host"]
        yield from ()

    def _opened(self, _: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        self.state.channels[operation.channel] = _Channel()
        yield facts.ChannelOpened(**about)

    def _closed(self, _: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        code, text = operation.arguments["reply_code"], operation.arguments["reply_text"]
        yield facts.ChannelClosed(**about, reply_code=code, reply_text=text)

    def _transacted(self, _: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        yield facts.TransactionSelected(**about)

    # -- consuming --

    def _qos(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        channel.qos.append((operation.arguments["prefetch_count"], operation.arguments["global"]))
        yield from ()

    def _qos_ok(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        if channel.qos:
            count, all_consumers = channel.qos.pop(0)
            yield facts.PrefetchSet(**about, prefetch_count=count, all_consumers=all_consumers)

    def _consume(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        arguments = operation.arguments
        if arguments["no_wait"]:
            yield self._consuming(
                channel, arguments["consumer_tag"], arguments["queue"], arguments["no_ack"], about
            )
        else:
            channel.consume.append((arguments["consumer_tag"], arguments["queue"], arguments["no_ack"]))

    def _consume_ok(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        if channel.consume:
            _, queue, no_ack = channel.consume.pop(0)
            yield self._consuming(channel, operation.arguments["consumer_tag"], queue, no_ack, about)

    def _consuming(
        self, channel: _Channel, tag: str, queue: str, no_ack: Any, about: dict[str, Any]
    ) -> facts.ConsumerStarted:
        channel.consumers[tag] = _ConsumerQueue(queue, bool(no_ack))
        return facts.ConsumerStarted(**about, consumer_tag=tag, queue=queue, no_ack=bool(no_ack))

    def _client_cancel(
        self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]
    ) -> Iterator[Fact]:
        if operation.arguments["no_wait"]:
            yield facts.ConsumerCancelled(
                **about, consumer_tag=operation.arguments["consumer_tag"], final=False
            )

    def _cancelled(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        yield facts.ConsumerCancelled(**about, consumer_tag=operation.arguments["consumer_tag"], final=True)

    def _get(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        channel.get.append((operation.arguments["queue"], operation.arguments["no_ack"]))
        yield from ()

    def _get_empty(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        del channel.get[:1]
        yield from ()

    def _get_ok(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        request = _ConsumerQueue(*channel.get.pop(0)) if channel.get else None
        yield self._delivery(operation, about, "", request)

    def _deliver(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        tag = operation.arguments["consumer_tag"]
        yield self._delivery(operation, about, tag, channel.consumers.get(tag))

    def _delivery(
        self, operation: amqp.Method, about: dict[str, Any], tag: str, request: _ConsumerQueue | None
    ) -> facts.AmqpDelivery:
        arguments, properties = operation.arguments, operation.properties or {}
        headers = properties.get("headers")
        return facts.AmqpDelivery(
            **about, vhost=self.state.vhost, queue="" if request is None else request.queue,
            no_ack=None if request is None else request.no_ack, delivery_tag=arguments["delivery_tag"],
            consumer_tag=tag,
            redelivered=arguments["redelivered"], exchange=arguments["exchange"],
            routing_key=arguments["routing_key"], size=len(operation.body),
            message_id=str(properties.get("message_id") or ""),
            dead_lettered=isinstance(headers, dict) and "x-death" in headers,
        )  # fmt: skip

    def _acknowledge(
        self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]
    ) -> Iterator[Fact]:
        arguments = operation.arguments
        yield facts.AmqpAck(
            **about, delivery_tag=arguments["delivery_tag"], multiple=bool(arguments.get("multiple")),
            kind=operation.method.removeprefix("basic."), requeue=bool(arguments.get("requeue")),
        )  # fmt: skip

    def _recovered(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        yield facts.ChannelRecovered(**about)

    # -- publishing --

    def _select(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        channel.confirms = True
        yield facts.ConfirmsSelected(**about)

    def _publish(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        channel.published += channel.confirms
        arguments, properties = operation.arguments, operation.properties or {}
        yield facts.AmqpPublish(
            **about, number=channel.published, exchange=arguments["exchange"],
            routing_key=arguments["routing_key"], mandatory=arguments["mandatory"], size=len(operation.body),
            message_id=str(properties.get("message_id") or ""),
        )  # fmt: skip

    def _returned(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        arguments = operation.arguments
        yield facts.MessageReturned(
            **about,
            reply_code=arguments["reply_code"],
            exchange=arguments["exchange"],
            routing_key=arguments["routing_key"],
        )

    def _confirmed(self, channel: _Channel, operation: amqp.Method, about: dict[str, Any]) -> Iterator[Fact]:
        arguments = operation.arguments
        yield facts.PublishConfirmed(
            **about, delivery_tag=arguments["delivery_tag"], multiple=arguments["multiple"],
            kind=operation.method.removeprefix("basic."),
        )  # fmt: skip


_Reader = Callable[[AmqpReader, _Channel, amqp.Method, dict[str, Any]], Iterator[Fact]]
_CLIENT, _SERVER = amqp.Sender.CLIENT, amqp.Sender.SERVER
_READERS: dict[tuple[amqp.Sender, str], _Reader] = {
    (_CLIENT, "connection.open"): AmqpReader._vhost,
    (_SERVER, "channel.open-ok"): AmqpReader._opened,
    (_CLIENT, "channel.close"): AmqpReader._closed,
    (_SERVER, "channel.close"): AmqpReader._closed,
    (_CLIENT, "connection.close"): AmqpReader._closed,
    (_SERVER, "connection.close"): AmqpReader._closed,
    (_CLIENT, "tx.select"): AmqpReader._transacted,
    (_CLIENT, "basic.qos"): AmqpReader._qos,
    (_SERVER, "basic.qos-ok"): AmqpReader._qos_ok,
    (_CLIENT, "basic.consume"): AmqpReader._consume,
    (_SERVER, "basic.consume-ok"): AmqpReader._consume_ok,
    (_CLIENT, "basic.cancel"): AmqpReader._client_cancel,
    (_SERVER, "basic.cancel"): AmqpReader._cancelled,
    (_SERVER, "basic.cancel-ok"): AmqpReader._cancelled,
    (_CLIENT, "basic.get"): AmqpReader._get,
    (_SERVER, "basic.get-empty"): AmqpReader._get_empty,
    (_SERVER, "basic.get-ok"): AmqpReader._get_ok,
    (_SERVER, "basic.deliver"): AmqpReader._deliver,
    (_CLIENT, "basic.ack"): AmqpReader._acknowledge,
    (_CLIENT, "basic.nack"): AmqpReader._acknowledge,
    (_CLIENT, "basic.reject"): AmqpReader._acknowledge,
    (_SERVER, "basic.recover-ok"): AmqpReader._recovered,
    (_CLIENT, "basic.recover-async"): AmqpReader._recovered,
    (_CLIENT, "confirm.select"): AmqpReader._select,
    (_CLIENT, "basic.publish"): AmqpReader._publish,
    (_SERVER, "basic.return"): AmqpReader._returned,
    (_SERVER, "basic.ack"): AmqpReader._confirmed,
    (_SERVER, "basic.nack"): AmqpReader._confirmed,
}
