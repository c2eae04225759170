"""Libraries that connect again by themselves: RabbitMQ, "Java Client API Guide", "Automatic Recovery From
Network Failures"; "Detecting Dead TCP Connections with Heartbeats and TCP Keepalives"."""

from __future__ import annotations

from typing import Any

from plumbline.conformance.clients.amqp.scene import (
    LOST_WITHIN_S,
    QUEUE,
    AmqpScene,
    describe_observations,
    method_of,
)
from plumbline.conformance.clients.scenario import scenario
from plumbline.wire.amqp import Heartbeat

RECOVERED_WITHIN_S = 10.0
HEARTBEAT_S = 1
IDLE_S = 4.0
QUIET_S = 1.5  # several times the pause of an adapter between two attempts to connect
# Until a library has noticed that it was refused, which no event shows; far within that pause.
NOTICED_WITHIN_S = 0.05
TEMPORARY = "temporary"
EVENTS = "events"
TOPOLOGY = ("exchange.declare", "queue.declare", "queue.bind", "basic.consume")


def last_connection(scene: AmqpScene) -> str:
    """The connection that the client opened last."""
    opened = scene.sent_methods("connection.open")
    return opened[-1].connection if opened else ""


def sent_last(scene: AmqpScene, *names: str) -> list[str]:
    """The methods of these names that the client sent on its last connection."""
    last = last_connection(scene)
    return [method_of(seen).method for seen in scene.sent_methods(*names) if seen.connection == last]


def await_new_connection(scene: AmqpScene, before: str, *names: str) -> None:
    """Evidence: there is another connection than ``before``, and it has sent these methods."""
    recovered = scene.await_wire(
        lambda: last_connection(scene) != before and set(names) <= set(sent_last(scene, *names)),
        RECOVERED_WITHIN_S,
    )
    scene.require(
        recovered,
        "the connection was not taken up again as it was",
        expected=" and ".join(("a new connection", *names)),
        actual=describe_observations(
            [seen for seen in scene.sent_methods("connection.open", *names) if seen.connection != before]
        ),
    )
    scene.await_events(lambda: scene.events_named("reconnected"), LOST_WITHIN_S)


def lose(scene: AmqpScene, *names: str) -> None:
    """The connection is reset; the library has another, and has sent these methods on it."""
    before = last_connection(scene)
    scene.broker.reset_connections()
    await_new_connection(scene, before, *names)


def await_confirms_again(scene: AmqpScene) -> None:
    """Returns once confirms are switched on again; some libraries do so when they next publish."""
    scene.await_wire(lambda: sent_last(scene, "confirm.select"), LOST_WITHIN_S)


def expect_message(scene: AmqpScene) -> None:
    """Evidence: the application is handed the one message that was published after the loss."""
    scene.await_events(lambda: scene.messages("s"))
    handed = [message.data for message in scene.messages("s")]
    scene.require(
        handed == ["after"],
        "the consumer gets nothing any more",
        expected="after",
        actual=handed or "nothing",
    )


@scenario("CLIENT-LOSS-006", needs=("reconnect.topology", "declare", "consume"))
def queues_are_declared_again(scene: AmqpScene) -> None:
    """An exclusive queue is gone with its connection: it is declared again, and consumed from."""
    scene.open(reconnect=True)
    scene.run_command("declare", channel=1, queue=TEMPORARY, exclusive=True)
    scene.consume(queue=TEMPORARY)
    lose(scene, "queue.declare", "basic.consume")
    scene.await_wire(lambda: len(scene.received_methods("basic.consume-ok")) == 2)
    scene.stage.publish(TEMPORARY, b"after")
    expect_message(scene)


