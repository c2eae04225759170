"""Our own connection to a node: raw operations of ``wire``, read as they come.

No vendor's client is between the server and the history: it would send a publish again by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import Connect, Decoder, Err, HMsg, Info, Msg, Ping, Pong, Sub
from plumbline.wire.sender import Sender

GREETED_WITHIN_S = 2.0
UNSENT_BYTES = 1 << 20  # more is not written to a node that does not read
_OPTIONS = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}

Message = Msg | HMsg
OnMessage = Callable[[Message, int], None]  # the message, and when it was read (monotonic ns)


class NodeConnection(asyncio.Protocol):
    """One connection with one subscription. ``lost`` is set at its end; ``heard`` is when bytes came last."""

    def __init__(self, subject: str, on_message: OnMessage) -> None:
        self.lost = asyncio.Event()
        self.heard = time.monotonic_ns()
        self.errors: list[str] = []  # what the server answered with -ERR, or sent malformed
        self._on_message = on_message
        self._subject = subject
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._decoder = Decoder(Sender.SERVER)
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, url: str, subject: str, on_message: OnMessage) -> NodeConnection:
        """Connected and subscribed. Raises ``OSError`` (``TimeoutError``) if the node does not answer."""
        address = urlsplit(url)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(GREETED_WITHIN_S):
            _, connection = await loop.create_connection(
                lambda: cls(subject, on_message), address.hostname or "", address.port or 0
            )
            try:
                await connection._ready
            except BaseException:
                connection.close()
                raise
        return connection

    @property
    def is_open(self) -> bool:
        return not self.lost.is_set()

    @property
    def is_congested(self) -> bool:
        """Whether the node does not read what was sent."""
        return self._transport is None or self._transport.get_write_buffer_size() > UNSENT_BYTES

    def send(self, data: bytes) -> None:
        """Whole operations. Nothing is sent on a lost connection."""
        if self._transport is not None and self.is_open:
            self._transport.write(data)

    def close(self) -> None:
        """Ends it at once. Idempotent."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    # -- asyncio.Protocol --------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard = now = time.monotonic_ns()
        try:
            operations = self._decoder.feed(data)
        except ProtocolError as error:
            self.errors.append(str(error))
            self.close()
            return
        for operation in operations:
            match operation:
                case Msg() | HMsg():
                    self._on_message(operation, now)
                case Ping():
                    self.send(Pong.make().raw)
                case Info() if not self._ready.done():
                    sub = Sub.make(self._subject, 1)
                    self.send(Connect.make(_OPTIONS).raw + sub.raw + Ping.make().raw)
                case Pong() if not self._ready.done():
                    self._ready.set_result(None)
                case Err():
                    self.errors.append(operation.line)
                case _:
                    pass

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        self.lost.set()
        if not self._ready.done():
            self._ready.set_exception(ConnectionResetError("the node closed the connection"))
            with suppress(asyncio.InvalidStateError):
                self._ready.exception()  # read here: it may be awaited no more
