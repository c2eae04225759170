"""Defects in pull requests that wait: counting, interest, max_waiting, no_wait."""

from __future__ import annotations

from plumbline.reference_broker.nats.connection import Connection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    alter_waiting,
    jetstream_defect,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import NEVER, WaitingQueue, WaitingRequest
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.wire.durations import MILLISECOND
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import NO_MESSAGES, PullRequest


@jetstream_defect(
    "pull-counts-one-waiting-request",
    breaks=("JS-PULL-003",),
    summary="Num_waiting is 1 however many requests wait.",
)
def _(broker: Broker) -> None:
    def reported_waiting(self: Consumer) -> int:
        return min(len(self.waiting), 1)

    alter_consumers(broker, reported_waiting=reported_waiting)


@jetstream_defect(
    "pull-expires-by-default",
    breaks=("JS-PULL-004",),
    summary="A pull request without expires times out after 200 ms.",
)
def _(broker: Broker) -> None:
    def deadline(self: WaitingQueue, request: PullRequest, now: int) -> int:
        return now + (request.expires or 200 * MILLISECOND)

    alter_waiting(broker, deadline=deadline)


@jetstream_defect(
    "pull-counts-requests-without-interest",
    breaks=("JS-PULL-006",),
    summary="A request whose inbox nobody subscribes to stays in num_waiting.",
)
def _(broker: Broker) -> None:
    def is_wanted(self: WaitingQueue, request: WaitingRequest) -> bool:
        return True

    alter_waiting(broker, is_wanted=is_wanted)


@jetstream_defect(
    "pull-delivers-to-nobody",
    breaks=("JS-PULL-007",),
    summary="A message is used up by a request that was dropped when its inbox was gone.",
)
def _(broker: Broker) -> None:
    def remove(self: WaitingQueue, request: WaitingRequest) -> None:
        WaitingQueue.remove(self, request)
        if request.batch > 0 and not self.is_wanted(request):
            vars(self)["dropped"] = True

    def stored(self: Consumer, message: Message, now: int) -> None:
        Consumer.stored(self, message, now)
        if vars(self.waiting).pop("dropped", None) and (candidate := self.candidate(now)) is not None:
            self.delivered(*candidate, now)

    alter_waiting(broker, remove=remove)
    alter_consumers(broker, stored=stored)


@jetstream_defect(
    "pull-delivers-the-rest-to-nobody",
    breaks=("JS-PULL-023",),
    summary="After UNSUB in the middle of a batch, messages still count as delivered for it.",
)
def _(broker: Broker) -> None:
    def counts(self: Consumer, request: WaitingRequest, receivers: int) -> bool:
        return receivers > 0 or request.delivered > 0

    alter_consumers(broker, counts=counts)


@jetstream_defect(
    "pull-survives-disconnect",
    breaks=("JS-PULL-008",),
    summary="Requests of a client that has disconnected go on waiting and take messages.",
)
def _(broker: Broker) -> None:
    def drop_subscriptions(connection: Connection) -> None:
        inboxes = {
            request.reply
            for stream in jetstream_of(broker).streams.values()
            for consumer in stream.consumers.values()
            for request in consumer.waiting.requests
        }
        for subscription in list(connection.subscriptions.values()):
            if subscription.subject not in inboxes:
                broker.router.remove(subscription)

    replace(broker, "drop_subscriptions", drop_subscriptions)


@jetstream_defect(
    "pull-over-max-waiting-is-silent",
    breaks=("JS-PULL-010",),
    summary="A request beyond max_waiting is dropped without a status.",
)
def _(broker: Broker) -> None:
    def full_status(self: WaitingQueue, request: PullRequest) -> Status | None:
        return None

    alter_waiting(broker, full_status=full_status)


@jetstream_defect(
    "pull-exceeds-max-waiting",
    breaks=("JS-PULL-010", "JS-PULL-011"),
    summary="One request more than max_waiting is accepted.",
)
def _(broker: Broker) -> None:
    def is_full(self: WaitingQueue) -> bool:
        return len(self.requests) > self.config.max_waiting

    alter_waiting(broker, is_full=is_full)


