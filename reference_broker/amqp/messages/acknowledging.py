"""How consumers settle deliveries: basic.ack, nack, reject, recover; and transactions, which put it off.

Sources: AMQP 0-9-1 XML, basic.ack, basic.reject, basic.recover, class tx; RabbitMQ, "Consumer
Acknowledgements and Publisher Confirms", "Negative Acknowledgements", "Semantics".
"""

from __future__ import annotations

from itertools import takewhile

from plumbline.reference_broker.amqp.connections.connection import Channel, Transaction, UnackedDelivery
from plumbline.reference_broker.amqp.errors import NOT_IMPLEMENTED, PRECONDITION_FAILED, AmqpReplyError
from plumbline.reference_broker.amqp.messages.dead_letters import REJECTED
from plumbline.reference_broker.amqp.messages.delivery import Deliveries
from plumbline.reference_broker.amqp.messages.publishing import Publishing
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method

ACK, REQUEUE, DISCARD = "ack", "requeue", "discard"


class Acknowledging:
    """Settling deliveries, at once or at tx.commit."""

    def __init__(self, deliveries: Deliveries, outbox: Outbox) -> None:
        self.deliveries = deliveries
        self.outbox = outbox

    def on_basic_ack(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.ack."""
        arguments = operation.arguments
        tag = arguments["delivery_tag"]
        if not arguments["multiple"] and channel.transaction is None and tag in channel.outstanding:
            self.acknowledge(channel.outstanding.pop(tag), now)  # the common case, quickly
            return
        self.settle_tag(channel, tag, ACK, now, multiple=arguments["multiple"])

    def on_basic_nack(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.nack."""
        arguments = operation.arguments
        how = REQUEUE if arguments["requeue"] else DISCARD
        self.settle_tag(channel, arguments["delivery_tag"], how, now, multiple=arguments["multiple"])

    def on_basic_reject(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.reject."""
        how = REQUEUE if operation.arguments["requeue"] else DISCARD
        self.settle_tag(channel, operation.arguments["delivery_tag"], how, now, multiple=False)

    def settle_tag(self, channel: Channel, tag: int, settlement: str, now: int, *, multiple: bool) -> None:
        deliveries = self.take_outstanding(channel, tag, multiple=multiple)
        if channel.transaction is not None:
            channel.transaction.settlements.append((deliveries, settlement))
        else:
            self.apply_settlement(deliveries, settlement, now)

    def take_outstanding(self, channel: Channel, tag: int, *, multiple: bool) -> dict[int, UnackedDelivery]:
        """The deliveries that ``tag`` means, taken off the channel. Raises ``AmqpReplyError`` (406)."""
        outstanding = channel.outstanding
        if multiple and tag == 0:
            tags = list(outstanding)
        elif tag not in outstanding:
            raise AmqpReplyError(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        elif multiple:
            tags = list(takewhile(lambda one: one <= tag, outstanding))
        else:
            tags = [tag]
        return {one: outstanding.pop(one) for one in tags}

    def apply_settlement(self, deliveries: dict[int, UnackedDelivery], settlement: str, now: int) -> None:
        match settlement:
            case "ack":
                for delivery in deliveries.values():
                    self.acknowledge(delivery, now)
            case "requeue":
                for delivery in deliveries.values():
                    self.deliveries.settle(delivery)
                queues = self.deliveries.requeue(deliveries.values(), now)
                for delivery in deliveries.values():
                    queues |= self.queues_of_limited_channel(delivery)
                self.deliveries.deliver_ready_all(queues, now)
            case _:
                for delivery in deliveries.values():
                    self.discard_or_dead_letter(delivery, now)

    def acknowledge(self, delivery: UnackedDelivery, now: int) -> None:
        """It is the client's now."""
        if delivery.queue.durable_entries:
            self.deliveries.discard(delivery.queue, delivery.entry)
        self.deliveries.settle(delivery)
        self.resume_delivery(delivery, now)

    def resume_delivery(self, delivery: UnackedDelivery, now: int) -> None:
        """What is settled makes room: for its own consumer, or for all of a channel with a limit."""
        queue, consumer = delivery.queue, delivery.consumer
        if consumer is not None and consumer.channel.limit:
            self.deliveries.deliver_ready_all(self.queues_of_limited_channel(delivery), now)
        elif queue.turn and len(queue.ready):
            self.deliveries.deliver_ready(queue, now)

    def queues_of_limited_channel(self, delivery: UnackedDelivery) -> set[Queue]:
        """Which may have a consumer with room again once ``delivery`` is settled: those of all consumers of a
        channel with a limit."""
        consumer = delivery.consumer
        if consumer is None or not consumer.channel.limit:
            return set()
        return {one.queue for one in consumer.channel.consumers.values()}

    def discard_or_dead_letter(self, delivery: UnackedDelivery, now: int) -> None:
        """Rejected for good: discarded or dead-lettered."""
        queue = delivery.queue
        self.deliveries.discard(queue, delivery.entry)
        if not queue.deleted:
            self.deliveries.dead_letter(queue, delivery.entry.message, REJECTED, now)
        self.deliveries.settle(delivery)
        self.resume_delivery(delivery, now)

    def on_basic_recover(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.recover: everything outstanding on this channel is requeued."""
        self.check_recover(operation)
        self.outbox.answer(channel, "basic.recover-ok")
        self.requeue_all(channel, now)

    def on_basic_recover_async(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.recover-async: the same without an answer."""
        self.check_recover(operation)
        self.requeue_all(channel, now)

    def check_recover(self, operation: Method) -> None:
        if not operation.arguments["requeue"]:
            raise AmqpReplyError(NOT_IMPLEMENTED, "requeue=false")

    def requeue_all(self, channel: Channel, now: int) -> None:
        deliveries, channel.outstanding = channel.outstanding, {}
        self.apply_settlement(deliveries, REQUEUE, now)


class Transactions:
    """What channels do in one go."""

    def __init__(self, publishing: Publishing, acknowledging: Acknowledging, outbox: Outbox) -> None:
        self.publishing = publishing
        self.acknowledging = acknowledging
        self.outbox = outbox

    def on_tx_select(self, channel: Channel, operation: Method, now: int) -> None:
        """tx.select."""
        if channel.confirms:
            raise AmqpReplyError(PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        if channel.transaction is None:
            channel.transaction = Transaction()
        self.outbox.answer(channel, "tx.select-ok")

    def end(self, channel: Channel) -> Transaction:
        """End the transaction of a channel and begin a new one. Raises ``AmqpReplyError`` (406)."""
        if channel.transaction is None:
            raise AmqpReplyError(PRECONDITION_FAILED, "channel is not transactional")
        ended, channel.transaction = channel.transaction, Transaction()
        return ended

    def on_tx_commit(self, channel: Channel, operation: Method, now: int) -> None:
        """tx.commit: publish, then settle, then answer."""
        ended = self.end(channel)
        taken = True
        for message, mandatory, queues in ended.publishes:
            if mandatory and not queues:
                self.publishing.return_message(channel, message)
            taken &= self.publishing.distribute(
                [queue for queue in queues if not queue.deleted], message, now
            )
        for deliveries, how in ended.settlements:
            self.acknowledging.apply_settlement(deliveries, how, now)
        if not taken:
            raise AmqpReplyError(PRECONDITION_FAILED, "partial tx completion")
        self.outbox.answer(channel, "tx.commit-ok")

    def on_tx_rollback(self, channel: Channel, operation: Method, now: int) -> None:
        """tx.rollback: nothing was published, and what was settled is outstanding again."""
        self.restore_outstanding(channel, self.end(channel))
        self.outbox.answer(channel, "tx.rollback-ok")

    def restore_outstanding(self, channel: Channel, ended: Transaction) -> None:
        for deliveries, _ in ended.settlements:
            channel.outstanding.update(deliveries)
        channel.outstanding = dict(sorted(channel.outstanding.items()))
