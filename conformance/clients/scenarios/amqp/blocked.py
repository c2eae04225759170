"""Connections that a broker short of memory or disk blocks: RabbitMQ, "Blocked Connection Notifications"."""

from __future__ import annotations

from plumbline.conformance.clients.amqp.scene import AmqpScene, method_of
from plumbline.conformance.clients.scenario import scenario
from plumbline.wire.amqp import Method

REASON = "low on memory"
CAPABILITY = "connection.blocked"


def announces(scene: AmqpScene) -> bool:
    """Whether the client has the capability in the client-properties of its connection."""
    (start,) = scene.sent_methods("connection.start-ok")
    capabilities = method_of(start).arguments["client_properties"].get("capabilities", {})
    return isinstance(capabilities, dict) and capabilities.get(CAPABILITY) is True


def block(scene: AmqpScene) -> None:
    """The broker has no memory left, and says so."""
    scene.broker.inject(Method.make("connection.blocked", 0, reason=REASON).raw)


def unblock(scene: AmqpScene) -> None:
    """The broker has memory again."""
    scene.broker.inject(Method.make("connection.unblocked", 0).raw)


@scenario("CLIENT-BLOCK-001", needs=["blocked"])
def the_capability_is_announced(scene: AmqpScene) -> None:
    """Without it the broker sends no notification."""
    scene.open()
    scene.require(
        announces(scene),
        "the broker cannot know that the client wants notifications",
        expected=f"{CAPABILITY} true in capabilities of client-properties",
        actual=scene.sent_methods("connection.start-ok")[0].operation,
    )


@scenario("CLIENT-BLOCK-002", needs=["blocked"])
def a_blocked_connection_is_reported(scene: AmqpScene) -> None:
    """connection.blocked and connection.unblocked: the user learns of each once, with the broker's reason."""
    scene.open()
    block(scene)
    scene.await_events(lambda: scene.events_named("blocked"))
    unblock(scene)
    scene.await_events(lambda: scene.events_named("unblocked"))
    heard = [(event.event, event.text) for event in scene.events_named("blocked", "unblocked")]
    scene.require(
        [name for name, _ in heard] == ["blocked", "unblocked"] and heard[0][1] == REASON,
        "the user does not hear that the connection was blocked and unblocked",
        expected=f"blocked ({REASON}), unblocked",
        actual=heard or "nothing",
    )


@scenario("CLIENT-BLOCK-003", needs=("confirm", "publish"))
def a_connection_that_was_blocked_publishes_again(scene: AmqpScene) -> None:
    """A connection is blocked, then unblocked: it stays open, and the next publish is confirmed."""
    scene.queue()
    scene.open(confirms=True)
    if announces(scene):  # only then a broker sends these
        block(scene)
        unblock(scene)
    scene.barrier()
    scene.publish(1)
    scene.expect_confirms({1: True})
