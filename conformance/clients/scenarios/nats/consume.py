"""Consuming without end: ADR-37, "Consume specification"."""

from __future__ import annotations

from plumbline.conformance.clients.nats.scene import CONSUMER, STREAM, NatsScene
from plumbline.conformance.clients.scenario import scenario
from plumbline.conformance.outcomes import Failed
from plumbline.wire.units import SECOND

HEARTBEATS_MISSED_S = 5.0  # of one each second: twice that, and 3 s for a busy machine


@scenario("CLIENT-CONSUME-001", needs=["consume"])
def missed_heartbeats_are_told(scene: NatsScene) -> None:
    """A client that receives no heartbeat for twice the interval tells its user before the request ends.

    There is none from the beginning: the silence begins when the message passes on the wire, however long the
    client takes to begin.
    """
    scene.broker.set_faults("drop HMSG on downstream")
    _consume(scene, "m1", expires_ms=30_000, heartbeat_ms=1000)
    scene.await_events(lambda: scene.messages("a"))
    delivered = next(iter(scene.deliveries()), None)
    if delivered is None:
        raise Failed("nothing is asked for", expected="a request, and a message", actual="no message")
    scene.await_events(lambda: scene.events_named("error", "ended"), HEARTBEATS_MISSED_S)
    latest = delivered.at + HEARTBEATS_MISSED_S * SECOND
    events = zip(scene.client.events, scene.client.event_times, strict=True)
    scene.require(
        any(event.event in ("error", "ended") and at <= latest for event, at in events),
        "missed heartbeats are not noticed",
        expected=f"an error within {HEARTBEATS_MISSED_S:.0f} s",
        actual="nothing",
        at=delivered,
    )


@scenario("CLIENT-CONSUME-002", needs=["consume"])
def the_next_request_follows_the_last(scene: NatsScene) -> None:
    """When a request expires another is sent; messages go on to come, and statuses are not among them."""
    _consume(scene, "m1", expires_ms=1000, heartbeat_ms=500)
    went_on = scene.await_wire(lambda: len(scene.pulls()) >= 2 and scene.statuses(408))
    scene.require(went_on, "nothing more is asked for", expected="another request", actual="none")
    scene.publish("m2")
    scene.await_events(lambda: len(scene.messages("a")) >= 2)
    data = [message.data for message in scene.messages("a")]
    scene.require(data == ["m1", "m2"], "other messages", expected="['m1', 'm2']", actual=data)


@scenario("CLIENT-CONSUME-003", needs=["consume"])
def a_deleted_consumer_ends_it(scene: NatsScene) -> None:
    """409 Consumer Deleted is reported to the user."""
    _consume(scene, expires_ms=30_000, heartbeat_ms=1000)
    scene.stage.await_consumer(STREAM, CONSUMER, num_waiting=1)
    scene.stage.api("CONSUMER.DELETE", STREAM, CONSUMER)
    reported = scene.await_events(lambda: scene.events_named("error", "ended"))
    scene.require(
        reported, "nothing is reported to the user", expected="an error, or the end", actual="nothing"
    )


@scenario("CLIENT-CONSUME-004", needs=["consume"])
def nothing_is_asked_for_after_stop(scene: NatsScene) -> None:
    """After stop no more requests are sent and nothing more is handed over."""
    _consume(scene, "m1", expires_ms=1000, heartbeat_ms=500)
    scene.await_events(lambda: scene.messages("a"))
    scene.run_command("stop", subscription="a", within=5.0)
    scene.run_command("flush")
    asked = len(scene.pulls())
    scene.publish("m2")
    scene.await_wire(lambda: len(scene.pulls()) > asked, 1.5)
    data = [message.data for message in scene.messages("a")]
    scene.require(
        len(scene.pulls()) == asked and data == ["m1"],
        "it goes on after stop",
        expected="no request and no message",
        actual=f"{len(scene.pulls()) - asked} requests, messages {data}",
    )


def _consume(scene: NatsScene, *messages: str, **fields: int) -> None:
    scene.orders(*messages)
    scene.run_command(
        "consume", subscription="a", stream=STREAM, consumer=CONSUMER, batch=10, within=5.0, **fields
    )
