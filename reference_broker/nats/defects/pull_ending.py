"""Defects in how pull requests end, and in their heartbeats."""

from __future__ import annotations

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    alter_streams,
    alter_waiting,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import NEVER, WaitingQueue, WaitingRequest
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import REQUEST_TIMEOUT


@jetstream_defect(
    "pull-timeout-has-no-headers",
    breaks=("JS-PULL-024",),
    summary="408 comes without Nats-Pending-Messages and Nats-Pending-Bytes.",
)
def _(broker: Broker) -> None:
    def time_out(self: WaitingQueue, request: WaitingRequest) -> None:
        self.remove(request)
        self.send(request.reply, REQUEST_TIMEOUT)

    alter_waiting(broker, time_out=time_out)


@jetstream_defect(
    "pull-timeout-tells-the-whole-batch",
    breaks=("JS-PULL-025",),
    summary="Nats-Pending-Messages is the batch asked for, not what is left of it.",
)
def _(broker: Broker) -> None:
    def send_pending(self: WaitingQueue, request: WaitingRequest, status: Status) -> None:
        asked = msgspec.structs.replace(request, batch=request.batch + request.delivered)
        WaitingQueue.send_pending(self, asked, status)

    alter_waiting(broker, send_pending=send_pending)


@jetstream_defect(
    "pull-timeout-tells-no-bytes",
    breaks=("JS-PULL-026",),
    summary="Nats-Pending-Bytes is always 0.",
)
def _(broker: Broker) -> None:
    def send_pending(self: WaitingQueue, request: WaitingRequest, status: Status) -> None:
        WaitingQueue.send_pending(self, msgspec.structs.replace(request, max_bytes=0), status)

    alter_waiting(broker, send_pending=send_pending)


@jetstream_defect(
    "pull-one-timeout-for-an-inbox",
    breaks=("JS-PULL-060",),
    summary="Requests of one inbox that time out together are told once.",
)
def _(broker: Broker) -> None:
    def time_out(self: WaitingQueue, request: WaitingRequest) -> None:
        if any(other is not request and other.reply == request.reply for other in self.requests):
            self.remove(request)
        else:
            WaitingQueue.time_out(self, request)

    alter_waiting(broker, time_out=time_out)


@jetstream_defect(
    "pull-goes-on-after-timeout",
    breaks=("JS-PULL-065",),
    summary="A request that was told 408 still takes the next message.",
)
def _(broker: Broker) -> None:
    def time_out(self: WaitingQueue, request: WaitingRequest) -> None:
        WaitingQueue.time_out(self, request)
        self.enqueue(WaitingRequest(request.reply, 1, 0, NEVER, 0, NEVER, no_wait=False))

    alter_waiting(broker, time_out=time_out)


@jetstream_defect(
    "pull-ends-with-its-heartbeat",
    breaks=("JS-PULL-065",),
    summary="A request ends with its first idle heartbeat.",
)
def _(broker: Broker) -> None:
    def send_heartbeat(self: WaitingQueue, request: WaitingRequest, now: int) -> None:
        WaitingQueue.send_heartbeat(self, request, now)
        self.remove(request)

    alter_waiting(broker, send_heartbeat=send_heartbeat)


@jetstream_defect(
    "pull-consumer-deleted-silently",
    breaks=("JS-PULL-044",),
    summary="Deleting a consumer leaves its waiting requests without a status.",
)
def _(broker: Broker) -> None:
    def delete_consumer(self: Stream, consumer: Consumer, now: int) -> None:
        consumer.waiting.requests.clear()
        Stream.delete_consumer(self, consumer, now)

    alter_streams(broker, delete_consumer=delete_consumer)


@jetstream_defect(
    "pull-stream-deleted-silently",
    breaks=("JS-PULL-045",),
    summary="Deleting a stream leaves the waiting requests of its consumers without a status.",
)
def _(broker: Broker) -> None:
    def close(self: Stream, now: int) -> None:
        for consumer in self.consumers.values():
            consumer.waiting.requests.clear()
        Stream.close(self, now)

    alter_streams(broker, close=close)


@jetstream_defect(
    "pull-heartbeats-start-early",
    breaks=("JS-PULL-049",),
    summary="The first idle heartbeat comes after half of its interval.",
)
def _(broker: Broker) -> None:
    def enqueue(self: WaitingQueue, request: WaitingRequest) -> None:
        if request.heartbeat:
            request.next_heartbeat -= request.heartbeat // 2
        WaitingQueue.enqueue(self, request)

    alter_waiting(broker, enqueue=enqueue)


@jetstream_defect(
    "pull-heartbeat-tells-no-sequences",
    breaks=("JS-PULL-050",),
    summary="Nats-Last-Consumer and Nats-Last-Stream of a heartbeat are always 0.",
)
def _(broker: Broker) -> None:
    def last_delivered(self: Consumer) -> tuple[int, int]:
        return 0, 0

    alter_consumers(broker, last_delivered=last_delivered)


@jetstream_defect(
    "pull-no-wait-batch-ends-with-408",
    breaks=("JS-PULL-069",),
    summary="A no_wait batch that is partly filled ends with 408, as nats-server did up to 2.11.10.",
)
def _(broker: Broker) -> None:
    def end_one_shot(self: WaitingQueue, request: WaitingRequest) -> None:
        self.time_out(request)

    alter_waiting(broker, end_one_shot=end_one_shot)
