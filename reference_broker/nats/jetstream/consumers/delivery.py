"""How a consumer delivers: what comes next, who gets it, and what is counted when it has gone out.

Counting is ``ack.AckState``'s, waiting requests are ``pull.WaitingQueue``'s. What push consumers do of
their own is in ``push``, what reaches a consumer from outside in ``consumer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from plumbline.reference_broker.nats.jetstream import advisories
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.position import (
    ConsumerPosition,
    deliveries_pending,
    starting_position,
)
from plumbline.reference_broker.nats.jetstream.consumers.priority import QUEUES, PinnedQueue
from plumbline.reference_broker.nats.jetstream.consumers.pull import WaitingQueue, WaitingRequest
from plumbline.reference_broker.nats.jetstream.consumers.replay import OriginalReplay
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage, SubjectTest
from plumbline.reference_broker.nats.jetstream.subjects import matcher
from plumbline.wire.nats.headers import append_headers
from plumbline.wire.nats.jetstream.times import parse_time

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.files.consumer_log import ConsumerLog
    from plumbline.reference_broker.nats.jetstream.files.stream_files import StreamFiles
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


class ConsumerDelivery:
    """One consumer of ``stream``.

    A pull consumer has a ``waiting`` queue; a push consumer is ``active`` while somebody listens to it.
    """

    ack_state_type: ClassVar[type[AckState]] = AckState
    waiting_type: ClassVar[type[WaitingQueue]] = WaitingQueue

    def __init__(self, stream: Stream, name: str, config: ConsumerConfig, now: int) -> None:
        jetstream = stream.jetstream
        self.stream = stream
        self.name = name
        self.config = config
        self.created = now
        self.host = jetstream.host
        self.rules = jetstream.rules
        self.subject_filter: SubjectTest | None = None
        self.position: ConsumerPosition = starting_position(config, stream.store, self.rules)
        start = 1 if self.hides_its_start else self.position.next_seq
        self.acks = self.ack_state_type(config.ack_policy, start, self.rules)
        self.waiting = self.new_queue(config, now)
        self.replay = OriginalReplay(stream.store.last_seq) if config.replay_policy == "original" else None
        self.active = False
        self.log: ConsumerLog | None = None
        self.ack_prefix = f"$JS.ACK.{stream.config.name}.{name}.".encode()
        self.ack_timer = jetstream.timers.timer(self.on_ack_wait)
        self.run_timer = jetstream.timers.timer(self.run)
        self.pin_timer = jetstream.timers.timer(self.unpin)
        self.unannounced_pin = ""
        self.pause_timer = jetstream.timers.timer(self.on_pause_end)
        self.filter_by(config)
        self.pause(config)

    @property
    def hides_its_start(self) -> bool:
        """Whether ``record_delivered`` does not show what was skipped before the first message."""
        config = self.config
        return (
            config.deliver_policy == "last"
            and not config.filters
            and not self.rules.deliver_last_shows_skipped
        )

    # Files

    def keep_log(self, files: StreamFiles) -> None:
        """From now on what is delivered and acknowledged is written down."""
        self.log = files.open_log(self)
        files.save_consumer(self)
        self.on_state_changed(None)

    def on_state_changed(self, seq: int | None) -> None:
        """The counters have changed, with the state of the message ``seq``; None: perhaps that of many."""
        if self.log is not None:
            self.log.changed(seq)

    # Configuration

    def new_queue(self, config: ConsumerConfig, now: int) -> WaitingQueue:
        """An empty queue of requests, as the priority policy wants it."""
        waiting_type = QUEUES.get(config.priority_policy, self.waiting_type)
        return waiting_type(self.host, config, self.rules, self, now)

    def pause(self, config: ConsumerConfig) -> None:
        """``pause_until``: nothing is delivered before."""
        self.paused_until = parse_time(config.pause_until or "") or 0 if self.rules.consumer_pause else 0
        if self.paused_until > self.stream.jetstream.now:
            self.pause_timer.set(self.paused_until)
        else:
            self.pause_timer.clear()

    def on_pause_end(self, now: int) -> None:
        """An advisory reports that deliveries go on; ``run_timer`` is what resumes them."""
        advisories.pause(self, now)

    def filter_by(self, config: ConsumerConfig) -> None:
        filters = config.filters
        everything = not filters or filters == self.stream.config.patterns
        self.subject_filter = None if everything else matcher(filters)
        self.recount()

    def recount(self) -> None:
        """num_pending, from what the stream holds: also of messages that ``on_stored`` is yet to announce."""
        store = self.stream.store
        self.num_pending = deliveries_pending(self.position, store, self.subject_filter)
        self.counted_up_to = store.last_seq

    # Delivering

    def on_stored(self, message: StoredMessage, now: int) -> None:
        """The stream has a new message."""
        if message.seq < self.position.next_seq or (
            self.subject_filter is not None and not self.subject_filter(message.subject)
        ):
            return
        if message.seq > self.counted_up_to:
            self.num_pending += 1
        if self.waiting.requests or self.active:
            self.run(now)

    def run(self, now: int) -> None:
        """Deliver all there is to all who wait."""
        if self.paused_until > now:
            self.run_timer.set_earliest(self.paused_until)
            return
        if not self.config.is_pull:
            self.push(now)
            return
        waiting = self.waiting
        while waiting.requests and not self.is_blocked() and self.pull_one(now):
            pass
        if waiting.one_shots and self.at_end():
            waiting.expire(now, at_end=True)
        if self.unannounced_pin:
            pin, self.unannounced_pin = self.unannounced_pin, ""
            advisories.pinned(self, pin, now)

    def is_blocked(self) -> bool:
        """max_ack_pending holds back what is new, never a redelivery."""
        limit = self.config.max_ack_pending
        return 0 < limit <= len(self.acks.pending) and not self.acks.queue

    def at_end(self) -> bool:
        """Whether nothing more is delivered because nothing is there, and not because something holds it
        back."""
        return not self.is_blocked() and self.run_timer.when is None

    def pull_one(self, now: int) -> bool:
        """Deliver the next message to a waiting request; False if there is none, or no subscriber for it."""
        candidate = self.next_message(now)
        if candidate is None:
            return False
        message, deliveries = candidate
        header_block, payload = self.content(message)
        reply = self.ack_subject(message, deliveries)
        size = len(message.subject) + len(reply) + len(header_block) + len(payload)
        waiting = self.waiting
        while (request := waiting.next_receiver(size, now)) is not None:
            marked = waiting.marked(header_block)
            receivers = self.send(request.reply, message.subject, reply, marked, payload)
            if self.was_delivered(request, receivers):
                waiting.record_delivered(request, size, now)
                waiting.last_active = now
                self.record_delivered(message, deliveries, now)
                return True
            waiting.remove(request)  # no subscriber any more: ADR-13, interest
        return False

    def send(self, target: bytes, subject: bytes, reply: bytes, header_block: bytes, payload: bytes) -> int:
        """A message goes out under the subject it was stored with (ADR-13); how many got it."""
        return self.host.deliver(target, subject, reply, header_block, payload)

    def was_delivered(self, request: WaitingRequest, receivers: int) -> bool:
        """What reached no subscriber was not delivered, and the request is over."""
        return receivers > 0

    def push(self, now: int) -> None:
        """What a push consumer does in the place of serving pull requests."""
        raise NotImplementedError

    def next_message(self, now: int) -> tuple[StoredMessage, int] | None:
        """What is to be delivered next, and which delivery of it that is. Nothing is counted yet."""
        while (seq := self.acks.next_redelivery()) is not None:
            deliveries = self.acks.next_delivery_of(seq)
            if self.is_exhausted(deliveries):
                self.on_max_deliveries(seq, deliveries - 1, now)
                continue
            message = self.stream.store.load(seq)
            if message is not None:
                return message, deliveries
            self.acks.message_removed(seq, now)
            self.on_state_changed(seq)
        message = self.position.next(self.stream.store, self.subject_filter)
        if message is None or (self.replay is not None and self.too_early(message, now)):
            return None
        return message, 1

    def too_early(self, message: StoredMessage, now: int) -> bool:
        """Policy ``original``: messages keep the distance in time they were stored with."""
        assert self.replay is not None
        due = self.replay.due(message, now)
        if due > now:
            self.run_timer.set(due)
        return due > now

    def is_exhausted(self, deliveries: int) -> bool:
        return 0 < self.config.max_deliver < deliveries

    def on_max_deliveries(self, seq: int, deliveries: int, now: int) -> None:
        self.acks.max_deliveries_reached(seq)
        self.on_state_changed(seq)
        advisories.max_deliveries(self, seq, deliveries, now)

    def content(self, message: StoredMessage) -> tuple[bytes, bytes]:
        """Header block and payload of a delivery; headers are relayed unchanged."""
        if not self.config.headers_only:
            return message.header_block, message.payload
        size = str(len(message.payload))
        return append_headers(message.header_block, [("Nats-Msg-Size", size)]), b""

    def ack_subject(self, message: StoredMessage, deliveries: int) -> bytes:
        """ADR-15: delivery count, stream and consumer sequence, time stored, messages after this one."""
        pending = self.pending_after(deliveries)
        numbers = (deliveries, message.seq, self.acks.next_consumer_seq, message.time, pending)
        return self.ack_prefix + b"%d.%d.%d.%d.%d" % numbers

    def pending_after(self, deliveries: int) -> int:
        """num_pending once a message is delivered; a redelivery changes nothing."""
        return max(self.num_pending - 1, 0) if deliveries == 1 else self.num_pending

    def record_delivered(self, message: StoredMessage, deliveries: int, now: int) -> None:
        """Count a delivery that reached somebody."""
        seq = message.seq
        self.acks.record_delivery(seq, deliveries, now)
        if deliveries == 1:
            self.position.passed(seq)
            self.num_pending -= 1
        self.on_state_changed(seq)
        if self.replay is not None:
            self.replay.delivered(message, now)
        if self.config.ack_policy == "none":
            self.stream.on_settled(seq)
        else:
            self.set_ack_timer(now + self.redelivery_delay(seq))

    def last_delivered(self) -> tuple[int, int]:
        """What an idle heartbeat reports: the last delivery, and how far the stream has been looked at."""
        return self.acks.delivered.consumer, self.position.next_seq - 1

    def run_if_waiting(self, now: int) -> None:
        if self.waiting.requests or self.active:
            self.run(now)

    # Priority groups

    def reported_ack_pending(self) -> int:
        return len(self.acks.pending)

    def new_pin(self) -> str:
        """For the client that is being served. The advisory comes after: this stream may capture it."""
        self.unannounced_pin = self.stream.jetstream.new_name(22)
        return self.unannounced_pin

    def pinned(self) -> int:
        now = self.stream.jetstream.now
        self.pin_timer.set(now + self.config.priority_timeout)
        return now

    def unpin(self, now: int, reason: str = "timeout") -> None:
        """The pinned client is gone, or somebody asked: the next request served is the next one pinned."""
        if isinstance(self.waiting, PinnedQueue):
            self.waiting.unpin()
        advisories.unpinned(self, reason, now)
        self.pin_timer.clear()
        self.run(now)

    # ack_wait

    def redelivery_delay(self, seq: int) -> int:
        """ack_wait, or the step of the backoff that the message has come to."""
        backoff = self.config.backoff
        if not backoff:
            return self.config.ack_wait
        return backoff[min(self.acks.redelivered.get(seq, 0), len(backoff) - 1)]

    def set_ack_timer(self, when: int) -> None:
        """See at that moment what has waited long enough; ack_policy flow_control knows no redelivery."""
        if self.config.ack_policy != "flow_control":
            self.ack_timer.set_earliest(when)

    def on_ack_wait(self, now: int) -> None:
        """Queue for redelivery what has waited long enough, and look again when the next one has."""
        acks = self.acks
        later = None
        for seq, pending in list(acks.pending.items()):
            if seq in acks.queue:
                continue
            deadline = pending.stamp + self.redelivery_delay(seq)
            if deadline > now:
                later = deadline if later is None else min(later, deadline)
            else:
                self.request_redelivery_of(seq, now)
        if later is not None:
            self.ack_timer.set_earliest(later)
        self.run_if_waiting(now)

    def request_redelivery_of(self, seq: int, now: int) -> None:
        acks = self.acks
        if self.rules.max_deliver_checked_at_ack_wait and 0 < self.config.max_deliver <= max(
            acks.redelivered.get(seq, 0), 1
        ):
            self.on_max_deliveries(seq, acks.redelivered.get(seq, 0) + 1, now)
            return
        acks.pending[seq].stamp = now
        acks.request_redelivery(seq)
