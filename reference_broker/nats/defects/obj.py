"""Defects that only the streams of object store buckets have. What is right: the rules of any stream."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_success
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    alter_streams,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


def _is_bucket(stream: Stream) -> bool:
    return stream.config.name.startswith("OBJ_")


@jetstream_defect(
    "obj-bucket-keeps-one-of-each-subject",
    breaks=("JS-OBJ-001",),
    summary="A bucket is created with max_msgs_per_subject 1.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if request.names[0].startswith("OBJ_"):
            fields["config"]["max_msgs_per_subject"] = 1

    alter_success(broker, "stream_create", change)


@jetstream_defect(
    "obj-metadata-in-lower-case",
    breaks=("JS-OBJ-002",),
    summary="Metadata is stored in lower case, the digest too.",
)
def _(broker: Broker) -> None:
    def accept(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> tuple[Message | None, bytes]:
        if _is_bucket(self) and b".M." in subject:
            payload = payload.lower()
        return Stream.accept(self, subject, header_block, payload, now)

    alter_streams(broker, accept=accept)


def _roll_up(broker: Broker, instead: str) -> None:
    """In buckets, every Nats-Rollup is taken for ``instead``."""

    def roll_up(self: Stream, subject: bytes, rollup: str, now: int) -> None:
        Stream.roll_up(self, subject, instead if rollup and _is_bucket(self) else rollup, now)

    alter_streams(broker, roll_up=roll_up)


@jetstream_defect(
    "obj-old-metadata-stays", breaks=("JS-OBJ-003",), summary="Nats-Rollup does nothing in a bucket."
)
def _(broker: Broker) -> None:
    _roll_up(broker, "")


@jetstream_defect(
    "obj-metadata-removes-chunks",
    breaks=("JS-OBJ-003",),
    summary="Metadata with Nats-Rollup: sub removes everything before it.",
)
def _(broker: Broker) -> None:
    _roll_up(broker, "all")


@jetstream_defect(
    "obj-last-chunk-is-not-told",
    breaks=("JS-OBJ-004",),
    summary="The ack subject of a chunk counts the chunk itself among those that follow.",
)
def _(broker: Broker) -> None:
    def pending_after(self: Consumer, deliveries: int) -> int:
        pending = Consumer.pending_after(self, deliveries)
        return pending + 1 if _is_bucket(self.stream) else pending

    alter_consumers(broker, pending_after=pending_after)


@jetstream_defect(
    "obj-purge-leaves-a-chunk",
    breaks=("JS-OBJ-005",),
    summary="A purge of the chunks of an object leaves the last one.",
)
def _(broker: Broker) -> None:
    def purge(self: Stream, now: int, subject: bytes | None = None, *, below: int = 0, keep: int = 0) -> int:
        if _is_bucket(self) and subject and b".C." in subject:
            keep = 1
        return Stream.purge(self, now, subject, below=below, keep=keep)

    alter_streams(broker, purge=purge)


@jetstream_defect(
    "obj-info-lacks-headers", breaks=("JS-OBJ-006",), summary="STREAM.MSG.GET from a bucket gives no headers."
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if request.names[0].startswith("OBJ_"):
            fields["message"].pop("hdrs", None)

    alter_success(broker, "stream_msg_get", change)
