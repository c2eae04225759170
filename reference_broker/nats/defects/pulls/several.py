"""Defects of pull requests that wait side by side. What is right: ``pull.WaitingQueue``."""

from __future__ import annotations

from typing import cast

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_waiting, method_defect
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import NEVER, WaitingQueue, WaitingRequest
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


@defect("JS-PULL-072")
def message_waits_behind_a_lost_inbox(broker: Broker) -> None:
    """A message that meets a pull request without interest waits until something else wakes the consumer."""

    def remove(self: WaitingQueue, request: WaitingRequest) -> None:
        WaitingQueue.remove(self, request)
        if request.batch > 0 and not self.has_interest(request):
            vars(self)["has_lost"] = True

    _give_up_after(broker, remove=remove)


@defect("JS-PULL-073")
def message_waits_behind_one_it_is_too_large_for(broker: Broker) -> None:
    """A message that is too large for one pull request is not offered to the next one."""

    def refuse_size(self: WaitingQueue, request: WaitingRequest) -> None:
        WaitingQueue.refuse_size(self, request)
        vars(self)["has_lost"] = True

    _give_up_after(broker, refuse_size=refuse_size)


def _give_up_after(broker: Broker, **methods: object) -> None:
    """A request that ends with ``has_lost`` takes the turn of the next one with it."""

    def next_receiver(self: WaitingQueue, size: int, now: int) -> WaitingRequest | None:
        lost_before = vars(self).pop("has_lost", False)
        request = WaitingQueue.next_receiver(self, size, now)
        return None if vars(self).pop("has_lost", False) or lost_before else request

    alter_waiting(broker, next_receiver=next_receiver, **methods)  # type: ignore[arg-type]


@method_defect(WaitingQueue.time_out, "JS-PULL-024")
def pull_expires_at_the_head_alone(self: WaitingQueue, request: WaitingRequest) -> None:
    """A pull request that expires behind another one waits for ever."""
    if request is self.requests[0]:
        WaitingQueue.time_out(self, request)
    else:
        request.expires = NEVER


@method_defect(WaitingQueue.send_heartbeat, "JS-PULL-049")
def pull_heartbeats_are_for_the_head(self: WaitingQueue, request: WaitingRequest, now: int) -> None:
    """Only the pull request that has waited longest gets idle heartbeats."""
    _send_or_skip(self, request, now, skip=request is not self.requests[0])


@method_defect(WaitingQueue.send_heartbeat, "JS-PULL-049")
def pull_heartbeats_stop_with_a_pause(self: WaitingQueue, request: WaitingRequest, now: int) -> None:
    """While its consumer is paused, a pull request gets no idle heartbeats."""
    _send_or_skip(self, request, now, skip=cast("Consumer", self.consumer).paused_until > now)


@method_defect(WaitingQueue.send_heartbeat, "JS-PULL-049")
def pull_heartbeats_stop_at_max_ack_pending(self: WaitingQueue, request: WaitingRequest, now: int) -> None:
    """While max_ack_pending holds it back, a pull request gets no idle heartbeats."""
    _send_or_skip(self, request, now, skip=cast("Consumer", self.consumer).is_blocked())


def _send_or_skip(queue: WaitingQueue, request: WaitingRequest, now: int, *, skip: bool) -> None:
    if skip:
        request.next_heartbeat = now + request.heartbeat
    else:
        WaitingQueue.send_heartbeat(queue, request, now)


@method_defect(Stream.close, "JS-PULL-045")
def pull_stream_deleted_tells_one_consumer(self: Stream, now: int) -> None:
    """Deleting a stream ends the pull requests of its first consumer with a status, and no others."""
    for consumer in tuple(self.consumers.values())[1:]:
        consumer.waiting.requests.clear()
    Stream.close(self, now)


@method_defect(WaitingQueue.record_delivered, "JS-PULL-049")
def pull_heartbeats_keep_their_beat(self: WaitingQueue, request: WaitingRequest, size: int, now: int) -> None:
    """Idle heartbeats of a pull request come although there was a message in between."""
    next_heartbeat = request.next_heartbeat
    WaitingQueue.record_delivered(self, request, size, now)
    request.next_heartbeat = next_heartbeat
