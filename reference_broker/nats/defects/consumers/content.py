"""Defects of headers_only and of replay. What is right: ``delivery.content``, ``jetstream.replay``."""

from __future__ import annotations

from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.nats.headers import VERSION


@method_defect(Consumer.content, "JS-CONS-084")
def cons_headers_only_drops_headers(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """headers_only delivers Nats-Msg-Size alone, without the headers of the message."""
    header_block, payload = Consumer.content(self, message)
    if self.config.headers_only:
        header_block = VERSION + b"\r\nNats-Msg-Size: %d\r\n\r\n" % len(message.payload)
    return header_block, payload


@method_defect(Consumer.content, "JS-CONS-084", "JS-CONS-085")
def cons_headers_only_sends_the_payload(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """headers_only adds Nats-Msg-Size and delivers the payload all the same."""
    return Consumer.content(self, message)[0], message.payload


@method_defect(Consumer.content, "JS-CONS-085")
def cons_headers_only_needs_headers(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """headers_only delivers a message without headers as an empty MSG."""
    if self.config.headers_only and not message.header_block:
        return b"", b""
    return Consumer.content(self, message)


@method_defect(Consumer.content, "JS-CONS-084", "JS-CONS-085")
def cons_headers_only_counts_characters(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """Nats-Msg-Size is the number of characters, where the payload is UTF-8."""
    header_block, payload = Consumer.content(self, message)
    if self.config.headers_only:
        size = len(message.payload.decode("utf-8", "replace"))
        head, _, _ = header_block.partition(b"Nats-Msg-Size: ")
        header_block = head + b"Nats-Msg-Size: %d\r\n\r\n" % size
    return header_block, payload


@method_defect(Consumer.too_early, "JS-CONS-087")
def cons_push_replays_at_once(self: Consumer, message: StoredMessage, now: int) -> bool:
    """Push consumers ignore replay_policy original."""
    return self.config.is_pull and Consumer.too_early(self, message, now)
