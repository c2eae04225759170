"""Defects in how pull requests end, and in their heartbeats."""

from __future__ import annotations

import msgspec

from plumbline.reference_broker.nats.defects.methods import (
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import NEVER, WaitingQueue, WaitingRequest
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import REQUEST_TIMEOUT


@method_defect(WaitingQueue.time_out, "JS-PULL-024")
def pull_timeout_has_no_headers(self: WaitingQueue, request: WaitingRequest) -> None:
    """408 comes without Nats-Pending-Messages and Nats-Pending-Bytes."""
    self.remove(request)
    self.send(request.reply, REQUEST_TIMEOUT)


@method_defect(WaitingQueue.send_pending, "JS-PULL-025")
def pull_timeout_tells_the_whole_batch(self: WaitingQueue, request: WaitingRequest, status: Status) -> None:
    """Nats-Pending-Messages is the batch asked for, not what is left of it."""
    asked = msgspec.structs.replace(request, batch=request.batch + request.delivered)
    WaitingQueue.send_pending(self, asked, status)


@method_defect(WaitingQueue.send_pending, "JS-PULL-026")
def pull_timeout_tells_no_bytes(self: WaitingQueue, request: WaitingRequest, status: Status) -> None:
    """Nats-Pending-Bytes is always 0."""
    WaitingQueue.send_pending(self, msgspec.structs.replace(request, max_bytes=0), status)


@method_defect(WaitingQueue.time_out, "JS-PULL-060")
def pull_one_timeout_for_an_inbox(self: WaitingQueue, request: WaitingRequest) -> None:
    """Requests of one inbox that time out together are answered once."""
    if any(other is not request and other.reply == request.reply for other in self.requests):
        self.remove(request)
    else:
        WaitingQueue.time_out(self, request)


@method_defect(WaitingQueue.time_out, "JS-PULL-065")
def pull_goes_on_after_timeout(self: WaitingQueue, request: WaitingRequest) -> None:
    """A request that was answered with 408 still takes the next message."""
    WaitingQueue.time_out(self, request)
    self.enqueue(WaitingRequest(request.reply, 1, 0, NEVER, 0, NEVER, no_wait=False))


@method_defect(WaitingQueue.send_heartbeat, "JS-PULL-065")
def pull_ends_with_its_heartbeat(self: WaitingQueue, request: WaitingRequest, now: int) -> None:
    """A request ends with its first idle heartbeat."""
    WaitingQueue.send_heartbeat(self, request, now)
    self.remove(request)


@method_defect(Stream.delete_consumer, "JS-PULL-044")
def pull_consumer_deleted_silently(self: Stream, consumer: Consumer, now: int) -> None:
    """Deleting a consumer leaves its waiting requests without a status."""
    consumer.waiting.requests.clear()
    Stream.delete_consumer(self, consumer, now)


@method_defect(Stream.close, "JS-PULL-045")
def pull_stream_deleted_silently(self: Stream, now: int) -> None:
    """Deleting a stream leaves the waiting requests of its consumers without a status."""
    for consumer in self.consumers.values():
        consumer.waiting.requests.clear()
    Stream.close(self, now)


@method_defect(WaitingQueue.enqueue, "JS-PULL-049")
def pull_heartbeats_start_early(self: WaitingQueue, request: WaitingRequest) -> None:
    """The first idle heartbeat comes after half of its interval."""
    if request.heartbeat:
        request.next_heartbeat -= request.heartbeat // 2
    WaitingQueue.enqueue(self, request)


@method_defect(Consumer.last_delivered, "JS-PULL-050")
def pull_heartbeat_tells_no_sequences(self: Consumer) -> tuple[int, int]:
    """Nats-Last-Consumer and Nats-Last-Stream of a heartbeat are always 0."""
    return 0, 0


@method_defect(WaitingQueue.end_one_shot, "JS-PULL-069")
def pull_no_wait_batch_ends_with_408(self: WaitingQueue, request: WaitingRequest) -> None:
    """A no_wait batch that is partly filled ends with 408, as nats-server did up to 2.11.10."""
    self.time_out(request)
