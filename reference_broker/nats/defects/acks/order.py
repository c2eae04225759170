"""Defects of what is delivered again: which messages, when, and before what. What is right: ``delivery``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers, method_defect
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubjectFields
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage


@defect("JS-CONS-067")
def backoff_begins_anew_with_a_nak(broker: Broker) -> None:
    """What a -NAK has delivered again waits for the first step of the backoff."""

    def nak(self: Consumer, subject: AckSubjectFields, delay: int | None, now: int) -> None:
        vars(self).setdefault("refused", set()).add(subject.stream_seq)
        Consumer.nak(self, subject, delay, now)

    def redelivery_delay(self: Consumer, seq: int) -> int:
        is_refused = bool(self.config.backoff) and seq in vars(self).get("refused", ())
        return self.config.backoff[0] if is_refused else Consumer.redelivery_delay(self, seq)

    alter_consumers(broker, nak=nak, redelivery_delay=redelivery_delay)


@method_defect(Consumer.request_redelivery_of, "JS-CONS-063")
def ack_all_redelivers_the_last(self: Consumer, seq: int, now: int) -> None:
    """With ack_policy all only the last message that is pending is delivered again."""
    if self.config.ack_policy != "all" or seq == max(self.acks.pending):
        Consumer.request_redelivery_of(self, seq, now)


@method_defect(Consumer.run_if_waiting, "JS-CONS-050")
def ack_all_makes_room_for_one(self: Consumer, now: int) -> None:
    """With ack_policy all an acknowledgement lets one more message go out, however many it settles."""
    if self.config.ack_policy != "all" or not self.config.is_pull or self.acks.queue:
        Consumer.run_if_waiting(self, now)
    elif self.waiting.requests and not self.is_blocked():
        self.pull_one(now)


@defect("JS-CONS-148")
def ack_wait_comes_after_new(broker: Broker) -> None:
    """What was not acknowledged within ack_wait is delivered after what is new."""

    def request_redelivery_of(self: Consumer, seq: int, now: int) -> None:
        vars(self).setdefault("late", set()).add(seq)
        Consumer.request_redelivery_of(self, seq, now)

    def next_message(self: Consumer, now: int) -> tuple[StoredMessage, int] | None:
        if self.acks.next_redelivery() in vars(self).get("late", ()):
            message = self.position.next(self.stream.store, self.subject_filter)
            if message is not None:
                return message, 1
        return Consumer.next_message(self, now)

    alter_consumers(broker, request_redelivery_of=request_redelivery_of, next_message=next_message)


@method_defect(Consumer.on_interest_lost, "JS-PUSH-007")
def lost_subscriber_has_all_again(self: Consumer, now: int) -> None:
    """When its subscriber leaves, a push consumer has what is pending to be delivered again at once."""
    Consumer.on_interest_lost(self, now)
    for seq in self.acks.pending:
        self.acks.request_redelivery(seq)


@method_defect(Consumer.pull, "JS-CONS-063")
def lost_client_gives_all_back(self: Consumer, reply: bytes | None, body: bytes, now: int) -> None:
    """When a client has gone that waits, what is pending is delivered again to the next one at once."""
    if not all(self.waiting.has_interest(request) for request in self.waiting.requests):
        for seq in self.acks.pending:
            self.acks.request_redelivery(seq)
    Consumer.pull(self, reply, body, now)


@method_defect(Consumer.terminate, "JS-ACK-020")
def ack_term_of_a_redelivery_is_passed_over(
    self: Consumer, subject: AckSubjectFields, reason: str, now: int
) -> bool:
    """+TERM to a redelivery is answered, and the message comes again."""
    return subject.deliveries > 1 or Consumer.terminate(self, subject, reason, now)


@method_defect(Consumer.request_redelivery_of, "JS-CONS-063")
def pulled_message_comes_three_times_at_most(self: Consumer, seq: int, now: int) -> None:
    """A pull consumer delivers a message again twice, and then no more."""
    if not self.config.is_pull or self.acks.redelivered.get(seq, 0) < 2:
        Consumer.request_redelivery_of(self, seq, now)
