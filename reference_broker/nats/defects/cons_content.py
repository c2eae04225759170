"""Defects of headers_only and of replay. What is right: ``delivery.content``, ``jetstream.replay``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import alter_consumers, jetstream_defect
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.wire.nats.headers import VERSION


@jetstream_defect(
    "cons-headers-only-drops-headers",
    breaks=("JS-CONS-084",),
    summary="headers_only delivers Nats-Msg-Size alone, without the headers of the message.",
)
def _(broker: Broker) -> None:
    def content(self: Consumer, message: Message) -> tuple[bytes, bytes]:
        header_block, payload = Consumer.content(self, message)
        if self.config.headers_only:
            header_block = VERSION + b"\r\nNats-Msg-Size: %d\r\n\r\n" % len(message.payload)
        return header_block, payload

    alter_consumers(broker, content=content)


@jetstream_defect(
    "cons-headers-only-sends-the-payload",
    breaks=("JS-CONS-084", "JS-CONS-085"),
    summary="headers_only adds Nats-Msg-Size and delivers the payload all the same.",
)
def _(broker: Broker) -> None:
    def content(self: Consumer, message: Message) -> tuple[bytes, bytes]:
        return Consumer.content(self, message)[0], message.payload

    alter_consumers(broker, content=content)


@jetstream_defect(
    "cons-headers-only-needs-headers",
    breaks=("JS-CONS-085",),
    summary="headers_only delivers a message without headers as an empty MSG.",
)
def _(broker: Broker) -> None:
    def content(self: Consumer, message: Message) -> tuple[bytes, bytes]:
        if self.config.headers_only and not message.header_block:
            return b"", b""
        return Consumer.content(self, message)

    alter_consumers(broker, content=content)


@jetstream_defect(
    "cons-push-replays-at-once",
    breaks=("JS-CONS-087",),
    summary="Push consumers ignore replay_policy original.",
)
def _(broker: Broker) -> None:
    def too_early(self: Consumer, message: Message, now: int) -> bool:
        return self.config.is_pull and Consumer.too_early(self, message, now)

    alter_consumers(broker, too_early=too_early)