@jetstream_defect(
    "pull-expired-keeps-its-place",
    breaks=("JS-PULL-012",),
    summary="An expired request is told 408 but still counts as waiting.",
)
def _(broker: Broker) -> None:
    def time_out(self: WaitingQueue, request: WaitingRequest) -> None:
        WaitingQueue.time_out(self, request)
        vars(self)["expired"] = vars(self).get("expired", 0) + 1

    def length(self: WaitingQueue) -> int:
        return len(self.requests) + int(vars(self).get("expired", 0))

    def is_full(self: WaitingQueue) -> bool:
        return len(self) >= self.config.max_waiting

    alter_waiting(broker, time_out=time_out, __len__=length, is_full=is_full)


@jetstream_defect(
    "pull-status-counts-twice-for-unsub",
    breaks=("JS-PULL-014",),
    summary="A 404 counts as two messages towards the max of UNSUB.",
)
def _(broker: Broker) -> None:
    def send(self: WaitingQueue, reply: bytes, status: Status) -> None:
        WaitingQueue.send(self, reply, status)
        for subscription, _ in list(broker.router.route(reply).plain):
            subscription.delivered += 1

    alter_waiting(broker, send=send)


@jetstream_defect(
    "pull-no-wait-says-no-message",
    breaks=("JS-PULL-015",),
    summary="The 404 to a no_wait pull says No Message.",
)
def _(broker: Broker) -> None:
    def send(self: WaitingQueue, reply: bytes, status: Status) -> None:
        told = Status(404, "No Message") if status == NO_MESSAGES else status
        WaitingQueue.send(self, reply, told)

    alter_waiting(broker, send=send)


@jetstream_defect(
    "pull-no-wait-waits-after-404",
    breaks=("JS-PULL-016",),
    summary="A no_wait pull that was told 404 stays in the queue.",
)
def _(broker: Broker) -> None:
    def accept(
        self: WaitingQueue, reply: bytes, body: bytes, available: int, now: int
    ) -> WaitingRequest | None:
        accepted = WaitingQueue.accept(self, reply, body, available, now)
        if accepted is None and available == 0 and b"no_wait" in body:
            self.enqueue(WaitingRequest(reply, 1, 0, NEVER, 0, NEVER, no_wait=False))
        return accepted

    alter_waiting(broker, accept=accept)


@jetstream_defect(
    "pull-status-has-a-reply",
    breaks=("JS-PULL-017",),
    summary="The 404 to a no_wait pull has a reply subject.",
)
def _(broker: Broker) -> None:
    def send(self: WaitingQueue, reply: bytes, status: Status) -> None:
        block = b"NATS/1.0 %b\r\n\r\n" % str(status).encode()
        self.host.publish(reply, b"_INBOX.status" if status == NO_MESSAGES else None, block, b"")

    alter_waiting(broker, send=send)


@jetstream_defect(
    "pull-no-wait-always-ends-with-404",
    breaks=("JS-PULL-018",),
    summary="A no_wait pull that got its one message is told 404 as well.",
)
def _(broker: Broker) -> None:
    def filled(self: WaitingQueue, request: WaitingRequest, size: int, now: int) -> None:
        WaitingQueue.filled(self, request, size, now)
        if request.no_wait and request.batch <= 0:
            self.send(request.reply, NO_MESSAGES)

    alter_waiting(broker, filled=filled)


@jetstream_defect(
    "pull-no-wait-part-ends-silently",
    breaks=("JS-PULL-019",),
    summary="A no_wait pull that got part of its batch ends without a status.",
)
def _(broker: Broker) -> None:
    def end_one_shot(self: WaitingQueue, request: WaitingRequest) -> None:
        self.remove(request)

    alter_waiting(broker, end_one_shot=end_one_shot)


@jetstream_defect(
    "pull-inbox-is-used-up-by-404",
    breaks=("JS-PULL-022",),
    summary="An inbox that was told 404 waits when it pulls with expires, and gets no message.",
)
def _(broker: Broker) -> None:
    def send(self: WaitingQueue, reply: bytes, status: Status) -> None:
        WaitingQueue.send(self, reply, status)
        vars(self).setdefault("told", set()).add(reply)

    def pull_one(self: Consumer, now: int) -> bool:
        told = vars(self.waiting).get("told", ())
        return self.waiting.requests[0].reply not in told and Consumer.pull_one(self, now)

    alter_waiting(broker, send=send)
    alter_consumers(broker, pull_one=pull_one)
