"""Scenarios about push consumers, played on real servers and on the reference."""

from __future__ import annotations

from typing import Any

from plumbline.wire.nats import HMsg, HPub, Pub, Sub
from tests.reference_broker.jetstream.player import Player, Scenario, line

MS = 1_000_000
S = 1_000_000_000
DLV = 9  # the sid of the subscription to a deliver_subject


def push(p: Player, name: str = "C", **config: Any) -> None:
    """A push consumer of ``S`` to ``dlv``; what it delivers at once is for the next step."""
    p.consumer("S", name, **{"deliver_subject": "dlv", **config})


def group(p: Player, subject: str, queue: str, sid: int = DLV) -> None:
    p.write(Sub.make(subject, sid, queue))
    p.flush()


def delivery(p: Player) -> None:
    """With a subscriber, without, and with another one."""
    p.stream("S", subjects=["s.*"])
    p.publish("s.a", "m1", "m2")
    push(p)
    p.expect(0, 0.1)
    p.state("S", "C")
    p.subscribe("dlv", DLV)
    p.expect(2)
    p.api("CONSUMER.INFO.S.C")
    p.ack(0, reply="ack", expect=1)
    p.ack(1)
    p.state("S", "C")
    p.unsubscribe(DLV)
    p.wait(0.05)
    p.publish("s.a", "m3")
    p.api("CONSUMER.INFO.S.C")
    p.subscribe("dlv", DLV)
    p.expect(1)
    p.state("S", "C")
    p.pull("S", "C", {"batch": 1, "no_wait": True}, expect=1)


def wildcards_and_limits(p: Player) -> None:
    """A subscription with a wildcard binds nothing; one with UNSUB max binds for so long."""
    p.stream("S", subjects=["s.*"])
    p.publish("s.a", "m1", "m2", "m3")
    p.subscribe("dl.*", 8)
    push(p, deliver_subject="dl.v")
    p.expect(0, 0.1)
    p.state("S", "C")
    p.subscribe("dl.v", DLV, 2)
    p.expect(4)
    p.wait(0.05)
    p.api("CONSUMER.INFO.S.C")


def redelivery(p: Player) -> None:
    """ack_wait, -NAK, +TERM, max_deliver."""
    p.stream("S", subjects=["s.*"])
    p.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", 7)
    p.publish("s.a", "m1", "m2", "m3")
    p.subscribe("dlv", DLV)
    push(p, ack_wait=300 * MS, max_deliver=2)
    p.expect(3)
    p.ack(0, "-NAK")
    p.expect(1)
    p.ack(1, "+TERM")
    p.expect(1, 0.5)
    p.wait(0.6)
    p.state("S", "C")
    p.expect(0, 0.05)
    p.events()


def max_ack_pending(p: Player) -> None:
    """What is not acknowledged holds back what is new."""
    p.stream("S", subjects=["s.*"])
    p.publish("s.a", "m1", "m2", "m3", "m4")
    p.subscribe("dlv", DLV)
    push(p, max_ack_pending=2, ack_policy="all")
    p.expect(2)
    p.state("S", "C")
    p.ack(1, reply="ack", expect=3)
    p.state("S", "C")


def without_acknowledgements(p: Player) -> None:
    """ack_policy none, on streams of each retention."""
    for retention in ("limits", "interest"):
        name = f"S{retention}"
        p.stream(name, subjects=[f"{name}.*"], retention=retention)
        p.subscribe(f"dlv.{retention}", DLV)
        p.consumer(name, "C", deliver_subject=f"dlv.{retention}", ack_policy="none")
        p.publish(f"{name}.a", "m1", "m2")
        p.expect(2)
        p.state(name, "C")
        p.stream_state(name)
        p.ack(len(p.acks) - 1, reply="ack", expect=1)
        p.unsubscribe(DLV)
    p.stream("W", subjects=["w"], retention="workqueue")
    p.consumer("W", "C", deliver_subject="dlv", ack_policy="none")
    p.consumer("W", "D", deliver_subject="dlv")


def groups(p: Player) -> None:
    """Who binds a consumer with deliver_group."""
    p.stream("S", subjects=["s.*"])
    p.publish("s.a", "m1", "m2")
    p.subscribe("dlv", DLV)
    push(p, deliver_group="grp")
    p.expect(0, 0.1)
    group(p, "dlv", "other", 8)
    p.expect(0, 0.1)
    p.api("CONSUMER.INFO.S.C")
    p.unsubscribe(DLV)
    p.unsubscribe(8)
    group(p, "dlv", "grp")
    p.expect(2)
    p.api("CONSUMER.INFO.S.C")
    p.unsubscribe(DLV)
    p.stream("T", subjects=["t"])
    p.publish("t", "m1")
    group(p, "plain", "grp")
    p.consumer("T", "C", deliver_subject="plain")
    p.expect(0, 0.1)
    p.api("CONSUMER.INFO.T.C")


def updates(p: Player) -> None:
    """Another deliver_subject, with and without a subscriber."""
    p.stream("S", subjects=["s.*"])
    p.publish("s.a", "m1", "m2")
    p.subscribe("dlv", DLV)
    push(p)
    p.expect(2)
    push(p, deliver_subject="new")
    push(p, idle_heartbeat=S)
    push(p, flow_control=True, idle_heartbeat=S)
    push(p, deliver_subject="")
    push(p, description="same")
    p.unsubscribe(DLV)
    p.wait(0.05)
    push(p, deliver_subject="new")
    p.subscribe("new", DLV)
    p.expect(2)
    p.state("S", "C")