@scenario("CLIENT-LOSS-007", needs=("reconnect.topology", "declare", "bind", "consume"))
def exchanges_and_bindings_are_declared_again(scene: AmqpScene) -> None:
    """An exchange that deletes itself and the binding of an exclusive queue: both are there again."""
    scene.open(reconnect=True)
    scene.run_command("exchange", channel=1, exchange=EVENTS, type="direct", auto_delete=True)
    scene.run_command("declare", channel=1, queue=TEMPORARY, exclusive=True)
    scene.run_command("bind", channel=1, queue=TEMPORARY, exchange=EVENTS, routing_key="key")
    scene.consume(queue=TEMPORARY)
    lose(scene, *TOPOLOGY)
    scene.await_wire(lambda: len(scene.received_methods("basic.consume-ok")) == 2)
    scene.stage.publish("key", b"after", exchange=EVENTS)
    expect_message(scene)


@scenario("CLIENT-LOSS-008", needs=("reconnect", "confirm", "publish"))
def confirms_are_switched_on_again(scene: AmqpScene) -> None:
    """A publish of the next connection is confirmed by its own tag, which is 1 again."""
    scene.queue()
    scene.open(reconnect=True, confirms=True)
    scene.publish(1)
    scene.expect_confirms({1: True})
    lose(scene)
    await_confirms_again(scene)
    scene.publish(2)
    scene.expect_confirms({1: True, 2: True})


@scenario("CLIENT-LOSS-009", needs=("reconnect", "confirm", "publish"), faults=("drop basic.ack",))
def a_lost_publish_is_not_confirmed_by_the_next_connection(scene: AmqpScene) -> None:
    """Its confirm never came; the confirm of tag 1 on the next connection is for another publish."""
    scene.queue()
    scene.open(reconnect=True, confirms=True)
    before = last_connection(scene)
    lost: list[bool] = []

    def reset() -> None:
        lost.append(True)
        scene.broker.reset_connections()
        scene.broker.set_faults()

    with scene.act_during(scene.publishes, reset):
        asked: dict[str, Any] = {"exchange": "", "routing_key": QUEUE, "data": "message-1"}
        scene.try_command("publish", within=LOST_WITHIN_S, channel=1, publish=1, **asked)
    if not lost:
        reset()
    await_new_connection(scene, before)
    await_confirms_again(scene)
    scene.await_events(lambda: 1 in scene.confirms(), LOST_WITHIN_S)
    if scene.confirms().get(1) == [True]:  # some libraries publish again what was not confirmed
        scene.expect_no_confirm_ahead()
        return
    scene.publish(2)
    scene.expect_confirms({1: False, 2: True})


def settle_stale(scene: AmqpScene, command: str) -> None:
    """Two deliveries come again after a loss; the second of the lost connection is settled, then nothing but
    the first of the new one may be."""
    scene.queue("a", "b")
    scene.open(reconnect=True)
    scene.consume("a", "b")
    lose(scene, "basic.consume")
    scene.await_messages("s", "a", "b", "a", "b")
    messages = scene.messages("s")
    scene.try_command(command, ref=messages[1].ref)
    scene.run_command("ack", ref=messages[2].ref)
    scene.barrier()
    last = last_connection(scene)
    settled = [seen for seen in scene.settlements() if seen.connection == last]
    scene.require(
        [method_of(seen).method for seen in settled] == ["basic.ack"],
        f"{command} of a delivery of the lost connection was sent on the next one",
        expected="basic.ack of the delivery that came again",
        actual=describe_observations(settled),
        at=settled[0] if settled else None,
    )


@scenario("CLIENT-LOSS-010", needs=("reconnect", "consume", "ack", "nack"))
def a_delivery_of_a_lost_connection_is_not_nacked_on_another(scene: AmqpScene) -> None:
    """basic.nack of an old delivery is refused or does nothing."""
    settle_stale(scene, "nack")


@scenario("CLIENT-LOSS-010", needs=("reconnect", "consume", "ack", "reject"))
def a_delivery_of_a_lost_connection_is_not_rejected_on_another(scene: AmqpScene) -> None:
    """basic.reject of an old delivery is refused or does nothing."""
    settle_stale(scene, "reject")


