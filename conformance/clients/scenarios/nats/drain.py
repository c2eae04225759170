"""Draining a connection: docs.nats.io, "Draining Messages Before Disconnect"."""

from __future__ import annotations

from plumbline.conformance.clients.nats.outages import has_closed, published, send
from plumbline.conformance.clients.nats.scene import NatsScene
from plumbline.conformance.clients.scenario import scenario
from plumbline.wire.nats import Unsub

DRAINS_WITHIN_S = 10.0
LATE = "delay 300ms MSG on downstream"  # in flight when the client sends UNSUB
LATER = "delay 450ms MSG on downstream the 2nd"  # in another segment than the first


@scenario("CLIENT-CONN-018", needs=["drain", "subscribe"])
def a_drain_ends_subscriptions(scene: NatsScene) -> None:
    """Each of two subscriptions ends with UNSUB."""
    scene.connect()
    for name in ("orders.>", "tasks.>"):
        scene.run_command("subscribe", subscription=name, subject=name, queue="workers")
    scene.run_command("flush")
    sids = {scene.sid_of(name) for name in ("orders.>", "tasks.>")}
    scene.try_command("drain", within=DRAINS_WITHIN_S)
    scene.await_wire(lambda: sids <= unsubscribed(scene))
    scene.require(
        sids <= unsubscribed(scene),
        "a subscription is not ended",
        expected=f"UNSUB of {', '.join(sorted(sids))}",
        actual=sorted(unsubscribed(scene)),
    )


@scenario("CLIENT-CONN-019", needs=["drain", "subscribe"], faults=[LATE, LATER])
def a_drain_loses_no_message(scene: NatsScene) -> None:
    """Three messages that are on their way, not all in one read, are handed over before the end."""
    scene.connect()
    scene.run_command("subscribe", subscription="a", subject="orders.>")
    scene.run_command("flush")
    send(scene, "orders.new", "m1", "m2", "m3")
    scene.try_command("drain", within=DRAINS_WITHIN_S)
    scene.await_events(lambda: len(scene.messages("a")) >= 3)
    data = [message.data for message in scene.messages("a")]
    scene.require(data == ["m1", "m2", "m3"], "messages are lost", expected="m1, m2, m3", actual=data)


@scenario("CLIENT-CONN-020", needs=["drain", "publish"])
def a_drain_sends_and_closes(scene: NatsScene) -> None:
    """What was published before is sent, then the client closes the connection."""
    scene.connect()
    scene.run_command("flush")
    expected = [f"m{number}" for number in range(1, 21)]
    for data in expected:
        scene.run_command("publish", subject="orders.new", data=data)
    scene.try_command("drain", within=DRAINS_WITHIN_S)
    ended = scene.await_wire(lambda: has_closed(scene))
    scene.require(ended, "the connection stays open", expected="the client closes it", actual="it is open")
    found = published(scene, "orders.new")
    scene.require(
        found == expected, "publishes are lost", expected="20 messages", actual=f"{len(found)}: {found}"
    )


def unsubscribed(scene: NatsScene) -> set[str]:
    """The sids that the client has ended."""
    operations = [seen.operation for seen in scene.sent_operations(Unsub)]
    return {one.sid for one in operations if isinstance(one, Unsub)}
