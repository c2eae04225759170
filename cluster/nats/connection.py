"""A connection to a nats-server with one subscription."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.cluster.connection import BaseConnection
from plumbline.conformance.targets.urls import NatsUrl
from plumbline.wire.nats import Connect, Decoder, Err, HMsg, Info, Msg, Ping, Pong, Sub
from plumbline.wire.sender import Sender

_OPTIONS = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}

Message = Msg | HMsg
OnMessage = Callable[[Message, int], None]  # the message, and when it was read (monotonic ns)


class NodeConnection(BaseConnection):
    """What comes for ``subject`` goes to ``on_message``."""

    def __init__(self, url: NatsUrl, subject: str, on_message: OnMessage) -> None:
        super().__init__()
        self._options = {**_OPTIONS, **url.credentials()}
        self._on_message = on_message
        self._subject = subject
        self._decoder = Decoder(Sender.SERVER)

    @classmethod
    async def open(cls, url: str, subject: str, on_message: OnMessage) -> NodeConnection:
        """Connected and subscribed. Raises ``OSError`` (``TimeoutError``) if the node does not answer."""
        address = NatsUrl.parse(url)
        return await cls(address, subject, on_message).connect(address.host, address.port)

    def _received(self, data: bytes, now: int) -> None:
        for operation in self._decoder.feed(data):
            match operation:
                case Msg() | HMsg():
                    self._on_message(operation, now)
                case Ping():
                    self.send(Pong.make().raw)
                case Info() if not self._ready.done():
                    sub = Sub.make(self._subject, 1)
                    self.send(Connect.make(self._options).raw + sub.raw + Ping.make().raw)
                case Pong() if not self._ready.done():
                    self._ready.set_result(None)
                case Err():
                    self.refused(operation.line)
                case _:
                    pass
