"""Content views of NATS and AMQP for mitmproxy: the operations that end within one chunk of a stream.

mitmproxy shows what one read gave. Operations do not keep to that, so each flow is decoded as a whole, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from mitmproxy import contentviews, flow, http, tcp

from plumbline.captures.dialects import CaptureDialect, StreamDecoder, known
from plumbline.wire.errors import ProtocolError
from plumbline.wire.sender import Direction

SURE = 2.0  # of render_priority: more than mitmproxy's own views are


class DecodedFlow:
    """A flow's messages as operations, decoded as they come."""

    def __init__(self) -> None:
        self.dialect: CaptureDialect | None = None
        self._lines: list[list[str]] = []
        self._decoders: dict[Direction, StreamDecoder | None] = {}
        self._held: dict[Direction, int] = dict.fromkeys(Direction, 0)

    def lines(self, messages: Sequence[tcp.TCPMessage], data: bytes) -> list[str] | None:
        """What ends in the last of these messages that has this content; None if that is unknown."""
        self._follow(messages)
        if self.dialect is None:
            return None
        for number in range(min(len(self._lines), len(messages)) - 1, -1, -1):
            if messages[number].content == data:
                return self._lines[number]
        return None

    def _follow(self, messages: Sequence[tcp.TCPMessage]) -> None:
        if self.dialect is None:
            self.dialect = _recognised(messages)
        if self.dialect is not None:
            for message in messages[len(self._lines) :]:
                self._lines.append(list(self._decode(self.dialect, message)))

    def _decode(self, dialect: CaptureDialect, message: tcp.TCPMessage) -> Iterator[str]:
        direction = Direction.TO_SERVER if message.from_client else Direction.TO_CLIENT
        if direction not in self._decoders:
            self._decoders[direction] = dialect.decoder(direction)
        decoder = self._decoders[direction]
        if decoder is None:
            yield f"{len(message.content)} bytes after data that is not {dialect.name}"
            return
        before = self._held[direction]
        if before:
            yield f"(the first {before} bytes came before)"
        failure = ""
        try:
            operations = decoder.feed(message.content)
        except ProtocolError as error:
            operations, failure = error.operations, str(error)
        ended = 0
        for operation in operations:
            ended += len(operation.raw)
            yield dialect.text(operation)
        self._held[direction] = before + len(message.content) - ended
        if failure:
            self._decoders[direction] = None
            yield f"not {dialect.name}: {failure}"
        elif self._held[direction]:
            yield f"({self._held[direction]} bytes of an incomplete operation)"


def _recognised(messages: Sequence[tcp.TCPMessage]) -> CaptureDialect | None:
    for dialect in known().values():
        for message in messages[:4]:
            by_server = dialect.sent_by_server(message.content)
            if by_server is not None and by_server != message.from_client:
                return dialect
    return None


_FLOWS: WeakKeyDictionary[flow.Flow, DecodedFlow] = WeakKeyDictionary()


class OperationsView(contentviews.base.View):
    """One protocol."""

    protocol = ""

    def __call__(
        self,
        data: bytes,
        *,
        content_type: str | None = None,
        flow: flow.Flow | None = None,
        http_message: http.Message | None = None,
        **unknown_metadata: Any,
    ) -> Any:
        lines = self._lines(data, flow)
        if lines is None:
            raise ValueError(f"nothing of {self.name}")
        return self.name, ([("text", line)] for line in lines)

    def render_priority(
        self,
        data: bytes,
        *,
        content_type: str | None = None,
        flow: flow.Flow | None = None,
        http_message: http.Message | None = None,
        **unknown_metadata: Any,
    ) -> float:
        return SURE if self._lines(data, flow) is not None else 0

    def _lines(self, data: bytes, found: flow.Flow | None) -> list[str] | None:
        if not isinstance(found, tcp.TCPFlow):
            return None
        decoded = _FLOWS.get(found)
        if decoded is None:
            decoded = _FLOWS[found] = DecodedFlow()
        lines = decoded.lines(found.messages, data)
        is_ours = decoded.dialect is not None and decoded.dialect.name == self.protocol
        return lines if is_ours else None


class NatsView(OperationsView):
    """NATS."""

    name = "NATS"
    protocol = "nats"


class AmqpView(OperationsView):
    """AMQP 0-9-1."""

    name = "AMQP"
    protocol = "amqp"


VIEWS = (NatsView(), AmqpView())


def add() -> None:
    """Makes them known to mitmproxy."""
    for view in VIEWS:
        contentviews.add(view)


def remove() -> None:
    """Takes them away."""
    for view in VIEWS:
        contentviews.remove(view)
