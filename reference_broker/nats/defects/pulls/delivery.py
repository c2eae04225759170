"""Defects in what a pull request is sent: who answers, which messages, how many."""

from __future__ import annotations

import re

from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import (
    alter_consumers,
    alter_waiting,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import NEVER, WaitingQueue, WaitingRequest
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import CONSUMER_IS_PUSH_BASED, NO_MESSAGES, PullRequest


@defect("JS-PULL-001", needs=())
def pull_without_jetstream_is_silent(broker: Broker) -> None:
    """A server without JetStream leaves pull requests unanswered instead of 503."""
    nobody_responds = broker.send_no_responders

    def silent(connection: NatsClientConnection, subject: bytes, reply: bytes) -> None:
        if not subject.startswith(b"$JS.API."):
            nobody_responds(connection, subject, reply)

    replace(broker, "send_no_responders", silent)


@method_defect(JetStream.refuse_pull, "JS-PULL-040")
def pull_push_consumer_is_silent(self: JetStream, consumer: Consumer, reply: bytes, status: Status) -> None:
    """A pull request to a push consumer gets no answer."""
    assert status is CONSUMER_IS_PUSH_BASED


@method_defect(Consumer.pull, "JS-PULL-043")
def pull_without_reply_consumes(self: Consumer, reply: bytes | None, body: bytes, now: int) -> None:
    """A pull request without reply subject uses up a message."""
    if reply is not None:
        Consumer.pull(self, reply, body, now)
    elif (candidate := self.next_message(now)) is not None:
        self.record_delivered(*candidate, now)


@method_defect(Consumer.send, "JS-PULL-002")
def pull_delivers_under_the_inbox(
    self: Consumer, target: bytes, subject: bytes, reply: bytes, header_block: bytes, payload: bytes
) -> int:
    """Messages bear the subject of the pull's inbox, not their own."""
    return self.host.deliver(target, target, reply, header_block, payload)


@method_defect(WaitingQueue.read, "JS-PULL-002")
def pull_empty_body_asks_for_two(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
    """An empty pull request asks for two messages."""
    return WaitingQueue.read(self, body or b"2", now)


@method_defect(Consumer.send, "JS-PULL-005")
def pull_message_serves_two_requests(
    self: Consumer, target: bytes, subject: bytes, reply: bytes, header_block: bytes, payload: bytes
) -> int:
    """A message goes to two waiting requests, and satisfies the first."""
    if len(self.waiting) > 1:
        second = self.waiting.requests[1]
        self.host.deliver(second.reply, subject, reply, header_block, payload)
    return self.host.deliver(target, subject, reply, header_block, payload)


@method_defect(Consumer.pull_one, "JS-PULL-053")
def pull_loses_the_message_after_a_batch(self: Consumer, now: int) -> bool:
    """When a batch of more than one is full, the message after it is passed over."""
    request = self.waiting.requests[0]
    went = Consumer.pull_one(self, now)
    if went and request.batch <= 0 and request.delivered > 1 and self.num_pending:
        self.position.passed(self.position.next_seq)
        self.num_pending -= 1
    return went


@method_defect(Consumer.content, "JS-PULL-055")
def pull_lower_cases_headers(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """Header names of stored messages are delivered in lower case."""
    header_block, payload = Consumer.content(self, message)
    return re.sub(rb"(?m)^[\w-]+(?=:)", lambda name: name[0].lower(), header_block), payload


@defect("JS-PULL-057")
def pull_serves_one_more_than_the_batch(broker: Broker) -> None:
    """A message that comes after a batch was full goes to its inbox all the same."""

    def filled(self: WaitingQueue, request: WaitingRequest, size: int, now: int) -> None:
        WaitingQueue.record_delivered(self, request, size, now)
        if request.batch <= 0:
            vars(self)["late"] = request.reply

    def stored(self: Consumer, message: StoredMessage, now: int) -> None:
        reply = vars(self.waiting).pop("late", None)
        if reply is not None and not self.waiting.requests:
            self.waiting.enqueue(WaitingRequest(reply, 1, 0, NEVER, 0, NEVER, no_wait=False))
        Consumer.on_stored(self, message, now)

    alter_waiting(broker, record_delivered=filled)
    alter_consumers(broker, on_stored=stored)


@method_defect(WaitingQueue.record_delivered, "JS-PULL-051")
def pull_tells_the_end_of_a_full_batch(
    self: WaitingQueue, request: WaitingRequest, size: int, now: int
) -> None:
    """A full batch of more than one ends with a status."""
    WaitingQueue.record_delivered(self, request, size, now)
    if request.batch <= 0 and request.delivered > 1:
        self.send(request.reply, NO_MESSAGES)


@method_defect(Consumer.pull_one, "JS-PULL-052")
def pull_waits_for_the_whole_batch(self: Consumer, now: int) -> bool:
    """A pull with expires delivers nothing until its whole batch is there."""
    request = self.waiting.requests[0]
    complete = request.delivered or request.batch <= self.num_pending + len(self.acks.queue)
    return bool(complete or request.expires == NEVER) and Consumer.pull_one(self, now)
