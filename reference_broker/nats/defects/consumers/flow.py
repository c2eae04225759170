"""Defects of idle heartbeats, flow control and rate limits. What is right: ``jetstream.push``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers, method_defect
from plumbline.reference_broker.nats.jetstream.consumers.ack import Sequences
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.flow_control import FlowWindow
from plumbline.reference_broker.nats.jetstream.consumers.pull import status_block
from plumbline.reference_broker.nats.jetstream.consumers.rate_limit import RateLimit
from plumbline.wire.nats.jetstream import FLOW_CONTROL_REQUEST, IDLE_HEARTBEAT

# Idle heartbeats


@method_defect(Consumer.send_heartbeat, "JS-CONS-079")
def push_sends_no_heartbeats(self: Consumer) -> None:
    """Push consumers ignore idle_heartbeat."""
    return


@defect("JS-CONS-079")
def push_heartbeats_come_twice_as_often(broker: Broker) -> None:
    """Push consumers send a heartbeat after half of idle_heartbeat."""

    def bound(self: Consumer, now: int) -> None:
        Consumer.on_subscribed(self, now)
        if self.config.idle_heartbeat:
            self.heartbeat_timer.set(now + self.config.idle_heartbeat // 2)

    def heartbeat_due(self: Consumer, now: int) -> None:
        self.send_heartbeat()
        self.heartbeat_timer.set(now + self.config.idle_heartbeat // 2)

    alter_consumers(broker, on_subscribed=bound, on_heartbeat_timer=heartbeat_due)


@method_defect(Consumer.heartbeat, "JS-CONS-079")
def push_heartbeat_without_sequences(self: Consumer) -> bytes:
    """Idle heartbeats of push consumers have no Nats-Last-Consumer and Nats-Last-Stream."""
    return status_block(IDLE_HEARTBEAT)


@method_defect(Consumer.last_delivered, "JS-CONS-080")
def push_heartbeat_counts_nothing(self: Consumer) -> tuple[int, int]:
    """Idle heartbeats of push consumers tell of no delivery, however many there were."""
    return Consumer.last_delivered(self) if self.config.is_pull else (0, 0)


@method_defect(Consumer.send_heartbeat, "JS-CONS-079")
def push_heartbeats_stop_at_max_ack_pending(self: Consumer) -> None:
    """While max_ack_pending holds it back, a push consumer sends no idle heartbeats."""
    if not self.is_blocked():
        Consumer.send_heartbeat(self)


# Flow control


@method_defect(Consumer.record_sent, "JS-CONS-081", "JS-CONS-082", "JS-CONS-083")
def flow_control_is_ignored(self: Consumer, window: FlowWindow, size: int) -> None:
    """Push consumers with flow_control never ask and never stop."""
    return


@method_defect(Consumer.record_sent, "JS-CONS-081")
def flow_control_request_without_reply(self: Consumer, window: FlowWindow, size: int) -> None:
    """A flow control request has no reply, so that no client can answer it."""
    window.sent(size)
    if window.needs_request():
        window.record_request(self.new_flow_subject())
        self.host.publish(self.target, None, status_block(FLOW_CONTROL_REQUEST), b"")


@method_defect(Consumer.is_stalled, "JS-CONS-082")
def flow_control_does_not_stop(self: Consumer) -> bool:
    """A push consumer whose flow control request is not answered goes on delivering."""
    return False


@method_defect(Consumer.heartbeat, "JS-CONS-082")
def flow_control_stall_is_not_told(self: Consumer) -> bytes:
    """Heartbeats of a stalled push consumer have no Nats-Consumer-Stalled."""
    asked = self.window.pending_reply if self.window is not None else b""
    return b"\r\n".join(
        line for line in Consumer.heartbeat(self).split(b"\r\n") if not asked or asked not in line
    )


@method_defect(Consumer.on_flow_reply, "JS-CONS-083")
def flow_control_answer_is_ignored(self: Consumer, subject: bytes, header_block: bytes, now: int) -> None:
    """A stalled push consumer stays so although its request is answered."""
    return


# Rate limit


@method_defect(Consumer.rate_limit_for, "JS-CONS-086")
def rate_limit_has_no_burst(self: Consumer, config: ConsumerConfig) -> RateLimit | None:
    """rate_limit_bps holds back every message but the first, however small they are."""
    return RateLimit(config.rate_limit_bps, 0) if config.rate_limit_bps else None


@method_defect(Consumer.exceeds_rate_limit, "JS-CONS-097")
def rate_limit_is_ignored(self: Consumer, size: int, now: int) -> bool:
    """Push consumers ignore rate_limit_bps."""
    return False


# ack_policy flow_control


@method_defect(Consumer.on_flow_acknowledged, "JS-CONS-100")
def flow_control_answer_acknowledges_nothing(self: Consumer, up_to: Sequences, now: int) -> None:
    """With ack_policy flow_control an answer opens the window, and acknowledges nothing."""
    return
