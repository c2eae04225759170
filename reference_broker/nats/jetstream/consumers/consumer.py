"""A consumer: pull requests, acknowledgements, timers, removed messages.

How it delivers is in ``delivery`` and ``push``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plumbline.reference_broker.nats.jetstream import advisories
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubjectFields, Sequences
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.position import ConsumerPosition
from plumbline.reference_broker.nats.jetstream.consumers.pull import NEVER
from plumbline.reference_broker.nats.jetstream.consumers.push import PushDelivery
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.subjects import matcher
from plumbline.wire.nats.jetstream import CONSUMER_IS_PUSH_BASED, Ack, AckKind
from plumbline.wire.nats.subjects import covers, is_literal

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


class Consumer(PushDelivery):
    """One consumer of a stream."""

    def __init__(self, stream: Stream, name: str, config: ConsumerConfig, now: int) -> None:
        super().__init__(stream, name, config, now)
        timers = stream.jetstream.timers
        self.pull_timer = timers.timer(self.requests_due)
        self.sample_debt = 0  # how much of an ack sample is owed, in percent
        self.watch_inactivity(now)

    def reconfigure(self, config: ConsumerConfig, now: int) -> None:
        filters_change = config.filters != self.config.filters
        has_log = self.log is not None
        paused_until = self.paused_until
        if config.priority_policy != self.config.priority_policy:
            self.serve_in_another_order(config, now)
        self.config = self.waiting.config = config
        if filters_change:
            self.filter_by(config)
        self.pause(config)
        if self.paused_until != paused_until:
            advisories.pause(self, now)
        self.watch_inactivity(now)
        if has_log and self.stream.files is not None:
            self.stream.files.save_consumer(self)
        if self.acks.pending:
            self.set_ack_timer(now)
        if config.is_pull:
            self.run(now)
        else:
            self.redirect(config, now)

    # Pull requests

    def serve_in_another_order(self, config: ConsumerConfig, now: int) -> None:
        """The policy has changed: what waits goes on waiting, and no client is pinned."""
        requests = self.waiting.requests
        self.pin_timer.clear()
        self.waiting = self.new_queue(config, now)
        for request in requests:
            self.waiting.enqueue(request)

    def pull(self, reply: bytes | None, body: bytes, now: int) -> None:
        """A message on CONSUMER.MSG.NEXT, or what follows +NXT."""
        if reply is None:
            return
        available = self.num_pending + len(self.acks.queue)
        request = self.waiting.accept(reply, body, available, now)
        if request is None:
            return
        self.run(now)
        if self.waiting.requests and request.next_event < NEVER:
            self.pull_timer.set_earliest(request.next_event)

    def requests_due(self, now: int) -> None:
        self.waiting.expire(now, at_end=self.at_end())
        moment = self.waiting.next_event()
        if moment < NEVER:
            self.pull_timer.set_earliest(moment)

    # Acknowledgements

    def acknowledged(self, subject: AckSubjectFields, reply: bytes | None, payload: bytes, now: int) -> None:
        """A message on an ack subject (deep dive, table of ack types)."""
        if not payload or payload == b"+ACK":
            answered = self.ack(subject, now, sampled=True)
        else:
            answered = self.other_ack(subject, reply, payload, now)
        if answered and reply is not None:
            self.answer_ack(reply)
        if self.config.ack_policy != "none":
            self.run_if_waiting(now)

    def answer_ack(self, reply: bytes) -> None:
        """The second half of a double ack: an empty message."""
        self.host.publish(reply, None, b"", b"")

    def other_ack(self, subject: AckSubjectFields, reply: bytes | None, payload: bytes, now: int) -> bool:
        """True if an empty reply is due; that is so for unknown payloads as well."""
        ack = Ack.parse(payload)
        match ack.kind:
            case AckKind.ACK:
                return self.ack(subject, now, sampled=True)
            case AckKind.NEXT:
                self.ack(subject, now, sampled=True)
                return self.next(reply, ack.argument, now)
            case AckKind.NAK:
                self.nak(subject, ack.delay, now)
            case AckKind.PROGRESS:
                self.progress(subject, now)
            case AckKind.TERM if payload == b"+TERM" or self.rules.term_takes_reason:
                return self.terminate(subject, ack.reason or "", now)
        return True

    def next(self, reply: bytes | None, body: bytes, now: int) -> bool:
        """+NXT: its reply subject is the inbox of a pull request, so there is no empty reply."""
        if self.config.is_pull:
            self.pull(reply, body, now)
        elif reply is not None:
            self.waiting.send(reply, CONSUMER_IS_PUSH_BASED)
        return False

    def ack(self, subject: AckSubjectFields, now: int, *, sampled: bool) -> bool:
        """False for an ack of what was never delivered: it changes nothing and gets no answer."""
        seq = subject.stream_seq
        if seq >= self.position.next_seq and self.rules.future_ack_is_ignored:
            return False
        if sampled and self.config.sample_freq and self.config.ack_policy == "explicit":
            advisories.ack_sample(self, subject, now)
        settled = self.acks.acknowledge(seq, subject.consumer_seq, now)
        if self.rules.skipped_counts_as_delivered and self.config.ack_policy == "explicit":
            self.pass_with_floor()
        self.on_state_changed(seq)
        for each in settled:
            self.on_state_changed(each)
            self.stream.on_settled(each)
        return True

    def on_flow_acknowledged(self, up_to: Sequences, now: int) -> None:
        names = (self.stream.config.name.encode(), self.name.encode())
        self.ack(AckSubjectFields(*names, 1, up_to.stream, up_to.consumer), now, sampled=False)

    def nak(self, subject: AckSubjectFields, delay: int | None, now: int) -> None:
        """-NAK: again, at once or after ``delay``."""
        seq = subject.stream_seq
        if not self.may_nak(subject):
            return
        advisories.nak(self, subject, now)
        if delay is None:
            self.acks.request_redelivery(seq)
        elif (pending := self.acks.pending.get(seq)) is not None:
            self.acks.queue.pop(seq, None)
            pending.stamp = (
                now - self.config.ack_wait + delay
            )  # as if delivered then: ack_wait passes after the delay
            self.on_state_changed(seq)
            self.ack_timer.set_earliest(pending.stamp + self.redelivery_delay(seq))

    def may_nak(self, subject: AckSubjectFields) -> bool:
        acks = self.acks
        if not acks.floor.consumer < subject.consumer_seq <= acks.next_consumer_seq:
            return False
        return subject.stream_seq in acks.pending

    def progress(self, subject: AckSubjectFields, now: int) -> None:
        """+WPI: ack_wait starts again."""
        pending = self.acks.pending.get(subject.stream_seq)
        if pending is not None:
            pending.stamp = now
            self.on_state_changed(subject.stream_seq)

    def terminate(self, subject: AckSubjectFields, reason: str, now: int) -> bool:
        """+TERM: done with, though not processed."""
        answered = self.ack(subject, now, sampled=False)
        advisories.terminated(self, subject, reason, now)
        return answered

    # The stream loses messages

    def on_message_removed(self, message: StoredMessage, now: int) -> None:
        """One message is gone: limits, a delete, its age."""
        if message.seq >= self.position.next_seq:
            if self.subject_filter is None or self.subject_filter(message.subject):
                self.num_pending = max(self.num_pending - 1, 0)
            return
        subject = self.pending_subject(message.seq)
        dropped = self.acks.message_removed(message.seq, now)
        self.on_state_changed(message.seq)
        if dropped and subject is not None:
            reason = "Unacknowledged message was deleted" if self.rules.term_takes_reason else ""
            advisories.terminated(self, subject, reason, now)
            self.run_timer.set_earliest(now)  # there may be room again below max_ack_pending

    def resume(self, now: int) -> None:
        """After a restart of the broker: the counters are those of before, the stream's end may be lost."""
        store, acks = self.stream.store, self.acks
        last = max(store.last_seq, self.config.opt_start_seq - 1)  # it may begin beyond the end
        self.position.not_after(last + 1)
        for pair in (acks.delivered, acks.floor):
            pair.stream = min(pair.stream, last)
        for seq in [seq for seq in acks.redelivered if seq > last]:
            del acks.redelivered[seq]
        for seq in [seq for seq in acks.pending if store.load(seq) is None]:
            acks.message_removed(seq, now)
        if self.rules.skipped_counts_as_delivered and not self.position.listed:
            self.position.next_seq = acks.delivered.stream + 1  # what was passed over is not in the files
        self.recount()
        if acks.pending:
            self.set_ack_timer(now)
        if not self.config.is_pull:
            self.start(now)

    def reset(self, seq: int, now: int) -> None:
        """Deliver from ``seq`` on as a new consumer does (ADR-60); what was pending is forgotten."""
        self.position = ConsumerPosition(seq)
        self.acks = self.ack_state_type(self.config.ack_policy, seq, self.rules)
        self.recount()
        self.on_state_changed(None)
        self.stream.release_unwanted()
        self.run(now)

    def pending_subject(self, seq: int) -> AckSubjectFields | None:
        """The ack subject that would have acknowledged ``seq``."""
        pending = self.acks.pending.get(seq)
        if pending is None:
            return None
        names = (self.stream.config.name.encode(), self.name.encode())
        return AckSubjectFields(*names, max(self.acks.redelivered.get(seq, 0), 1), seq, pending.consumer_seq)

    def on_purged(self, subject: bytes | None, now: int) -> None:
        """Messages on ``subject`` are gone: b"" for any, None if the purge was of all there is."""
        store = self.stream.store
        start = self.start_after_purge(subject)
        still_pending = {seq for seq in self.acks.pending if store.load(seq)}
        if start is not None:
            self.position.not_before(start)
            self.acks.restart_at(self.position.next_seq, still_pending, now, start)
        else:
            for seq in self.acks.pending.keys() - still_pending:
                self.acks.message_removed(seq, now)
        self.recount()
        self.on_state_changed(None)
        if start is not None or not self.rules.purge_drops_all_pending:
            self.run_timer.set_earliest(now)  # there may be room again below max_ack_pending

    def start_after_purge(self, subject: bytes | None) -> int | None:
        """The sequence that a purge moves this consumer to, at least; None if it does not concern it.

        Servers: a consumer of no more than was purged goes to the next such message, or to the end.
        """
        store, filters = self.stream.store, self.config.filters
        if not subject:
            untouched = self.rules.purge_drops_all_pending and subject is not None and filters
            return None if untouched else store.first_seq
        within = bool(filters) and all(covers(subject, filter_) for filter_ in filters)
        matches = not filters or any(covers(filter_, subject) for filter_ in filters)
        if within:
            left = store.first_of(subject) if is_literal(subject) else store.next(0, matcher([subject]))
            return left.seq if left else store.last_seq + 1
        return store.first_seq if matches else None

    def needs(self, message: StoredMessage) -> bool:
        """Whether interest retention must keep ``message`` for this consumer."""
        if self.subject_filter is not None and not self.subject_filter(message.subject):
            return False
        return self.acks.needs(message.seq, self.position.next_seq)

    def pass_with_floor(self) -> None:
        """Where nothing is pending, older servers count what was skipped as acknowledged, too."""
        if not self.acks.pending:
            self.acks.floor.stream = max(self.acks.floor.stream, self.position.next_seq - 1)

    # What the API reports

    def reported_delivered(self) -> Sequences:
        """The last delivery; before the first one, and on older servers always, what was skipped counts as
        well."""
        delivered = self.acks.delivered
        untouched = not delivered.consumer and not delivered.stream
        if untouched and self.hides_its_start:
            return delivered
        if self.rules.skipped_counts_as_delivered or untouched:
            return Sequences(delivered.consumer, self.position.next_seq - 1)
        return delivered

    def reported_floor(self) -> Sequences:
        return self.acks.floor

    def reported_waiting(self) -> int:
        return len(self.waiting)

    def reported_pending(self) -> int:
        return self.num_pending

    def reported_redelivered(self) -> int:
        """Messages delivered more than once and not settled; with max_deliver 1 there are none to tell of."""
        if self.config.max_deliver == 1 and self.rules.max_deliver_1_never_redelivered:
            return 0
        return len(self.acks.redelivered)

    # The end

    def on_inactive(self, now: int) -> None:
        """Delete an unused consumer (deep dive, "Ephemeral Consumers")."""
        remaining = self.minimum_lifetime(now)
        if remaining > 0:
            self.inactive_timer.set(now + remaining)
        else:
            self.stream.delete_consumer(self, now)

    def minimum_lifetime(self, now: int) -> int:
        """How long the consumer must stay, at least."""
        threshold = self.config.inactive_threshold
        if not self.config.is_pull:
            return threshold if self.active else 0
        self.waiting.expire(now, at_end=self.at_end())
        if self.waiting.requests:
            return threshold
        working = [p.stamp + self.redelivery_delay(seq) for seq, p in self.acks.pending.items()]
        return max([self.waiting.last_active, *working]) + threshold - now

    def close(self) -> None:
        """The consumer is gone: its requests end, its timers stop."""
        self.waiting.delete()
        self.pull_timer.clear()
        self.pin_timer.clear()
        self.pause_timer.clear()
        super().close()