def heartbeats(p: Player) -> None:
    """The heartbeats of a consumer with a filter."""
    p.stream("S", subjects=["s.*"])
    p.subscribe("dlv", DLV)
    push(p, idle_heartbeat=300 * MS, filter_subject="s.a")
    p.expect(1, 0.6)
    p.publish("s.a", "m1")
    p.expect(1)
    p.publish("s.b", "m2")
    p.expect(1, 0.6)
    p.publish("s.a", "m3", headers=[("A", "1")])
    p.expect(2, 0.6)
    p.api("CONSUMER.DELETE.S.C")


def flow(p: Player) -> None:
    """How much comes before the request, before the stall, and after an answer."""
    p.stream("S", subjects=["s.*"])
    payload = b"x" * 60_000
    for _ in range(100):
        p.write(Pub.make("s.a", payload))
    p.flush()
    p.subscribe("dlv", DLV)
    push(p, flow_control=True, idle_heartbeat=60 * S, ack_policy="none")
    asked = ""
    for _ in range(3):
        came = p.take_until_quiet(0.3)
        statuses = [one for one in came if isinstance(one, HMsg)]
        p.log += [f"{came.index(one)}: {line(one)}" for one in statuses] + [f"{len(came)} came"]
        asked = next((one.reply for one in statuses if one.reply), None) or asked
        p.write(Pub.make("$JS.FC.S.C.nope"))
        p.flush()
        p.log.append(f"{len(p.take(1, 0.05))} came")
        p.write(Pub.make(asked))
    p.request("$JS.FC.S.C.nope")
    p.request("$JS.FC.S.D.nope")
    p.request("$JS.FC.S")
    p.state("S", "C")


def flow_acknowledges(p: Player) -> None:
    """ack_policy flow_control."""
    p.stream("S", subjects=["s.*"])
    push(p, ack_policy="flow_control", deliver_subject="")
    push(p, ack_policy="flow_control", ack_wait=S)
    push(p, ack_policy="flow_control", backoff=[S])
    push(p, ack_policy="flow_control", max_deliver=3)
    p.publish("s.a", "m1", "m2", "m3")
    p.subscribe("dlv", DLV)
    push(p, ack_policy="flow_control", max_ack_pending=2)
    if '"error"' in p.log[-1]:
        return
    came = p.take(3)
    p.log += [line(one) for one in came]
    for request in (one for one in came if isinstance(one, HMsg)):
        headers = [("Nats-Last-Consumer", "2"), ("Nats-Last-Stream", "2")]
        p.write(HPub.make(request.reply or "", headers, b""))
    p.expect(1)
    p.state("S", "C")


def ephemeral(p: Player) -> None:
    """Without a name, with a name; before and after its subscriber."""
    p.stream("S", subjects=["s.*"])
    p.publish("s.a", "m1", "m2")
    config = {"deliver_subject": "dlv", "name": "E", "deliver_policy": "last", "inactive_threshold": 300 * MS}
    p.api("CONSUMER.CREATE.S.E", {"stream_name": "S", "config": config})
    p.subscribe("dlv", DLV)
    p.expect(1)
    p.wait(0.6)
    p.api("CONSUMER.INFO.S.E")
    p.unsubscribe(DLV)
    p.wait(0.8)
    p.api("CONSUMER.INFO.S.E")


def pauses(p: Player) -> None:
    """pause_until at creation. How a pause ends is not compared: servers wait for the next message."""
    p.stream("S", subjects=["s.*"])
    p.publish("s.a", "m1")
    p.subscribe("dlv", DLV)
    push(p, pause_until="2099-01-01T00:00:00Z")
    p.expect(0, 0.1)
    p.api("CONSUMER.INFO.S.C")


def contents(p: Player) -> None:
    """headers_only, replay and start positions by push."""
    p.stream("S", subjects=["s.*"])
    p.publish("s.a", "m1", headers=[("A", "1")])
    p.publish("s.b", "m2")
    p.publish("s.a", "m3")
    p.subscribe("dlv", DLV)
    push(p, headers_only=True)
    p.expect(3)
    p.api("CONSUMER.DELETE.S.C")
    push(p, "D", deliver_policy="last_per_subject", filter_subject="s.*", ack_policy="none")
    p.expect(2)
    p.state("S", "D")
    p.api("CONSUMER.DELETE.S.D")
    push(p, "E", deliver_policy="by_start_sequence", opt_start_seq=2, rate_limit_bps=800)
    p.expect(2)
    p.api("CONSUMER.DELETE.S.E")
    push(p, "F", deliver_policy="new", replay_policy="original")
    p.publish("s.c", "m4")
    p.expect(1)


SCENARIOS: list[Scenario] = [
    delivery,
    wildcards_and_limits,
    redelivery,
    max_ack_pending,
    without_acknowledgements,
    groups,
    updates,
    heartbeats,
    flow,
    flow_acknowledges,
    ephemeral,
    pauses,
    contents,
]
