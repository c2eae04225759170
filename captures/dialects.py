"""What reading a capture must know of a protocol, behind one interface; ``nats_dialect`` is one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from plumbline.wire.sender import Direction


class StreamDecoder(Protocol):
    """One direction of one connection: see ``wire.nats.Decoder``."""

    @property
    def held(self) -> int:
        """Bytes of unfinished operations."""

    def feed(self, data: bytes) -> Sequence[Any]:
        """The operations that ``data`` completes. Raises ``wire.errors.ProtocolError``."""


class CaptureDialect(Protocol):
    """One protocol."""

    name: str
    ports: frozenset[int]  # that servers usually listen on

    def sent_by_server(self, data: bytes) -> bool | None:
        """Who sent bytes that begin like these; None if neither, or if that is not clear."""

    def decoder(self, direction: Direction) -> StreamDecoder:
        """A new decoder for that direction, from the connection's first byte."""

    def decoder_from(self, direction: Direction) -> StreamDecoder:
        """A new decoder for that direction, from the beginning of some operation in its middle."""

    def starts(self, data: bytes, direction: Direction) -> Sequence[int]:
        """Where in ``data`` an operation may begin, for a stream whose own beginning is not there."""

    def fields(self, operation: Any) -> dict[str, Any]:
        """An operation as fields: ``op``, and what else it has under the specification's names."""

    def text(self, operation: Any) -> str:
        """An operation on one line."""

    def redacted_text(self, operation: Any) -> str:
        """The same without the secrets that a capture does not have."""


def known() -> dict[str, CaptureDialect]:
    """The protocols, by name."""
    from plumbline.captures.amqp.dialect import AmqpCaptureDialect
    from plumbline.captures.nats.dialect import NatsCaptureDialect

    makers: tuple[Callable[[], CaptureDialect], ...] = (NatsCaptureDialect, AmqpCaptureDialect)
    return {dialect.name: dialect for dialect in (make() for make in makers)}
