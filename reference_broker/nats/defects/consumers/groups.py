"""Defects of priority groups where they meet headers, batches and heartbeats. What is right: ``priority``."""

from __future__ import annotations

from typing import cast

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.consumers.priority import alter_queues
from plumbline.reference_broker.nats.jetstream.consumers.priority import OverflowQueue, PinnedQueue
from plumbline.reference_broker.nats.jetstream.consumers.pull import WaitingQueue, WaitingRequest


@defect("JS-CONS-138")
def pinned_messages_lose_their_headers(broker: Broker) -> None:
    """A message to a pinned client bears Nats-Pin-Id in the place of its own headers."""

    def marked(self: WaitingQueue, header_block: bytes) -> bytes:
        return PinnedQueue.marked(cast("PinnedQueue", self), b"")

    alter_queues(broker, "pinned_client", marked=marked)


@defect("JS-CONS-138")
def pin_id_is_on_one_message(broker: Broker) -> None:
    """Only the first message to a pinned client bears Nats-Pin-Id."""

    def marked(self: WaitingQueue, header_block: bytes) -> bytes:
        pin = cast("PinnedQueue", self).pin
        if vars(self).get("sent") == pin:
            return header_block
        vars(self)["sent"] = pin
        return PinnedQueue.marked(cast("PinnedQueue", self), header_block)

    alter_queues(broker, "pinned_client", marked=marked)


@defect("JS-CONS-139")
def overflow_stays_open(broker: Broker) -> None:
    """A pull request that the policy overflow has served once is served until its batch is filled."""

    def is_its_turn(self: WaitingQueue, request: WaitingRequest) -> bool:
        return request.delivered > 0 or OverflowQueue.is_its_turn(cast("OverflowQueue", self), request)

    alter_queues(broker, "overflow", is_its_turn=is_its_turn)


@defect("JS-CONS-140")
def overflow_holds_heartbeats_back(broker: Broker) -> None:
    """A pull request that the policy overflow holds back gets no idle heartbeats."""

    def send_heartbeat(self: WaitingQueue, request: WaitingRequest, now: int) -> None:
        if request.pull_request.min_pending > 0:
            request.next_heartbeat = now + request.heartbeat
        else:
            WaitingQueue.send_heartbeat(self, request, now)

    alter_queues(broker, "overflow", send_heartbeat=send_heartbeat)


@defect("JS-CONS-141")
def prioritized_requests_take_turns(broker: Broker) -> None:
    """With the policy prioritized a pull request goes to the end of the queue after each message."""
    alter_queues(broker, "prioritized", rotate=WaitingQueue.rotate)


@defect("JS-CONS-149")
def waiting_pin_of_before_ends_silently(broker: Broker) -> None:
    """A pull request that waits with the id of before ends without a status."""

    def is_its_turn(self: WaitingQueue, request: WaitingRequest) -> bool:
        queue = cast("PinnedQueue", self)
        if (pin := request.pin or request.pull_request.id) and pin != queue.pin:
            self.remove(request)
            return False
        return PinnedQueue.is_its_turn(queue, request)

    alter_queues(broker, "pinned_client", is_its_turn=is_its_turn)


@defect("JS-CONS-149")
def waiting_pin_of_before_goes_on_waiting(broker: Broker) -> None:
    """A pull request that waits with the id of before is passed over, and waits on."""

    def is_its_turn(self: WaitingQueue, request: WaitingRequest) -> bool:
        queue = cast("PinnedQueue", self)
        pin = request.pin or request.pull_request.id
        return (not pin or pin == queue.pin) and PinnedQueue.is_its_turn(queue, request)

    alter_queues(broker, "pinned_client", is_its_turn=is_its_turn)
