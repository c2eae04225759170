"""A client without a socket: what the management API does with queues and messages goes through it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.drop_in.requests import ApiError, bad_request, missing, not_authorised
from plumbline.reference_broker.amqp.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    AmqpReplyError,
    reply_text,
)
from plumbline.reference_broker.amqp.lifecycle import ChannelPhase, Phase
from plumbline.reference_broker.amqp.topology.exchanges import Binding
from plumbline.wire.amqp import Decoder, Limits, Method, Sender

_NUMBER = -1  # of its connection: no socket has it
_UNLIMITED = Limits(2**40, max_body=2**40, max_unfinished=2**40)


class InternalClient:
    """One channel in a virtual host."""

    def __init__(self, broker: Broker, vhost: str, user: str, now: int) -> None:
        self.broker = broker
        self.now = now
        connection = AmqpClientConnection(_NUMBER, Decoder(Sender.CLIENT))
        connection.user, connection.vhost, connection.phase = user, vhost, Phase.RUNNING
        self.channel = Channel(connection, 1)

    def call(self, name: str, **arguments: Any) -> list[Method]:
        """Carry out a method; what the broker answers. Raises ``ApiError``."""
        try:
            method = Method.make(name, 1, **arguments)
        except (ValueError, TypeError, AttributeError) as error:  # a value of another type
            raise bad_request(str(error)) from None
        return self.handle(method)

    def handle(self, method: Method) -> list[Method]:
        """Raises ``ApiError``."""
        out = self.channel.connection.out
        try:
            self.broker.handlers[ChannelPhase.OPENED][method.method](self.channel, method, self.now)
        except AmqpReplyError as fault:
            raise _refusal(fault) from None
        data = b"".join(out)
        out.clear()
        decoder = Decoder(Sender.SERVER, _UNLIMITED)
        return [one for one in decoder.feed(data) if isinstance(one, Method)]

    def bind(self, binding: Binding) -> None:
        """Raises ``ApiError``."""
        self._change_binding("bind", binding)

    def unbind(self, binding: Binding) -> None:
        """Raises ``ApiError``."""
        self._change_binding("unbind", binding)

    def _change_binding(self, change: str, binding: Binding) -> None:
        same = {"routing_key": binding.routing_key, "arguments": binding.arguments}
        if binding.to_queue:
            self.call(f"queue.{change}", queue=binding.destination, exchange=binding.source, **same)
        else:
            self.call(f"exchange.{change}", destination=binding.destination, source=binding.source, **same)

    def close(self) -> None:
        """What was taken and not settled is requeued."""
        self.broker.channels.leave(self.channel, self.now)
        self.channel.connection.out.clear()


def _refusal(fault: AmqpReplyError) -> ApiError:
    """Of HTTP: what is not allowed does not say why, and only of what is missing the whole text is given."""
    if fault.code == ACCESS_REFUSED:
        return not_authorised("Access refused.")
    text = reply_text(fault.code, fault.detail).decode("utf-8", "replace")
    if fault.code == NOT_FOUND:
        return bad_request(f"{fault.code} {text}")
    return bad_request(text.partition(" - ")[2] or text)


@contextmanager
def internal_client(broker: Broker, vhost: str, user: str | None, now: int) -> Iterator[InternalClient]:
    """Of ``user``, with his permissions; of None: it may do everything. Raises ``ApiError``."""
    if vhost not in broker.vhosts:
        raise missing("vhost_not_found")
    client = InternalClient(broker, vhost, user or "", now)
    if user is not None and not broker.access.enter(client.channel.connection, vhost):
        raise not_authorised("User not authorised to access virtual host")
    try:
        yield client
    finally:
        client.close()
