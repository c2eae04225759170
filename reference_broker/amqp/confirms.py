"""Publisher confirms: confirm.select, and the acks and nacks that publishers get.

Source: RabbitMQ, "Consumer Acknowledgements and Publisher Confirms".
"""

from __future__ import annotations

from plumbline.reference_broker.amqp.connection import Channel
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpFault
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.wire.amqp import Method


class Confirms:
    """The channels with something to confirm at the end of this event."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.confirming: list[Channel] = []

    def on_confirm_select(self, channel: Channel, operation: Method, now: int) -> None:
        """confirm.select."""
        if channel.transaction is not None:
            raise AmqpFault(PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        channel.confirms = True
        if not operation.arguments["no_wait"]:
            self.outbox.answer(channel, "confirm.select-ok")

    def tag(self, channel: Channel) -> int:
        """What the message just published is confirmed as."""
        return channel.published

    def confirm(self, channel: Channel, tag: int, *, taken: bool) -> None:
        """Ack once every queue took it, nack if one did not.

        Where it has to survive, the ledger has it by then, and the shell writes before it sends.
        """
        if not channel.acked and not channel.nacked:
            self.confirming.append(channel)
        (channel.acked if taken else channel.nacked).append(tag)

    def send(self) -> None:
        """What this event has to be confirmed, in as few frames as may be."""
        for channel in self.confirming:
            acked, nacked = channel.acked, channel.nacked
            if not channel.closed and not channel.closing:
                self.send_settled(channel, "basic.ack", (), acked, nacked)
                self.send_settled(channel, "basic.nack", (True,), nacked, acked)
            channel.acked, channel.nacked = [], []
        self.confirming.clear()

    def send_settled(
        self, channel: Channel, method: str, more: tuple[bool, ...], tags: list[int], others: list[int]
    ) -> None:
        """One frame with ``multiple`` for all below what is settled otherwise; then one for each."""
        together = len(tags) if not others else sum(tag < others[0] for tag in tags)
        if together > 1:
            self.outbox.answer(channel, method, tags[together - 1], True, *more)
            tags = tags[together:]
        for tag in tags:
            self.outbox.answer(channel, method, tag, False, *more)
