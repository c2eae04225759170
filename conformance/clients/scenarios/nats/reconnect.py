"""Lost connections: ADR-40, "Reconnect process" and "Disconnect buffer"."""

from __future__ import annotations

from plumbline.conformance.clients.nats.outages import (
    RECONNECT_WAIT_MS,
    connect_to_stay,
    connections,
    cut_off,
    lose_connection,
    published,
    require_reconnected,
    send,
    settle,
    subscribed,
)
from plumbline.conformance.clients.nats.scene import NatsScene
from plumbline.conformance.clients.scenario import scenario
from plumbline.wire.nats import Unsub

ATTEMPTS_S = 1.0  # how long attempts to reconnect are counted
BUFFER_BYTES = 2000
LARGE = "x" * 200  # of which the buffer takes less than ten


@scenario("CLIENT-CONN-001", needs=["reconnect"])
def a_closed_connection_is_made_again(scene: NatsScene) -> None:
    """The server closes the connection, and the client connects again."""
    connect_to_stay(scene)
    scene.broker.close_connections()
    require_reconnected(scene)


@scenario("CLIENT-CONN-001", needs=["reconnect"])
def a_reset_connection_is_made_again(scene: NatsScene) -> None:
    """The connection is reset, and the client connects again."""
    connect_to_stay(scene)
    lose_connection(scene)


@scenario("CLIENT-CONN-002", needs=["reconnect", "subscribe"])
def subscriptions_come_back_once(scene: NatsScene) -> None:
    """After a reconnect both subjects are subscribed once, and a message is handed over once."""
    connect_to_stay(scene)
    scene.run_command("subscribe", subscription="a", subject="orders.>")
    scene.run_command("subscribe", subscription="fence", subject="fence")
    scene.run_command("flush")
    connection = lose_connection(scene)
    found = sorted(subject for subject, _ in subscribed(scene, connection))
    expected = ["fence", "orders.>"]
    scene.require(found == expected, "not what was subscribed", expected=str(expected), actual=found)
    send(scene, "orders.new", "one")
    send(scene, "fence", "end")
    scene.await_events(lambda: scene.messages("fence") and scene.messages("a"))  # in either order
    data = [message.data for message in scene.messages("a")]
    scene.require(data == ["one"], "not the message that came", expected="['one']", actual=data)


@scenario("CLIENT-CONN-003", needs=["reconnect", "subscribe"])
def a_queue_group_comes_back(scene: NatsScene) -> None:
    """After a reconnect the subscription is in its queue group again."""
    connect_to_stay(scene)
    scene.run_command("subscribe", subscription="a", subject="orders.>", queue="workers")
    scene.run_command("flush")
    connection = lose_connection(scene)
    found = [group for subject, group in subscribed(scene, connection) if subject == "orders.>"]
    scene.require(
        set(found) == {"workers"}, "another queue group", expected="SUB orders.> workers", actual=found
    )


@scenario("CLIENT-CONN-004", needs=["reconnect", "subscribe"])
def what_was_unsubscribed_does_not_come_back(scene: NatsScene) -> None:
    """After a reconnect nothing is subscribed that the user has ended."""
    connect_to_stay(scene)
    scene.run_command("subscribe", subscription="a", subject="orders.>")
    scene.run_command("subscribe", subscription="fence", subject="fence")
    scene.run_command("unsubscribe", subscription="a")
    scene.run_command("flush")
    connection = lose_connection(scene)
    found = [subject for subject, _ in subscribed(scene, connection) if subject == "orders.>"]
    scene.require(not found, "an ended subscription comes back", expected="no SUB orders.>", actual=found)


@scenario("CLIENT-CONN-005", needs=["reconnect", "subscribe", "unsubscribe.after"])
def the_rest_of_a_limited_subscription(scene: NatsScene) -> None:
    """Three messages are wanted and one has come: after a reconnect two more are handed over."""
    interrupt_limited(scene)
    send(scene, "orders.new", "m2", "m3", "m4")
    send(scene, "fence", "end")
    scene.await_events(lambda: scene.messages("fence") and len(scene.messages("a")) >= 3)
    data = [message.data for message in scene.messages("a")]
    scene.require(data == ["m1", "m2", "m3"], "other messages", expected="m1, m2, m3", actual=data)


