"""Defects of the limits of pull requests: where they lie, and whom they are for. What is right: ``pull``."""

from __future__ import annotations

from typing import cast

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers, alter_waiting, method_defect
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import (
    PullRefusedError,
    WaitingQueue,
    WaitingRequest,
)
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import (
    PullRequest,
    exceeded_max_request_expires,
    exceeded_max_request_max_bytes,
)


@method_defect(WaitingQueue.check_expires, "JS-PULL-038")
def pull_max_expires_itself_is_refused(self: WaitingQueue, request: PullRequest) -> None:
    """A pull request whose expires is max_expires is refused."""
    if 0 < self.config.max_expires <= request.expires:
        raise PullRefusedError(exceeded_max_request_expires(self.config.max_expires))


@method_defect(WaitingQueue.check_expires, "JS-PULL-038")
def pull_no_wait_has_no_max_expires(self: WaitingQueue, request: PullRequest) -> None:
    """The expires of a no_wait pull request may be longer than max_expires."""
    if not request.no_wait:
        WaitingQueue.check_expires(self, request)


@method_defect(WaitingQueue.check_max_bytes, "JS-PULL-039")
def pull_max_bytes_itself_is_refused(self: WaitingQueue, request: PullRequest) -> None:
    """A pull request whose max_bytes is the consumer's limit is refused."""
    if 0 < self.config.max_bytes <= request.max_bytes:
        raise PullRefusedError(exceeded_max_request_max_bytes(self.config.max_bytes))


@method_defect(WaitingQueue.check_heartbeat, "JS-PULL-034")
def pull_heartbeat_of_half_is_refused(self: WaitingQueue, request: PullRequest) -> None:
    """A pull request whose idle_heartbeat is half of its expires is refused."""
    if request.idle_heartbeat > 0 and request.idle_heartbeat * 2 >= request.expires:
        raise self.bad_request("heartbeat value too large")


@method_defect(WaitingQueue.read, "JS-PULL-037")
def pull_integer_has_no_max_batch(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
    """A bare integer may be more than max_batch."""
    return PullRequest.parse(body) if body.strip().isdigit() else WaitingQueue.read(self, body, now)


@method_defect(WaitingQueue.check_batch, "JS-PULL-037")
def pull_no_wait_has_no_max_batch(self: WaitingQueue, request: PullRequest) -> None:
    """A no_wait pull request may be for more than max_batch."""
    if not request.no_wait:
        WaitingQueue.check_batch(self, request)


@defect("JS-ACK-016", "JS-ACK-017")
def ack_next_has_no_max_batch(broker: Broker) -> None:
    """What follows +NXT may be for more than max_batch."""

    def next_(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
        vars(self.waiting)["is_next"] = True
        try:
            return Consumer.next(self, reply, body, now)
        finally:
            vars(self.waiting)["is_next"] = False

    def check_batch(self: WaitingQueue, request: PullRequest) -> None:
        if not vars(self).get("is_next"):
            WaitingQueue.check_batch(self, request)

    alter_consumers(broker, next=next_)
    alter_waiting(broker, check_batch=check_batch)


@defect("JS-PULL-048")
def pull_headers_have_no_size(broker: Broker) -> None:
    """A message counts against max_bytes without its headers."""

    def content(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
        vars(self.waiting)["uncounted"] = len(message.header_block)
        return Consumer.content(self, message)

    def fits(self: WaitingQueue, request: WaitingRequest, size: int) -> bool:
        return WaitingQueue.fits(self, request, size - vars(self)["uncounted"])

    alter_consumers(broker, content=content)
    alter_waiting(broker, fits=fits)


@method_defect(WaitingQueue.send_pending, "JS-PULL-026", "JS-PULL-062")
def pull_status_tells_all_bytes(self: WaitingQueue, request: WaitingRequest, status: Status) -> None:
    """Nats-Pending-Bytes is the max_bytes asked for, not what is left of it."""
    asked = msgspec.structs.replace(request, max_bytes=request.pull_request.max_bytes)
    WaitingQueue.send_pending(self, asked, status)


@defect("JS-PULL-015")
def pull_no_wait_counts_what_does_not_fit(broker: Broker) -> None:
    """A no_wait pull request waits while the stream has messages that the filter leaves out."""

    def admit_no_wait(self: WaitingQueue, request: PullRequest, available: int, now: int) -> None:
        consumer = cast("Consumer", self.consumer)
        left = consumer.stream.store.last_seq - consumer.acks.delivered.stream
        WaitingQueue.admit_no_wait(self, request, max(available, left), now)

    def one_shot_ends(self: WaitingQueue, request: WaitingRequest) -> bool:
        return request.delivered > 0

    alter_waiting(broker, admit_no_wait=admit_no_wait, one_shot_ends=one_shot_ends)
