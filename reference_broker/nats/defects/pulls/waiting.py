"""Defects in pull requests that wait: counting, interest, max_waiting, no_wait."""

from __future__ import annotations

from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import (
    alter_consumers,
    alter_waiting,
    jetstream_of,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import NEVER, WaitingQueue, WaitingRequest
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import NO_MESSAGES, PullRequest
from plumbline.wire.units import MILLISECOND


@method_defect(Consumer.reported_waiting, "JS-PULL-003")
def pull_counts_one_waiting_request(self: Consumer) -> int:
    """Num_waiting is 1 however many requests wait."""
    return min(len(self.waiting), 1)


@method_defect(WaitingQueue.deadline, "JS-PULL-004")
def pull_expires_by_default(self: WaitingQueue, request: PullRequest, now: int) -> int:
    """A pull request without expires times out after 200 ms."""
    return now + (request.expires or 200 * MILLISECOND)


@method_defect(WaitingQueue.has_interest, "JS-PULL-006")
def pull_counts_requests_without_interest(self: WaitingQueue, request: WaitingRequest) -> bool:
    """A request whose inbox has no subscriber stays in num_waiting."""
    return True


@defect("JS-PULL-007")
def pull_delivers_to_nobody(broker: Broker) -> None:
    """A message is used up by a request that was dropped when its inbox was gone."""

    def remove(self: WaitingQueue, request: WaitingRequest) -> None:
        WaitingQueue.remove(self, request)
        if request.batch > 0 and not self.has_interest(request):
            vars(self)["dropped"] = True

    def stored(self: Consumer, message: StoredMessage, now: int) -> None:
        Consumer.on_stored(self, message, now)
        if vars(self.waiting).pop("dropped", None) and (candidate := self.next_message(now)) is not None:
            self.record_delivered(*candidate, now)

    alter_waiting(broker, remove=remove)
    alter_consumers(broker, on_stored=stored)


@method_defect(Consumer.was_delivered, "JS-PULL-023")
def pull_delivers_the_rest_to_nobody(self: Consumer, request: WaitingRequest, receivers: int) -> bool:
    """After UNSUB in the middle of a batch, messages still count as delivered for it."""
    return receivers > 0 or request.delivered > 0


@method_defect(Broker.drop_subscriptions, "JS-PULL-008")
def pull_survives_disconnect(broker: Broker, connection: NatsClientConnection) -> None:
    """Requests of a client that has disconnected go on waiting and take messages."""
    inboxes = {
        request.reply
        for stream in jetstream_of(broker).streams.values()
        for consumer in stream.consumers.values()
        for request in consumer.waiting.requests
    }
    for subscription in list(connection.subscriptions.values()):
        if subscription.subject not in inboxes:
            broker.router.remove(subscription)


@method_defect(WaitingQueue.full_status, "JS-PULL-010")
def pull_over_max_waiting_is_silent(self: WaitingQueue, request: PullRequest) -> Status | None:
    """A request beyond max_waiting is dropped without a status."""
    return None


@method_defect(WaitingQueue.is_full, "JS-PULL-010", "JS-PULL-011")
def pull_exceeds_max_waiting(self: WaitingQueue) -> bool:
    """One request more than max_waiting is accepted."""
    return len(self.requests) > self.config.max_waiting


@defect("JS-PULL-012")
def pull_expired_keeps_its_place(broker: Broker) -> None:
    """An expired request is answered with 408 but still counts as waiting."""

    def time_out(self: WaitingQueue, request: WaitingRequest) -> None:
        WaitingQueue.time_out(self, request)
        vars(self)["expired"] = vars(self).get("expired", 0) + 1

    def length(self: WaitingQueue) -> int:
        return len(self.requests) + int(vars(self).get("expired", 0))

    def is_full(self: WaitingQueue) -> bool:
        return len(self) >= self.config.max_waiting

    alter_waiting(broker, time_out=time_out, __len__=length, is_full=is_full)


@defect("JS-PULL-014")
def pull_status_counts_twice_for_unsub(broker: Broker) -> None:
    """A 404 counts as two messages towards the max of UNSUB."""

    def send(self: WaitingQueue, reply: bytes, status: Status) -> None:
        WaitingQueue.send(self, reply, status)
        for subscription, _ in list(broker.router.route(reply).plain):
            subscription.delivered += 1

    alter_waiting(broker, send=send)


@method_defect(WaitingQueue.send, "JS-PULL-015")
def pull_no_wait_says_no_message(self: WaitingQueue, reply: bytes, status: Status) -> None:
    """The 404 to a no_wait pull says No Message."""
    other = Status(404, "No Message") if status == NO_MESSAGES else status
    WaitingQueue.send(self, reply, other)


@method_defect(WaitingQueue.accept, "JS-PULL-016")
def pull_no_wait_waits_after_404(
    self: WaitingQueue, reply: bytes, body: bytes, available: int, now: int
) -> WaitingRequest | None:
    """A no_wait pull that was answered with 404 stays in the queue."""
    accepted = WaitingQueue.accept(self, reply, body, available, now)
    if accepted is None and available == 0 and b"no_wait" in body:
        self.enqueue(WaitingRequest(reply, 1, 0, NEVER, 0, NEVER, no_wait=False))
    return accepted


@method_defect(WaitingQueue.send, "JS-PULL-017")
def pull_status_has_a_reply(self: WaitingQueue, reply: bytes, status: Status) -> None:
    """The 404 to a no_wait pull has a reply subject."""
    block = b"NATS/1.0 %b\r\n\r\n" % str(status).encode()
    self.host.publish(reply, b"_INBOX.status" if status == NO_MESSAGES else None, block, b"")


@method_defect(WaitingQueue.record_delivered, "JS-PULL-018")
def pull_no_wait_always_ends_with_404(
    self: WaitingQueue, request: WaitingRequest, size: int, now: int
) -> None:
    """A no_wait pull that got its one message is answered with 404 as well."""
    WaitingQueue.record_delivered(self, request, size, now)
    if request.no_wait and request.batch <= 0:
        self.send(request.reply, NO_MESSAGES)


@method_defect(WaitingQueue.end_one_shot, "JS-PULL-019")
def pull_no_wait_part_ends_silently(self: WaitingQueue, request: WaitingRequest) -> None:
    """A no_wait pull that got part of its batch ends without a status."""
    self.remove(request)


@defect("JS-PULL-022")
def pull_inbox_is_used_up_by_404(broker: Broker) -> None:
    """An inbox that was answered with 404 waits when it pulls with expires, and gets no message."""

    def send(self: WaitingQueue, reply: bytes, status: Status) -> None:
        WaitingQueue.send(self, reply, status)
        vars(self).setdefault("answered", set()).add(reply)

    def pull_one(self: Consumer, now: int) -> bool:
        answered = vars(self.waiting).get("answered", ())
        return self.waiting.requests[0].reply not in answered and Consumer.pull_one(self, now)

    alter_waiting(broker, send=send)
    alter_consumers(broker, pull_one=pull_one)
