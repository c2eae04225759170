"""The keys of traces that set stages are the fields that a server knows."""

from __future__ import annotations

from plumbline.conformance.trace.nats.keys import CONSUMER_CONFIG, STREAM_CONFIG
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig

NAMES = {"name", "durable_name"}  # a trace writes them before its keys
NOT_FOR_USERS = {"pedantic", "template_owner", "direct"}


def test_the_fields_of_a_stream_are_keys() -> None:
    assert set(StreamConfig.__struct_fields__) - NAMES - NOT_FOR_USERS == STREAM_CONFIG


def test_the_fields_of_a_consumer_are_keys() -> None:
    assert set(ConsumerConfig.__struct_fields__) - NAMES - NOT_FOR_USERS == CONSUMER_CONFIG
