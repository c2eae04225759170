"""Transactions, which put off publishes and acknowledgements: tx.select, tx.commit, tx.rollback.

Sources: AMQP 0-9-1 XML, class tx; RabbitMQ, "Semantics".
"""

from __future__ import annotations

from plumbline.reference_broker.amqp.acknowledging import Acknowledging
from plumbline.reference_broker.amqp.connection import Channel, Transaction
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpFault
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.reference_broker.amqp.publishing import Publishing
from plumbline.wire.amqp import Method


class Transactions:
    """What channels do in one go."""

    def __init__(self, publishing: Publishing, acknowledging: Acknowledging, outbox: Outbox) -> None:
        self.publishing = publishing
        self.acknowledging = acknowledging
        self.outbox = outbox

    def on_tx_select(self, channel: Channel, operation: Method, now: int) -> None:
        """tx.select."""
        if channel.confirms:
            raise AmqpFault(PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        if channel.transaction is None:
            channel.transaction = Transaction()
        self.outbox.answer(channel, "tx.select-ok")

    def end(self, channel: Channel) -> Transaction:
        """End the transaction of a channel and begin a new one. Raises ``AmqpFault`` (406)."""
        if channel.transaction is None:
            raise AmqpFault(PRECONDITION_FAILED, "channel is not transactional")
        ended, channel.transaction = channel.transaction, Transaction()
        return ended

    def on_tx_commit(self, channel: Channel, operation: Method, now: int) -> None:
        """tx.commit: publish, then settle, then answer."""
        ended = self.end(channel)
        taken = True
        for message, mandatory, queues in ended.publishes:
            if mandatory and not queues:
                self.publishing.give_back(channel, message)
            taken &= self.publishing.distribute(
                [queue for queue in queues if not queue.deleted], message, now
            )
        for deliveries, how in ended.settled:
            self.acknowledging.carry_out(deliveries, how, now)
        if not taken:
            raise AmqpFault(PRECONDITION_FAILED, "partial tx completion")
        self.outbox.answer(channel, "tx.commit-ok")

    def on_tx_rollback(self, channel: Channel, operation: Method, now: int) -> None:
        """tx.rollback: nothing was published, and what was settled is outstanding again."""
        self.undo(channel, self.end(channel))
        self.outbox.answer(channel, "tx.rollback-ok")

    def undo(self, channel: Channel, ended: Transaction) -> None:
        for deliveries, _ in ended.settled:
            channel.outstanding.update(deliveries)
        channel.outstanding = dict(sorted(channel.outstanding.items()))
