"""Defects in what a pull request is sent: who answers, which messages, how many."""

from __future__ import annotations

import re

from plumbline.reference_broker.nats.connection import Connection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    alter_service,
    alter_waiting,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import NEVER, WaitingQueue, WaitingRequest
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import CONSUMER_IS_PUSH_BASED, NO_MESSAGES, PullRequest


@defect(
    "pull-without-jetstream-is-silent",
    breaks=("JS-PULL-001",),
    summary="A server without JetStream leaves pull requests unanswered instead of 503.",
)
def _(broker: Broker) -> None:
    nobody_responds = broker.nobody_responds

    def silent(connection: Connection, subject: bytes, reply: bytes) -> None:
        if not subject.startswith(b"$JS.API."):
            nobody_responds(connection, subject, reply)

    replace(broker, "nobody_responds", silent)


@jetstream_defect(
    "pull-push-consumer-is-silent",
    breaks=("JS-PULL-040",),
    summary="A pull request to a push consumer gets no answer.",
)
def _(broker: Broker) -> None:
    def refuse_pull(self: JetStream, consumer: Consumer, reply: bytes, status: Status) -> None:
        assert status is CONSUMER_IS_PUSH_BASED

    alter_service(broker, refuse_pull=refuse_pull)


@jetstream_defect(
    "pull-without-reply-consumes",
    breaks=("JS-PULL-043",),
    summary="A pull request without reply subject uses up a message.",
)
def _(broker: Broker) -> None:
    def pull(self: Consumer, reply: bytes | None, body: bytes, now: int) -> None:
        if reply is not None:
            Consumer.pull(self, reply, body, now)
        elif (candidate := self.candidate(now)) is not None:
            self.delivered(*candidate, now)

    alter_consumers(broker, pull=pull)


@jetstream_defect(
    "pull-delivers-under-the-inbox",
    breaks=("JS-PULL-002",),
    summary="Messages bear the subject of the pull's inbox, not their own.",
)
def _(broker: Broker) -> None:
    def send(
        self: Consumer, target: bytes, subject: bytes, reply: bytes, header_block: bytes, payload: bytes
    ) -> int:
        return self.host.deliver(target, target, reply, header_block, payload)

    alter_consumers(broker, send=send)


@jetstream_defect(
    "pull-empty-body-asks-for-two",
    breaks=("JS-PULL-002",),
    summary="An empty pull request asks for two messages.",
)
def _(broker: Broker) -> None:
    def read(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
        return WaitingQueue.read(self, body or b"2", now)

    alter_waiting(broker, read=read)


@jetstream_defect(
    "pull-message-serves-two-requests",
    breaks=("JS-PULL-005",),
    summary="A message goes to two waiting requests, and satisfies the first.",
)
def _(broker: Broker) -> None:
    def send(
        self: Consumer, target: bytes, subject: bytes, reply: bytes, header_block: bytes, payload: bytes
    ) -> int:
        if len(self.waiting) > 1:
            second = self.waiting.requests[1]
            self.host.deliver(second.reply, subject, reply, header_block, payload)
        return self.host.deliver(target, subject, reply, header_block, payload)

    alter_consumers(broker, send=send)


@jetstream_defect(
    "pull-loses-the-message-after-a-batch",
    breaks=("JS-PULL-053",),
    summary="When a batch of more than one is full, the message after it is passed over.",
)
def _(broker: Broker) -> None:
    def pull_one(self: Consumer, now: int) -> bool:
        request = self.waiting.requests[0]
        went = Consumer.pull_one(self, now)
        if went and request.batch <= 0 and request.delivered > 1 and self.num_pending:
            self.position.passed(self.position.next_seq)
            self.num_pending -= 1
        return went

    alter_consumers(broker, pull_one=pull_one)


@jetstream_defect(
    "pull-lower-cases-headers",
    breaks=("JS-PULL-055",),
    summary="Header names of stored messages are delivered in lower case.",
)
def _(broker: Broker) -> None:
    def content(self: Consumer, message: Message) -> tuple[bytes, bytes]:
        header_block, payload = Consumer.content(self, message)
        return re.sub(rb"(?m)^[\w-]+(?=:)", lambda name: name[0].lower(), header_block), payload

    alter_consumers(broker, content=content)


@jetstream_defect(
    "pull-serves-one-more-than-the-batch",
    breaks=("JS-PULL-057",),
    summary="A message that comes after a batch was full goes to its inbox all the same.",
)
def _(broker: Broker) -> None:
    def filled(self: WaitingQueue, request: WaitingRequest, size: int, now: int) -> None:
        WaitingQueue.filled(self, request, size, now)
        if request.batch <= 0:
            vars(self)["late"] = request.reply

    def stored(self: Consumer, message: Message, now: int) -> None:
        reply = vars(self.waiting).pop("late", None)
        if reply is not None and not self.waiting.requests:
            self.waiting.enqueue(WaitingRequest(reply, 1, 0, NEVER, 0, NEVER, no_wait=False))
        Consumer.stored(self, message, now)

    alter_waiting(broker, filled=filled)
    alter_consumers(broker, stored=stored)


@jetstream_defect(
    "pull-tells-the-end-of-a-full-batch",
    breaks=("JS-PULL-051",),
    summary="A full batch of more than one ends with a status.",
)
def _(broker: Broker) -> None:
    def filled(self: WaitingQueue, request: WaitingRequest, size: int, now: int) -> None:
        WaitingQueue.filled(self, request, size, now)
        if request.batch <= 0 and request.delivered > 1:
            self.send(request.reply, NO_MESSAGES)

    alter_waiting(broker, filled=filled)


@jetstream_defect(
    "pull-waits-for-the-whole-batch",
    breaks=("JS-PULL-052",),
    summary="A pull with expires delivers nothing until its whole batch is there.",
)
def _(broker: Broker) -> None:
    def pull_one(self: Consumer, now: int) -> bool:
        request = self.waiting.requests[0]
        complete = request.delivered or request.batch <= self.num_pending + len(self.acks.queue)
        return bool(complete or request.expires == NEVER) and Consumer.pull_one(self, now)

    alter_consumers(broker, pull_one=pull_one)