@scenario("CLIENT-CONN-030", needs=["reconnect", "subscribe", "unsubscribe.after"])
def the_server_knows_the_rest(scene: NatsScene) -> None:
    """Three messages are wanted and one has come: after a reconnect UNSUB has 2."""
    connection = interrupt_limited(scene)
    unsubs = [
        seen.operation.max_msgs
        for seen in scene.sent_operations(Unsub)
        if seen.connection == connection and isinstance(seen.operation, Unsub)
    ]
    scene.require(2 in unsubs, "another maximum after the reconnect", expected="UNSUB sid 2", actual=unsubs)


def interrupt_limited(scene: NatsScene) -> str:
    """Wants three messages, gets one, and loses the connection. The name of the next one."""
    connect_to_stay(scene)
    scene.run_command("subscribe", subscription="a", subject="orders.new")
    scene.run_command("subscribe", subscription="fence", subject="fence")
    scene.run_command("unsubscribe", subscription="a", after=3)
    scene.run_command("flush")
    send(scene, "orders.new", "m1")
    scene.await_events(lambda: scene.messages("a"))
    return lose_connection(scene)


@scenario("CLIENT-CONN-006", needs=["reconnect"])
def the_user_learns_of_it(scene: NatsScene) -> None:
    """The loss of the connection and the reconnect are reported, in this order."""
    connect_to_stay(scene)
    lose_connection(scene)
    scene.await_events(lambda: scene.events_named("reconnected"))
    found = [event.event for event in scene.events_named("disconnected", "reconnected")]
    scene.require(
        found == ["disconnected", "reconnected"],
        "the user does not learn of it",
        expected="disconnected, reconnected",
        actual=found,
    )


@scenario("CLIENT-CONN-007", needs=["reconnect", "publish"])
def publishes_wait_for_the_connection(scene: NatsScene) -> None:
    """Three publishes without a connection: what did not fail is sent after the reconnect, in order."""
    connect_to_stay(scene)
    cut_off(scene)
    accepted = publish_all(scene, [f"m{number}" for number in range(1, 4)])
    scene.broker.accept_connections()
    require_reconnected(scene)
    require_sent(scene, accepted)


@scenario("CLIENT-CONN-008", needs=["reconnect", "reconnect.buffer", "publish"])
def the_buffer_has_a_limit(scene: NatsScene) -> None:
    """A buffer of 2,000 bytes does not take 20 messages of 200; what it took is sent after the reconnect."""
    connect_to_stay(scene, buffer_bytes=BUFFER_BYTES)
    cut_off(scene)
    payloads = [f"{number:02}{LARGE}" for number in range(20)]
    accepted = publish_all(scene, payloads)
    scene.require(
        len(accepted) < len(payloads),
        "more is buffered than the limit",
        expected=f"an error after {BUFFER_BYTES} bytes",
        actual=f"{sum(map(len, accepted))} bytes without an error",
    )
    scene.broker.accept_connections()
    require_reconnected(scene)
    require_sent(scene, accepted)


@scenario("CLIENT-CONN-027", needs=["reconnect"])
def attempts_are_not_made_all_the_time(scene: NatsScene) -> None:
    """While the server refuses connections, attempts are as far apart as the user wants."""
    connect_to_stay(scene)
    cut_off(scene)

    def attempts() -> int:
        return sum(remark.connection == "refused" for remark in scene.broker.remarks)

    most = 2 * int(ATTEMPTS_S * 1000 / RECONNECT_WAIT_MS)
    scene.await_wire(lambda: attempts() > most, ATTEMPTS_S)
    count = attempts()
    scene.broker.accept_connections()
    scene.require(
        count <= most,
        "it tries all the time",
        expected=f"at most {most} attempts in {ATTEMPTS_S:g} s, {RECONNECT_WAIT_MS} ms apart",
        actual=f"{count} attempts",
    )
    scene.await_wire(lambda: len(connections(scene)) > 1)
    settle(scene)


def publish_all(scene: NatsScene, payloads: list[str]) -> list[str]:
    """Publish these; those that were not answered with an error."""
    return [
        payload
        for payload in payloads
        if scene.try_command("publish", subject="orders.new", data=payload).error is None
    ]


def require_sent(scene: NatsScene, accepted: list[str]) -> None:
    """Evidence: exactly what was accepted was sent, in its order."""
    scene.await_wire(lambda: len(published(scene, "orders.new")) >= len(accepted))
    found = published(scene, "orders.new")
    scene.require(
        found == accepted,
        "other messages are sent than were accepted",
        expected=f"{len(accepted)} messages: {brief(accepted)}",
        actual=f"{len(found)} messages: {brief(found)}",
    )


def brief(payloads: list[str]) -> str:
    """Their first two characters."""
    return ", ".join(payload[:2] for payload in payloads)
