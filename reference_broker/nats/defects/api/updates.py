"""Defects in updates that are answered rightly: what was asked for is shown, and not done."""

from __future__ import annotations

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_body, alter_success, body_of
from plumbline.reference_broker.nats.defects.methods import jetstream_of, method_defect
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

KIND = "stream_update"


@defect("JS-API-058")
def stream_updates_are_only_shown(broker: Broker) -> None:
    """An update of a stream is answered with what was asked, and changes nothing."""

    def keep(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if stream is not None:
            fields |= msgspec.to_builtins(stream.config)

    def show(fields: Fields, request: Request) -> None:
        fields["config"] |= body_of(request) or {}

    alter_body(broker, KIND, keep)
    alter_success(broker, KIND, show)


@method_defect(Stream.reconfigure, "JS-API-058")
def stream_update_starts_no_limit(self: Stream, config: StreamConfig, now: int) -> None:
    """A limit that an update sets holds for what is stored, and not for what is published later."""
    self.config = config
    self.duplicates.window = config.duplicate_window
    self.enforce_limits(None, now)
    self.on_age_timer(now)
    self.save()


@method_defect(Stream.reconfigure, "JS-API-058")
def stream_update_spares_what_is_stored(self: Stream, config: StreamConfig, now: int) -> None:
    """A limit that an update sets is for what is published later alone."""
    self.config = config
    self.duplicates.window = config.duplicate_window
    self.derive_settings()
    self.save()


@method_defect(Stream.reconfigure, "JS-API-058")
def stream_update_keeps_the_window(self: Stream, config: StreamConfig, now: int) -> None:
    """Ids of messages are forgotten after the duplicate_window with which the stream was created."""
    window = self.duplicates.window
    Stream.reconfigure(self, config, now)
    self.duplicates.window = window


@method_defect(Consumer.reconfigure, "JS-API-126")
def consumer_update_keeps_the_time_of_redelivery(self: Consumer, config: ConsumerConfig, now: int) -> None:
    """A new ack_wait is shown, and messages come again after the one before."""
    ack_wait = self.config.ack_wait
    Consumer.reconfigure(self, config, now)
    replace(self, "redelivery_delay", lambda seq: ack_wait)


@method_defect(Consumer.reconfigure, "JS-API-132")
def consumer_update_keeps_its_messages(self: Consumer, config: ConsumerConfig, now: int) -> None:
    """A new filter_subject is shown, and the consumer delivers what it did before."""
    subject_filter = self.subject_filter
    Consumer.reconfigure(self, config, now)
    self.subject_filter = subject_filter
    self.recount()
