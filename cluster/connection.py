"""Our own connection to a node: bytes out, operations in as they come. ``nats`` and ``amqp`` have theirs.

No vendor's client is between the server and the history: it would send a publish again by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, ClassVar, Self, TypeVar

from plumbline.bounds import CLUSTER_REMARKS, CLUSTER_UNSENT_BYTES
from plumbline.wire.errors import ProtocolError

UNSENT_BYTES = 1 << 20  # more is not written to a node that does not read
PREPARED_WITHIN_S = 12.0

Answer = TypeVar("Answer")


async def until_answered(request: Callable[[], Awaitable[Answer]]) -> Answer:
    """The answer to a request that may be sent again, before a run begins: nodes that elect a leader may
    answer the first one never, and busy ones late. Raises ``TimeoutError`` after 12 s or more."""
    deadline = time.monotonic() + PREPARED_WITHIN_S
    while True:
        try:
            return await request()
        except TimeoutError:
            if time.monotonic() > deadline:
                raise


class BaseConnection(asyncio.Protocol):
    """One connection. ``lost`` is set at its end; ``heard`` is when bytes came last (monotonic ns)."""

    greeted_within_s: ClassVar[float] = 2.0

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.heard = time.monotonic_ns()
        self.errors: list[str] = []  # what the server refused, or sent malformed
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    async def connect(self, host: str, port: int) -> Self:
        """Returns once the node has greeted it and taken its first requests. Raises ``OSError``
        (``TimeoutError``) if the node does not answer."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.greeted_within_s):
            await loop.create_connection(lambda: self, host, port)
            try:
                await self._ready
            except BaseException:
                self.close()
                raise
        return self

    # -- what each protocol adds -------------------------------------------------------------

    def _received(self, data: bytes, now: int) -> None:
        """Bytes that came at ``now``. Sets the result of ``_ready`` once. May raise ``ProtocolError``."""
        raise NotImplementedError

    # -- for clients -------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return not self.lost.is_set()

    @property
    def is_congested(self) -> bool:
        """Whether the node does not read what was sent."""
        return self._transport is None or self._transport.get_write_buffer_size() > UNSENT_BYTES

    def send(self, data: bytes) -> None:
        """Whole operations. Nothing is sent on a lost connection. A node that does not read loses it."""
        if self._transport is None or not self.is_open:
            return
        if self._transport.get_write_buffer_size() > CLUSTER_UNSENT_BYTES:
            self.close()
        else:
            self._transport.write(data)

    def refused(self, why: str) -> None:
        """What the server refused or sent malformed."""
        if len(self.errors) < CLUSTER_REMARKS:
            self.errors.append(why)

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
            self._received(data, now)
        except ProtocolError as error:
            self.refused(str(error))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        self.lost.set()
        if not self._ready.done():
            why = self.errors[0] if self.errors else "the node closed the connection"
            self._ready.set_exception(ConnectionResetError(why))
            with suppress(asyncio.InvalidStateError):
                self._ready.exception()  # read here: it may be awaited no more
