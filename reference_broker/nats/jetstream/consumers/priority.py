"""Priority groups: whose turn it is when clients of one consumer are not equal.

One queue for each policy: ``overflow`` serves a request only under load, ``pinned_client`` serves one
client until it is gone, ``prioritized`` serves the lowest number first. Source: ADR-42, "Pull Consumer
Priority Groups".
"""

from __future__ import annotations

from plumbline.reference_broker.nats.host import Host
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.pull import (
    PullConsumer,
    PullRefusedError,
    WaitingQueue,
    WaitingRequest,
)
from plumbline.reference_broker.nats.jetstream.rules import Rules
from plumbline.wire.nats.headers import append_headers
from plumbline.wire.nats.jetstream import PIN_ID, PIN_ID_MISMATCH, WRONG_PIN_ID, PullRequest


class PriorityQueue(WaitingQueue):
    """What all policies share: a request names its group."""

    def check_group(self, request: PullRequest) -> None:
        super().check_group(request)
        if not request.group:
            raise self.bad_request("Priority Group missing")
        if request.group not in self.config.priority_groups:
            raise self.bad_request("Invalid Priority Group")


class OverflowQueue(PriorityQueue):
    """A request with conditions is passed over until one of them holds."""

    def is_its_turn(self, request: WaitingRequest) -> bool:
        conditions = request.pull_request
        if conditions.min_pending <= 0 and conditions.min_ack_pending <= 0:
            return True
        return (0 < conditions.min_pending <= self.consumer.num_pending) or (
            0 < conditions.min_ack_pending <= self.consumer.reported_ack_pending()
        )


class PrioritizedQueue(PriorityQueue):
    """The queue is kept in the order of priorities; requests of one priority are served in turn."""

    def enqueue(self, request: WaitingRequest) -> None:
        super().enqueue(request)
        self._sink(self.requests.pop())

    def rotate(self) -> None:
        self._sink(self.requests.popleft())

    def _sink(self, request: WaitingRequest) -> None:
        """Put a request behind all of its priority or a better one."""
        place = sum(other.pull_request.priority <= request.pull_request.priority for other in self.requests)
        self.requests.insert(place, request)


class PinnedQueue(PriorityQueue):
    """The client that is served first is pinned: only requests with its id are served from then on."""

    def __init__(
        self, host: Host, config: ConsumerConfig, rules: Rules, consumer: PullConsumer, now: int
    ) -> None:
        super().__init__(host, config, rules, consumer, now)
        self.pin = ""
        self.pinned_at = now

    def check_group(self, request: PullRequest) -> None:
        super().check_group(request)
        if not self.pin or not request.id:
            return
        if request.id != self.pin:
            raise PullRefusedError(PIN_ID_MISMATCH)
        self.consumer.pinned()

    def is_its_turn(self, request: WaitingRequest) -> bool:
        pin = request.pin or request.pull_request.id
        if pin and pin != self.pin:
            self.end(request, WRONG_PIN_ID)
            return False
        if not self.pin:
            self.pin = request.pin = self.consumer.new_pin()
            self.pinned_at = self.consumer.pinned()
        return bool(pin) or request.pin == self.pin

    def marked(self, header_block: bytes) -> bytes:
        return append_headers(header_block, [(PIN_ID, self.pin)])

    def unpin(self) -> None:
        self.pin = ""


QUEUES: dict[str, type[WaitingQueue]] = {
    "overflow": OverflowQueue,
    "prioritized": PrioritizedQueue,
    "pinned_client": PinnedQueue,
}
