"""Defects of refusals that are only words: the right error comes, and what was asked is done all the same."""

from __future__ import annotations

from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_answer, body_of
from plumbline.reference_broker.nats.defects.methods import jetstream_of, method_defect
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import ROUTES
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig, with_defaults
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

STREAM_FIELDS = ("max_msgs", "max_consumers", "storage", "retention", "deny_delete", "deny_purge")
CONSUMER_FIELDS = ("ack_policy", "deliver_policy", "replay_policy", "max_waiting", "deliver_subject")


def _chosen(body: Any, names: tuple[str, ...]) -> Fields:
    return {name: body[name] for name in names if name in body} if isinstance(body, dict) else {}


@defect(
    *("JS-API-032", "JS-API-033", "JS-API-034", "JS-API-035", "JS-API-043", "JS-API-044", "JS-API-045"),
    *("JS-API-047", "JS-API-048", "JS-API-050", "JS-API-051", "JS-API-053", "JS-API-054", "JS-API-055"),
    *("JS-API-075", "JS-API-105", "JS-API-169", "JS-API-210", "JS-API-223", "JS-API-227", "JS-PUB-089"),
)
def refused_streams_are_there(broker: Broker) -> None:
    """A stream whose creation is refused is created, with a configuration that is right."""
    jetstream = jetstream_of(broker)

    def change(fields: Fields, request: Request) -> None:
        name = request.names[0]
        if "error" in fields and name not in jetstream.streams:
            body = msgspec.json.encode({"name": name, "subjects": [f"{name}-refused"], "storage": "memory"})
            jetstream.api.answer(ROUTES["STREAM.CREATE"], Request([name], body, request.now), b"")

    alter_answer(broker, "stream_create", change)


def _changes_streams(broker: Broker, kind: str) -> None:
    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if "error" in fields and stream is not None:
            body = {"deny_delete": False, "deny_purge": False, **(body_of(request) or {})}
            stream.config = msgspec.structs.replace(stream.config, **_chosen(body, STREAM_FIELDS))

    alter_answer(broker, kind, change)


@defect("JS-API-059", "JS-API-060", "JS-API-103")
def refused_stream_updates_are_done(broker: Broker) -> None:
    """An update of a stream that is refused changes its configuration."""
    _changes_streams(broker, "stream_update")


def _empties_streams(broker: Broker, kind: str) -> None:
    """A request of this kind that is refused removes all messages of its stream."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if "error" in fields and stream is not None:
            stream.purge(request.now)

    alter_answer(broker, kind, change)


@defect("JS-API-212")
def refused_restores_remove_the_messages(broker: Broker) -> None:
    """STREAM.RESTORE over a stream is refused, and its messages are removed."""
    _empties_streams(broker, "stream_restore")


@defect("JS-API-031")
def refused_creations_update_streams(broker: Broker) -> None:
    """Creating a stream again with another configuration is refused, and changes it."""
    _changes_streams(broker, "stream_create")


@defect(
    *("JS-API-133", "JS-API-134", "JS-API-146", "JS-API-147"),
    *("JS-API-149", "JS-API-159", "JS-API-161", "JS-API-162", "JS-API-163", "JS-API-209"),
    *("JS-CONS-123", "JS-CONS-124", "JS-CONS-125", "JS-CONS-126", "JS-CONS-127"),
)
def refused_consumers_are_there(broker: Broker) -> None:
    """A consumer whose creation is refused is created, with a configuration that is right."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if "error" not in fields or stream is None or len(request.names) < 2:
            return
        name = request.names[1]
        if name not in stream.consumers:
            config = ConsumerConfig(durable_name=name, ack_policy="explicit")
            stream.add_consumer(name, with_defaults(config, stream.jetstream.rules), request.now)

    alter_answer(broker, "consumer_create", change)


@defect(
    *("JS-API-127", "JS-API-128", "JS-API-129", "JS-API-130", "JS-API-131", "JS-API-148", "JS-CONS-078"),
)
def refused_consumer_updates_are_done(broker: Broker) -> None:
    """An update of a consumer that is refused changes its configuration."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        consumer = stream.consumers.get(request.names[-1]) if stream is not None else None
        if "error" not in fields or consumer is None:
            return
        asked = (body_of(request) or {}).get("config")
        consumer.config = msgspec.structs.replace(consumer.config, **_chosen(asked, CONSUMER_FIELDS))
        if consumer.config.deliver_subject:
            consumer.target = consumer.config.deliver_subject.encode()

    alter_answer(broker, "consumer_create", change)


@method_defect(Stream.refusal, "JS-PUB-012", "JS-PUB-047")
def refused_messages_are_stored(self: Stream, error: JetStreamError) -> bytes:
    """A message that is refused is stored all the same."""
    self.store.append(self.config.patterns[0], b"", b"", self.jetstream.now)
    return Stream.refusal(self, error)


@defect("JS-API-108", "JS-API-109", "JS-API-097", "JS-API-098")
def refused_removals_are_done(broker: Broker) -> None:
    """A purge that is refused empties the stream, a delete that is refused takes the first message."""
    jetstream = jetstream_of(broker)

    def delete(fields: Fields, request: Request) -> None:
        stream = jetstream.streams.get(request.names[0])
        if "error" in fields and stream is not None:
            stream.remove(stream.store.first_seq, request.now)

    _empties_streams(broker, "stream_purge")
    alter_answer(broker, "stream_msg_delete", delete)
