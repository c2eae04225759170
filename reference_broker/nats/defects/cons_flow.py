"""Defects of idle heartbeats, flow control and rate limits. What is right: ``jetstream.push``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import alter_consumers, jetstream_defect
from plumbline.reference_broker.nats.jetstream.consumers.ack import SequencePair
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.flow_control import Window
from plumbline.reference_broker.nats.jetstream.consumers.pull import status_block
from plumbline.reference_broker.nats.jetstream.consumers.rate_limit import RateLimit
from plumbline.wire.nats.jetstream import FLOW_CONTROL_REQUEST, IDLE_HEARTBEAT

# Idle heartbeats


@jetstream_defect(
    "push-sends-no-heartbeats",
    breaks=("JS-CONS-079",),
    summary="Push consumers ignore idle_heartbeat.",
)
def _(broker: Broker) -> None:
    def send_heartbeat(self: Consumer) -> None:
        return

    alter_consumers(broker, send_heartbeat=send_heartbeat)


@jetstream_defect(
    "push-heartbeats-come-twice-as-often",
    breaks=("JS-CONS-079",),
    summary="Push consumers send a heartbeat after half of idle_heartbeat.",
)
def _(broker: Broker) -> None:
    def bound(self: Consumer, now: int) -> None:
        Consumer.bound(self, now)
        if self.config.idle_heartbeat:
            self.heartbeat_timer.set(now + self.config.idle_heartbeat // 2)

    def heartbeat_due(self: Consumer, now: int) -> None:
        self.send_heartbeat()
        self.heartbeat_timer.set(now + self.config.idle_heartbeat // 2)

    alter_consumers(broker, bound=bound, heartbeat_due=heartbeat_due)


@jetstream_defect(
    "push-heartbeat-without-sequences",
    breaks=("JS-CONS-079",),
    summary="Idle heartbeats of push consumers have no Nats-Last-Consumer and Nats-Last-Stream.",
)
def _(broker: Broker) -> None:
    def heartbeat(self: Consumer) -> bytes:
        return status_block(IDLE_HEARTBEAT)

    alter_consumers(broker, heartbeat=heartbeat)


@jetstream_defect(
    "push-heartbeat-counts-nothing",
    breaks=("JS-CONS-080",),
    summary="Idle heartbeats of push consumers tell of no delivery, however many there were.",
)
def _(broker: Broker) -> None:
    def last_delivered(self: Consumer) -> tuple[int, int]:
        return Consumer.last_delivered(self) if self.config.is_pull else (0, 0)

    alter_consumers(broker, last_delivered=last_delivered)


# Flow control


@jetstream_defect(
    "flow-control-is-ignored",
    breaks=("JS-CONS-081", "JS-CONS-082", "JS-CONS-083"),
    summary="Push consumers with flow_control never ask and never stop.",
)
def _(broker: Broker) -> None:
    def flowed(self: Consumer, window: Window, size: int) -> None:
        return

    alter_consumers(broker, flowed=flowed)


@jetstream_defect(
    "flow-control-request-without-reply",
    breaks=("JS-CONS-081",),
    summary="A flow control request has no reply, so that nobody can answer it.",
)
def _(broker: Broker) -> None:
    def flowed(self: Consumer, window: Window, size: int) -> None:
        window.sent(size)
        if window.wants_answer():
            window.ask(self.new_flow_subject())
            self.host.publish(self.target, None, status_block(FLOW_CONTROL_REQUEST), b"")

    alter_consumers(broker, flowed=flowed)


@jetstream_defect(
    "flow-control-does-not-stop",
    breaks=("JS-CONS-082",),
    summary="A push consumer whose flow control request is not answered goes on delivering.",
)
def _(broker: Broker) -> None:
    def is_stalled(self: Consumer) -> bool:
        return False

    alter_consumers(broker, is_stalled=is_stalled)


@jetstream_defect(
    "flow-control-stall-is-not-told",
    breaks=("JS-CONS-082",),
    summary="Heartbeats of a stalled push consumer have no Nats-Consumer-Stalled.",
)
def _(broker: Broker) -> None:
    def heartbeat(self: Consumer) -> bytes:
        asked = self.window.asked if self.window is not None else b""
        return b"\r\n".join(
            line for line in Consumer.heartbeat(self).split(b"\r\n") if not asked or asked not in line
        )

    alter_consumers(broker, heartbeat=heartbeat)


@jetstream_defect(
    "flow-control-answer-is-ignored",
    breaks=("JS-CONS-083",),
    summary="A stalled push consumer stays so although its request is answered.",
)
def _(broker: Broker) -> None:
    def flow_answered(self: Consumer, subject: bytes, header_block: bytes, now: int) -> None:
        return

    alter_consumers(broker, flow_answered=flow_answered)


# Rate limit


@jetstream_defect(
    "rate-limit-has-no-burst",
    breaks=("JS-CONS-086",),
    summary="rate_limit_bps holds back every message but the first, however small they are.",
)
def _(broker: Broker) -> None:
    def limit_of(self: Consumer, config: ConsumerConfig) -> RateLimit | None:
        return RateLimit(config.rate_limit_bps, 0) if config.rate_limit_bps else None

    alter_consumers(broker, limit_of=limit_of)


@jetstream_defect(
    "rate-limit-is-ignored",
    breaks=("JS-CONS-097",),
    summary="Push consumers ignore rate_limit_bps.",
)
def _(broker: Broker) -> None:
    def is_too_fast(self: Consumer, size: int, now: int) -> bool:
        return False

    alter_consumers(broker, is_too_fast=is_too_fast)


# ack_policy flow_control


@jetstream_defect(
    "flow-control-answer-acknowledges-nothing",
    breaks=("JS-CONS-100",),
    summary="With ack_policy flow_control an answer opens the window, and acknowledges nothing.",
)
def _(broker: Broker) -> None:
    def taken(self: Consumer, up_to: SequencePair, now: int) -> None:
        return

    alter_consumers(broker, taken=taken)
