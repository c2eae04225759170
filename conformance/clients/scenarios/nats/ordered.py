"""Ordered consumers: ADR-17, "Ordered Consumer"."""

from __future__ import annotations

import json
from typing import Any

from plumbline.conformance.clients.nats.scene import STREAM, SUBJECT, NatsScene, payload_of
from plumbline.conformance.clients.scenario import scenario
from plumbline.monitors import Observation
from plumbline.wire.nats import HMsg, HPub, Pub
from plumbline.wire.nats.jetstream import API_PREFIX

HEARTBEAT_MS = 1000
MISSED_WITHIN_S = 8.0  # two heartbeats, and time for a busy machine
FLOW_CONTROL = "$JS.FC.ORDERS.ordered.x1"


def creations(scene: NatsScene) -> list[tuple[Observation, dict[str, Any]]]:
    """The consumers that the client asked for: the request, the configuration."""
    return [
        (seen, json.loads(payload_of(seen).payload)["config"])
        for seen in scene.sent_operations(Pub, HPub)
        if payload_of(seen).subject.startswith(f"{API_PREFIX}.CONSUMER.CREATE.")
    ]


def read_in_order(scene: NatsScene, *messages: str) -> None:
    """A stream with these messages, and an ordered consumer that has handed them over."""
    scene.stage.stream(STREAM, ["orders.>"])
    scene.publish(*messages)
    scene.connect()
    scene.run_command(
        "ordered", within=5.0, subscription="a", stream=STREAM, subject=SUBJECT, heartbeat_ms=HEARTBEAT_MS
    )
    scene.await_events(lambda: len(scene.messages("a")) >= len(messages))


def last_creation(scene: NatsScene) -> tuple[Observation, dict[str, Any]]:
    """Raises ``Failed`` if there is none."""
    found = creations(scene)
    if not found:
        scene.fail("no consumer was created", expected=f"{API_PREFIX}.CONSUMER.CREATE", actual="nothing")
    return found[-1]


@scenario("CLIENT-ORDERED-001", needs=["ordered"])
def its_consumer_is_ephemeral_and_without_acks(scene: NatsScene) -> None:
    """The configuration has ack_policy none and no durable name."""
    read_in_order(scene, "m1")
    request, config = last_creation(scene)
    scene.require(
        config.get("ack_policy") == "none" and not config.get("durable_name"),
        "the consumer of an ordered subscription is another one",
        expected="ack_policy none, no durable_name",
        actual={name: config.get(name) for name in ("ack_policy", "durable_name")},
        at=request,
    )


@scenario("CLIENT-ORDERED-002", needs=["ordered"])
def a_push_consumer_has_flow_control_and_heartbeats(scene: NatsScene) -> None:
    """Of a push consumer max_deliver is 1, flow_control is on, and there are heartbeats."""
    read_in_order(scene, "m1")
    request, config = last_creation(scene)
    wanted = {"max_deliver": 1, "flow_control": True, "idle_heartbeat": HEARTBEAT_MS * 1_000_000}
    scene.require(
        not config.get("deliver_subject") or {name: config.get(name) for name in wanted} == wanted,
        "the push consumer of an ordered subscription is another one",
        expected=str(wanted),
        actual={name: config.get(name) for name in wanted},
        at=request,
    )


def lose_one(scene: NatsScene) -> None:
    """m1 and m2 come, m3 is lost on its way, and m4 comes."""
    read_in_order(scene, "m1", "m2")
    scene.broker.set_faults("drop MSG on downstream")
    before = len(scene.broker.remarks)
    scene.publish("m3")
    scene.await_wire(lambda: len(scene.broker.remarks) > before)
    scene.broker.set_faults()
    scene.publish("m4")


@scenario("CLIENT-ORDERED-003", needs=["ordered"])
def all_messages_come_in_order(scene: NatsScene) -> None:
    """A message is lost on its way: the user gets it all the same, before those after it, and each once."""
    lose_one(scene)
    scene.await_events(lambda: len(scene.messages("a")) >= 4)
    data = [message.data for message in scene.messages("a")]
    scene.require(
        data == ["m1", "m2", "m3", "m4"],
        "messages of an ordered consumer are missing or out of order",
        expected="m1, m2, m3, m4",
        actual=", ".join(data),
    )


@scenario("CLIENT-ORDERED-004", needs=["ordered"])
def a_gap_makes_another_consumer(scene: NatsScene) -> None:
    """Behind a gap the library creates a consumer that starts after the last good message."""
    lose_one(scene)
    expect_start(scene, 3, within=MISSED_WITHIN_S)


@scenario("CLIENT-ORDERED-005", needs=["ordered"])
def missed_heartbeats_make_another_consumer(scene: NatsScene) -> None:
    """No heartbeat comes any more: the library creates a consumer that starts after the last good message."""
    read_in_order(scene, "m1")
    scene.broker.set_faults("drop HMSG on downstream")
    expect_start(scene, 2, within=MISSED_WITHIN_S)


def expect_start(scene: NatsScene, sequence: int, within: float) -> None:
    """Evidence: a second consumer starts at that sequence of the stream."""
    scene.await_wire(lambda: len(creations(scene)) >= 2, within)
    request, config = last_creation(scene)
    again = len(creations(scene)) >= 2
    scene.require(
        again
        and config.get("deliver_policy") == "by_start_sequence"
        and config.get("opt_start_seq") == sequence,
        "no consumer goes on after the last good message",
        expected=f"CONSUMER.CREATE with by_start_sequence, opt_start_seq {sequence}",
        actual=f"{config.get('deliver_policy')}, opt_start_seq {config.get('opt_start_seq')}"
        if again
        else "no second consumer",
        at=request,
    )


@scenario("CLIENT-ORDERED-006", needs=["ordered"])
def flow_control_of_an_ordered_consumer_is_answered(scene: NatsScene) -> None:
    """A FlowControl Request to a push consumer is answered on its reply subject."""
    read_in_order(scene, "m1")
    subject = str(last_creation(scene)[1].get("deliver_subject") or "")
    if not subject:
        scene.count_observation()  # a pull consumer has no flow control
        return
    status = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    sid = scene.sid_receiving(subject)
    scene.broker.inject(HMsg.make(subject, sid, status, reply=FLOW_CONTROL).raw)
    answered = scene.await_wire(
        lambda: any(payload_of(seen).subject == FLOW_CONTROL for seen in scene.sent_operations(Pub, HPub))
    )
    scene.require(answered, "flow control is not answered", expected=f"PUB {FLOW_CONTROL}", actual="nothing")
