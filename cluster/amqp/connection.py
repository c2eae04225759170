"""A connection to a RabbitMQ node with one channel, which is set up for one purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plumbline.bounds import OPERATION_BYTES
from plumbline.cluster.connection import BaseConnection
from plumbline.conformance.amqp.handshake import open_, start_ok, tune_ok
from plumbline.conformance.targets.urls import AmqpUrl
from plumbline.wire.amqp import Decoder, Heartbeat, Limits, Method, ProtocolHeader
from plumbline.wire.sender import Sender

CHANNEL = 1

LIMITS = Limits(max_body=OPERATION_BYTES, max_unfinished=OPERATION_BYTES)

OnMethod = Callable[[Method, int], None]  # the method, and when it was read (monotonic ns)


class ChannelConnection(BaseConnection):
    """What comes on the channel after it was set up goes to ``on_method``. An end of the channel is an end of
    the connection."""

    greeted_within_s = 10.0  # a login reads the cluster's metadata

    def __init__(self, url: AmqpUrl, setup: Sequence[Method], on_method: OnMethod) -> None:
        super().__init__()
        self.answers: list[Method] = []  # to ``setup``
        self._url = url
        self._setup = [Method.make("channel.open", CHANNEL), *setup]
        self._on_method = on_method
        self._decoder = Decoder(Sender.SERVER, LIMITS)

    @classmethod
    async def open(cls, url: str, setup: Sequence[Method], on_method: OnMethod) -> ChannelConnection:
        """Connected, and every method of ``setup`` was answered. Raises ``OSError`` (``TimeoutError``) if the
        node does not answer or refuses one."""
        address = AmqpUrl.parse(url)
        return await cls(address, setup, on_method).connect(address.host, address.port)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.send(ProtocolHeader.make().raw)

    def _received(self, data: bytes, now: int) -> None:
        for operation in self._decoder.feed(data):
            if isinstance(operation, Heartbeat):
                self.send(operation.raw)
            elif isinstance(operation, Method):
                self._take(operation, now)

    def _take(self, method: Method, now: int) -> None:
        match method.method:
            case "connection.start":
                self.send(start_ok(self._url, {}).raw)
            case "connection.tune":
                self.send(tune_ok(method, {}).raw + open_(self._url, {}).raw)
            case "connection.open-ok":
                self.send(b"".join(one.raw for one in self._setup))
            case "connection.close" | "channel.close":
                arguments = method.arguments
                self.refused(f"{arguments['reply_code']} {arguments['reply_text']}")
                self.close()
            case _ if self._ready.done():
                self._on_method(method, now)
            case _:
                self.answers.append(method)
                if len(self.answers) == len(self._setup):
                    self._ready.set_result(None)
