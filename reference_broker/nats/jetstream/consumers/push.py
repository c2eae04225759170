"""A push consumer: delivers to its deliver_subject while there is a subscriber.

Interest, idle heartbeats, flow control and the rate limit are here; what comes next and what is counted is
in ``delivery``. Source: docs.nats.io, "Consumers", "Push specific"; subjects and headers as observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plumbline.reference_broker.nats.jetstream.consumers.ack import Sequences
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.delivery import ConsumerDelivery
from plumbline.reference_broker.nats.jetstream.consumers.flow_control import FlowWindow
from plumbline.reference_broker.nats.jetstream.consumers.pull import status_block
from plumbline.reference_broker.nats.jetstream.consumers.rate_limit import RateLimit
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Headers
from plumbline.wire.nats.jetstream import (
    CONSUMER_STALLED,
    FLOW_CONTROL_REQUEST,
    IDLE_HEARTBEAT,
    LAST_CONSUMER,
    LAST_STREAM,
)
from plumbline.wire.units import read_number

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

FLOW_CONTROL = b"$JS.FC."


def answered_up_to(header_block: bytes) -> Sequences | None:
    """What the headers of an answer to flow control say; None if they say nothing."""
    if not header_block:
        return None
    try:
        get = Headers.parse(header_block).get
    except ProtocolError:
        return None
    consumer_seq, stream_seq = (read_number(get(name) or "0") for name in (LAST_CONSUMER, LAST_STREAM))
    return Sequences(consumer_seq, stream_seq) if consumer_seq is not None and stream_seq else None


class PushDelivery(ConsumerDelivery):
    """What a push consumer has beyond a pull consumer; on a pull consumer all of it rests."""

    def __init__(self, stream: Stream, name: str, config: ConsumerConfig, now: int) -> None:
        super().__init__(stream, name, config, now)
        self.target = config.deliver_subject.encode()
        self.window = FlowWindow() if config.flow_control else None
        self.rate_limit = self.rate_limit_for(config)
        self.last_sent = now
        timers = stream.jetstream.timers
        self.heartbeat_timer = timers.timer(self.on_heartbeat_timer)
        self.inactive_timer = timers.timer(self.on_inactive)

    # Interest

    def start(self, now: int) -> None:
        """A push consumer delivers once its creation is answered: the answer shows all as pending."""
        self.stream.jetstream.watch_interest(self)
        self.last_sent = now
        if self.config.idle_heartbeat:
            self.heartbeat_timer.set_earliest(now + self.config.idle_heartbeat)
        self.active = self.has_interest()
        if self.active:
            self.on_subscribed(now)
            self.run_timer.set_earliest(now)

    def has_interest(self) -> bool:
        """Whether somebody has subscribed to exactly the deliver_subject, in the deliver_group if there is
        one; wildcards and other groups do not count."""
        return self.host.has_subscriber(self.target, self.config.deliver_group.encode() or None)

    def on_interest_changed(self, now: int) -> None:
        """A subscription to the deliver_subject was made, or has ended."""
        was_active, self.active = self.active, self.has_interest()
        if self.active and not was_active:
            self.on_subscribed(now)
            self.run(now)
        elif was_active and not self.active:
            self.on_interest_lost(now)

    def on_subscribed(self, now: int) -> None:
        """A subscriber is there."""
        self.inactive_timer.clear()

    def on_interest_lost(self, now: int) -> None:
        """The last subscriber is gone: time runs against the consumer."""
        self.active = False
        self.watch_inactivity(now)

    def redirect(self, config: ConsumerConfig, now: int) -> None:
        """An update may give another deliver_subject or group: what is pending goes there again."""
        target = config.deliver_subject.encode()
        if target != self.target:
            self.stream.jetstream.unwatch_interest(self)
            self.target = target
            self.stream.jetstream.watch_interest(self)
            for seq in self.acks.pending:
                self.acks.request_redelivery(seq)
        if config.rate_limit_bps != (self.rate_limit.bits_per_second if self.rate_limit else 0):
            self.rate_limit = self.rate_limit_for(config)
        is_listened_to = self.has_interest()
        if self.active and not is_listened_to:
            self.on_interest_lost(now)
        elif is_listened_to and not self.active:
            self.active = True
            self.on_subscribed(now)
        self.run_timer.set_earliest(now)  # once the update is answered

    def watch_inactivity(self, now: int) -> None:
        if self.config.inactive_threshold:
            self.inactive_timer.set(now + self.config.inactive_threshold)

    def on_inactive(self, now: int) -> None:
        """The consumer may have been unused for inactive_threshold."""
        raise NotImplementedError

    # Delivering

    def push(self, now: int) -> None:
        """Deliver to the deliver_subject until nothing is left or something holds it back."""
        while self.active and not self.is_blocked() and not self.is_stalled():
            candidate = self.next_message(now)
            if candidate is None:
                return
            message, deliveries = candidate
            header_block, payload = self.content(message)
            reply = self.ack_subject(message, deliveries)
            size = len(reply) + len(header_block) + len(payload)
            if self.exceeds_rate_limit(len(message.subject) + size, now):
                return
            if not self.send(self.target, message.subject, reply, header_block, payload):
                self.on_interest_lost(now)
                return
            self.record_delivered(message, deliveries, now)
            self.last_sent = now
            if self.window is not None:
                self.record_sent(self.window, len(self.target) + size)

    def exceeds_rate_limit(self, size: int, now: int) -> bool:
        """rate_limit_bps: whether ``size`` bytes must wait."""
        if self.rate_limit is None:
            return False
        due = self.rate_limit.due(size, now)
        if due > now:
            self.run_timer.set(due)
            return True
        self.rate_limit.spend(size, now)
        return False

    def rate_limit_for(self, config: ConsumerConfig) -> RateLimit | None:
        """The largest message that may be stored is what goes out in one burst."""
        if not config.rate_limit_bps:
            return None
        limit = self.stream.config.max_msg_size
        return RateLimit(
            config.rate_limit_bps, limit if limit > 0 else self.stream.jetstream.config.max_payload
        )

    # Flow control

    def is_stalled(self) -> bool:
        """Whether the subscriber must first say that it keeps up."""
        return self.window is not None and self.window.is_full()

    def record_sent(self, window: FlowWindow, size: int) -> None:
        """Count what went out, and ask in time."""
        window.sent(size)
        if window.needs_request() or (self.acks_are_due(window) and self.is_blocked()):
            self.send_flow_request(window)

    def send_flow_request(self, window: FlowWindow) -> None:
        """Send a flow control request."""
        window.record_request(self.new_flow_subject())
        self.host.publish(self.target, window.pending_reply, status_block(FLOW_CONTROL_REQUEST), b"")

    def acks_are_due(self, window: FlowWindow) -> bool:
        """ack_policy flow_control: whether something is to be acknowledged, and no request was sent yet."""
        return (
            self.config.ack_policy == "flow_control" and not window.pending_reply and bool(self.acks.pending)
        )

    def new_flow_subject(self) -> bytes:
        names = f"{self.stream.config.name}.{self.name}.{self.stream.jetstream.new_name(4)}"
        return FLOW_CONTROL + names.encode()

    def on_flow_reply(self, subject: bytes, header_block: bytes, now: int) -> None:
        """A message on a flow control subject; an older one than the last says nothing."""
        if self.window is None or not self.window.answered(subject):
            return
        if self.config.ack_policy == "flow_control" and (taken := answered_up_to(header_block)) is not None:
            self.on_flow_acknowledged(taken, now)
        self.run_if_waiting(now)

    def on_flow_acknowledged(self, up_to: Sequences, now: int) -> None:
        """The subscriber says how far it has come; that acknowledges all of it."""
        raise NotImplementedError

    # Idle heartbeats

    def on_heartbeat_timer(self, now: int) -> None:
        """Nothing was sent for as long as idle_heartbeat, perhaps. Time goes on without a subscriber."""
        interval = self.config.idle_heartbeat
        if now >= self.last_sent + interval:
            if self.active:
                self.send_heartbeat()
            self.last_sent = now
            if self.active and self.window is not None and self.acks_are_due(self.window):
                self.send_flow_request(self.window)
        self.heartbeat_timer.set(self.last_sent + interval)

    def send_heartbeat(self) -> None:
        self.host.publish(self.target, None, self.heartbeat(), b"")

    def heartbeat(self) -> bytes:
        """The header block of an idle heartbeat; it also tells which flow control request has no answer
        yet."""
        consumer_seq, stream_seq = self.last_delivered()
        fields: list[tuple[str, int | str]] = [(LAST_CONSUMER, consumer_seq), (LAST_STREAM, stream_seq)]
        if self.window is not None and self.window.pending_reply:
            fields.append((CONSUMER_STALLED, self.window.pending_reply.decode()))
        return status_block(IDLE_HEARTBEAT, fields)

    def close(self) -> None:
        """The consumer is gone: its timers stop."""
        self.stream.jetstream.unwatch_interest(self)
        for timer in (self.heartbeat_timer, self.inactive_timer, self.ack_timer, self.run_timer):
            timer.clear()
