"""What JetStream grants an account: streams, consumers and bytes.

Source: docs.nats.io, "JetStream Account Limits"; -1 is no limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.consumers.config import DEFAULT_MAX_ACK_PENDING, ConsumerConfig
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


def check_stream(jetstream: JetStream, config: StreamConfig) -> None:
    """Of a new stream. Raises ``JetStreamError``."""
    if 0 < jetstream.config.limits.max_streams <= len(jetstream.streams):
        raise errors.STREAM_LIMIT_REACHED()
    check_bytes(jetstream, config)


def check_bytes(jetstream: JetStream, config: StreamConfig) -> None:
    """``max_bytes`` of a stream, new or changed. Raises ``JetStreamError``."""
    limits = jetstream.config.limits
    is_file = config.storage == "file"
    if limits.max_bytes_required and config.max_bytes <= 0:
        raise errors.ACCOUNT_NEEDS_MAX_BYTES()
    largest = limits.storage_max_stream_bytes if is_file else limits.memory_max_stream_bytes
    if 0 < largest < config.max_bytes:
        raise errors.STREAM_MAX_BYTES_ABOVE_LIMIT()
    granted = limits.max_storage if is_file else limits.max_memory
    others = sum(
        max(stream.config.max_bytes, 0)
        for stream in jetstream.streams.values()
        if stream.config.storage == config.storage and stream.config.name != config.name
    )
    if granted > 0 and config.max_bytes > 0 and others + config.max_bytes > granted:
        raise errors.INSUFFICIENT_STORAGE() if is_file else errors.INSUFFICIENT_MEMORY()


def check_consumers(stream: Stream) -> None:
    """One consumer more on this stream. Raises ``JetStreamError``."""
    if 0 < stream.jetstream.config.limits.max_consumers <= len(stream.consumers):
        raise errors.CONSUMER_LIMIT_REACHED()


def with_ack_pending(jetstream: JetStream, config: ConsumerConfig) -> ConsumerConfig:
    """With ``max_ack_pending`` as the account has it, where it is less than the default. Raises
    ``JetStreamError``."""
    most = jetstream.config.limits.max_ack_pending
    if 0 < most < config.max_ack_pending:
        raise errors.CONSUMER_MAX_ACK_PENDING_ABOVE_LIMIT(limit=most)
    if config.max_ack_pending == 0 and config.ack_policy != "none" and 0 < most < DEFAULT_MAX_ACK_PENDING:
        return structs.replace(config, max_ack_pending=most)
    return config
