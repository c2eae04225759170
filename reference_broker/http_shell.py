"""The asyncio shell of a port for HTTP: one request, one answer, and the connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from plumbline.bounds import MONITORING_CONNECTION_S
from plumbline.reference_broker.http import HTTP_CONTINUE, HttpRequest


class HttpClient(asyncio.Protocol):
    """One accepted connection. ``answer`` gets the request and the client's address, and gives the bytes of
    the answer."""

    def __init__(self, request: HttpRequest, answer: Callable[[HttpRequest, str], bytes]) -> None:
        self._request = request
        self._answer = answer
        self._has_continued = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._overdue = asyncio.get_running_loop().call_later(MONITORING_CONNECTION_S, transport.close)

    def connection_lost(self, exception: Exception | None) -> None:
        self._overdue.cancel()

    def data_received(self, data: bytes) -> None:
        request = self._request
        if self._transport.is_closing():
            return
        if not request.feed(data):
            if request.wants_continue and not self._has_continued:
                self._has_continued = True
                self._transport.write(HTTP_CONTINUE)
            return
        self._transport.write(self._answer(request, self._transport.get_extra_info("peername")[0]))
        self._transport.close()