@scenario("CLIENT-LOSS-011", needs=["reconnect"])
def a_connection_that_its_user_closes_stays_closed(scene: AmqpScene) -> None:
    """close, then no other connection."""
    scene.open(reconnect=True)
    scene.run_command("close")
    scene.await_wire(lambda: len(scene.sent_methods("connection.open")) > 1, QUIET_S)
    again = scene.sent_methods("connection.open")[1:]
    scene.require(
        not again,
        "the library connected again after its user had closed the connection",
        expected="no connection",
        actual=describe_observations(again),
        at=again[0] if again else None,
    )


@scenario("CLIENT-LOSS-012", needs=["reconnect"])
def connecting_is_tried_until_it_succeeds(scene: AmqpScene) -> None:
    """Two attempts are refused, a later one is not."""
    scene.open(reconnect=True)
    before = last_connection(scene)
    scene.broker.refuse_connections()
    scene.broker.reset_connections()
    scene.await_wire(lambda: refusals(scene) >= 2, RECOVERED_WITHIN_S)
    scene.broker.accept_connections()
    await_new_connection(scene, before)


def refusals(scene: AmqpScene) -> int:
    """How often the client was refused."""
    return sum(remark.connection == "refused" for remark in scene.broker.remarks)


@scenario("CLIENT-LOSS-013", needs=["reconnect"], heartbeat=HEARTBEAT_S)
def a_silent_connection_is_replaced(scene: AmqpScene) -> None:
    """No byte comes any more, and no heartbeat: the library connects again."""
    connect_with_heartbeat(scene, reconnect=True)
    before = last_connection(scene)
    scene.broker.silence_connections()
    await_new_connection(scene, before)


def connect_with_heartbeat(scene: AmqpScene, **fields: Any) -> None:
    """Both sides want a heartbeat each second; one channel."""
    scene.connect(within=LOST_WITHIN_S, query=f"?heartbeat={HEARTBEAT_S}", **fields)
    scene.run_command("channel", channel=1)


@scenario("CLIENT-LOSS-014", heartbeat=HEARTBEAT_S)
def an_idle_client_sends_heartbeats(scene: AmqpScene) -> None:
    """A heartbeat of 1 s is agreed on, and nothing is done: two heartbeats at least are sent in 4 s."""
    connect_with_heartbeat(scene)
    scene.await_wire(lambda: len(scene.sent_operations(Heartbeat)) >= 2, IDLE_S)
    sent = scene.sent_operations(Heartbeat)
    scene.require(
        len(sent) >= 2,
        "an idle connection is not kept alive",
        expected=f"2 heartbeats or more within {IDLE_S:g} s",
        actual=f"{len(sent)} of them",
    )


@scenario("CLIENT-LOSS-015", needs=("reconnect", "confirm", "publish"))
def what_is_published_without_a_connection_is_not_lost_in_silence(scene: AmqpScene) -> None:
    """A publish while the broker refuses connections: an error, a refusal, or sent and confirmed later."""
    scene.queue()
    scene.open(reconnect=True, confirms=True)
    before = last_connection(scene)
    scene.broker.refuse_connections()
    scene.broker.reset_connections()
    scene.await_wire(lambda: refusals(scene) >= 1, RECOVERED_WITHIN_S)
    scene.await_wire(lambda: False, NOTICED_WITHIN_S)
    asked: dict[str, Any] = {"exchange": "", "routing_key": QUEUE, "data": "message-1"}
    answer = scene.try_command("publish", within=LOST_WITHIN_S, channel=1, publish=1, **asked)
    scene.broker.accept_connections()
    await_new_connection(scene, before)
    if answer.error is None:
        scene.await_events(lambda: 1 in scene.confirms(), RECOVERED_WITHIN_S)
        scene.require(
            len(scene.confirms().get(1, ())) == 1,
            "a publish without a connection was neither refused nor confirmed",
            expected="an error, or one confirmed event",
            actual=scene.confirms() or "nothing",
        )
    scene.expect_no_confirm_ahead()
