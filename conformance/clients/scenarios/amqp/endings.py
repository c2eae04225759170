"""What servers close, and connections that are lost: AMQP 0-9-1, channel.close, connection.close; RabbitMQ,
"Consumer Acknowledgements and Publisher Confirms", "When Consumers Fail or Lose Connection"."""

from __future__ import annotations

from plumbline.conformance.clients.amqp.scene import (
    LOST_WITHIN_S,
    QUEUE,
    SENT_WITHIN_S,
    AmqpScene,
    describe_observations,
    method_of,
)
from plumbline.conformance.clients.protocol import AdapterEvent
from plumbline.conformance.clients.scenario import scenario
from plumbline.monitors import Observation
from plumbline.wire.amqp import Method
from plumbline.wire.sender import Sender

NOT_FOUND = 404
CONNECTION_FORCED = 320
HEARTBEAT_S = 1
SILENT_WITHIN_S = 15.0  # pika looks every six seconds: two heartbeats have no upper bound


def closed_by_the_server(scene: AmqpScene) -> AdapterEvent | None:
    """A publish to an exchange that is not there; the event about the channel, if there was one."""
    scene.queue()
    scene.open()
    refused_publish(scene)
    if not scene.await_events(lambda: scene.events_named("channel-closed"), 1.0):
        answer = scene.try_command("get", channel=1, queue=QUEUE)
        if answer.error is not None:
            return AdapterEvent("channel-closed", text=answer.error.text, code=answer.error.code)
    reported = scene.events_named("channel-closed")
    return reported[0] if reported else None


def refused_publish(scene: AmqpScene) -> None:
    """A publish on channel 1 to an exchange that is not there: the server closes the channel."""
    scene.try_command("publish", channel=1, exchange="nosuch", routing_key="x", data="message")
    closed = scene.await_wire(lambda: scene.received_methods("channel.close"))
    scene.require(closed, "the channel was not closed", expected="channel.close", actual="nothing")


@scenario("CLIENT-END-001", needs=("publish", "get"))
def a_channel_that_the_server_closes_is_told(scene: AmqpScene) -> None:
    """The end of the channel is reported: by an event, or by an error at its next use."""
    reported = closed_by_the_server(scene)
    scene.require(
        reported, "the end of the channel was not reported", expected="an event or an error", actual="neither"
    )
    answered = scene.await_wire(lambda: scene.sent_methods("channel.close-ok"))
    scene.require(answered, "channel.close was not answered", expected="channel.close-ok", actual="nothing")


@scenario("CLIENT-END-002", needs=("publish", "get"))
def why_a_channel_was_closed_is_told(scene: AmqpScene) -> None:
    """The reply code of the server reaches the user."""
    reported = closed_by_the_server(scene)
    scene.require(
        reported is not None and (reported.code == NOT_FOUND or "NOT_FOUND" in reported.text),
        "why the channel was closed was not reported",
        expected=f"reply code {NOT_FOUND}",
        actual=reported,
    )


@scenario("CLIENT-END-005", needs=("publish", "get", "declare"))
def other_channels_go_on(scene: AmqpScene) -> None:
    """The server closes channel 1; a command on channel 2 is answered."""
    scene.open(1, 2)
    refused_publish(scene)
    scene.await_events(lambda: scene.events_named("channel-closed"), 1.0)
    answer = scene.try_command("declare", channel=2, queue=QUEUE)
    scene.require(
        answer.error is None,
        "a channel cannot be used since the server has closed another one",
        expected="queue.declare-ok on channel 2",
        actual=answer.error,
    )


@scenario("CLIENT-END-006", needs=("publish", "get", "declare"))
def a_publish_on_a_closed_channel_is_no_success(scene: AmqpScene) -> None:
    """A second publish after the server has closed the channel: an error, or the message arrives."""
    scene.queue()
    scene.open()
    refused_publish(scene)
    scene.await_events(lambda: scene.events_named("channel-closed"), 1.0)
    sent = len(publishes_on_open_channels(scene))
    answer = scene.try_command(
        "publish", channel=1, exchange="", routing_key=QUEUE, data="message", publish=2
    )
    if answer.error is None:
        ended = scene.await_wire(
            lambda: len(publishes_on_open_channels(scene)) > sent, SENT_WITHIN_S
        ) or scene.await_events(scene.disconnect_events, SENT_WITHIN_S)
    scene.require(
        answer.error is not None or ended,
        "a publish on a closed channel was lost in silence",
        expected="an error, or basic.publish on an open channel",
        actual=describe_observations(scene.sent_methods("basic.publish")[1:]),
    )


def publishes_on_open_channels(scene: AmqpScene) -> list[Observation]:
    """What the client published on channels that the server had not closed."""
    closed: set[tuple[str, int]] = set()
    found = []
    for seen in scene.wire:
        if not isinstance(seen.operation, Method):
            continue
        channel = (seen.connection, seen.operation.channel)
        match seen.operation.method:
            case "channel.close" if seen.sender is Sender.SERVER:
                closed.add(channel)
            case "channel.open":
                closed.discard(channel)
            case "basic.publish" if channel not in closed:
                found.append(seen)
    return found


def closing(scene: AmqpScene) -> None:
    """connection.close 320 for a connection that did nothing wrong."""
    scene.open()
    text = "CONNECTION_FORCED - by the scenario"
    close = Method.make("connection.close", 0, reply_code=CONNECTION_FORCED, reply_text=text)
    scene.broker.inject(close.raw)
    scene.await_events(scene.disconnect_events, LOST_WITHIN_S)


@scenario("CLIENT-END-003")
def a_connection_that_the_server_closes_is_told(scene: AmqpScene) -> None:
    """The server closes the connection, and the user learns of it."""
    closing(scene)
    expect_lost(scene)


@scenario("CLIENT-END-004")
def connection_close_is_answered(scene: AmqpScene) -> None:
    """connection.close is answered with connection.close-ok."""
    closing(scene)
    closed = scene.sent_methods("connection.open")[-1].connection
    scene.await_wire(lambda: scene.sent_methods("connection.close-ok") or not scene.broker.is_open(closed))
    scene.require(
        scene.sent_methods("connection.close-ok"),
        "connection.close was not answered",
        expected="connection.close-ok",
        actual="nothing",
    )


def expect_lost(scene: AmqpScene) -> None:
    """Evidence: the loss is reported, at the latest at the next use."""
    if not scene.disconnect_events() and "declare" in scene.features:
        answer = scene.try_command("declare", channel=1, queue="x")
        if answer.error is not None:
            scene.count_observation()
            return
    scene.require(
        scene.disconnect_events(),
        "the loss of the connection was not reported",
        expected="disconnected",
        actual="nothing",
    )


@scenario("CLIENT-LOSS-001")
def a_lost_connection_is_told(scene: AmqpScene) -> None:
    """The connection is reset: the user learns of it, at the latest at the next use."""
    scene.open()
    scene.broker.reset_connections()
    scene.await_events(scene.disconnect_events, LOST_WITHIN_S)
    expect_lost(scene)


@scenario("CLIENT-LOSS-005", heartbeat=HEARTBEAT_S)
def a_silent_connection_is_lost(scene: AmqpScene) -> None:
    """Both sides want a heartbeat each second, then no byte comes any more: the user learns of the loss."""
    scene.connect(query=f"?heartbeat={HEARTBEAT_S}")
    scene.run_command("channel", channel=1)
    scene.broker.silence_connections()
    reported = scene.await_events(scene.disconnect_events, SILENT_WITHIN_S)
    scene.require(
        reported,
        "a silent connection is not given up",
        expected=f"disconnected after two heartbeats of {HEARTBEAT_S} s",
        actual=f"nothing within {SILENT_WITHIN_S:g} s",
    )


def redelivered(scene: AmqpScene, *, reconnect: bool = False) -> None:
    """Two deliveries, then the connection is lost before they are acknowledged, and both come again."""
    scene.queue("a", "b")
    scene.open(reconnect=reconnect)
    scene.consume("a", "b")
    scene.broker.reset_connections()
    if reconnect:
        scene.await_events(lambda: len(scene.messages("s")) == 4, 2 * LOST_WITHIN_S)
        scene.await_messages("s", "a", "b", "a", "b")
    else:
        scene.await_events(scene.disconnect_events, LOST_WITHIN_S)
        scene.stage.await_queue(QUEUE, message_count=2)
        scene.open()
        scene.consume("a", "b", subscription="again")


@scenario("CLIENT-LOSS-002", needs=("consume", "ack"))
def what_was_not_acknowledged_comes_again(scene: AmqpScene) -> None:
    """Deliveries of a lost connection come again, reported as redelivered, and are acknowledged."""
    redelivered(scene)
    again = scene.messages("again")
    scene.require(
        [message.redelivered for message in again] == [True, True],
        "a redelivery was not reported as one",
        expected="redelivered true, twice",
        actual=[message.redelivered for message in again],
    )
    for message in again:
        scene.run_command("ack", ref=message.ref)
    scene.barrier()
    expect_acks(scene, 1, 2)


def expect_acks(scene: AmqpScene, *tags: int) -> None:
    """Evidence: on the last connection exactly these were acknowledged."""
    last = scene.deliveries()[-1].connection
    sent = [seen for seen in scene.settlements() if seen.connection == last]
    scene.require(
        [method_of(seen).arguments["delivery_tag"] for seen in sent] == list(tags),
        "not what was delivered on this connection was acknowledged on it",
        expected=f"basic.ack {', '.join(map(str, tags))}",
        actual=describe_observations(sent),
        at=sent[-1] if sent else None,
    )


@scenario("CLIENT-LOSS-003", needs=("consume", "ack"))
def a_delivery_of_a_lost_connection_is_not_acknowledged_on_another(scene: AmqpScene) -> None:
    """Acknowledging the old delivery is refused or does nothing: its tag means another message now."""
    redelivered(scene)
    _, stale = scene.messages("s")
    scene.try_command("ack", ref=stale.ref)
    scene.run_command("ack", ref=scene.messages("again")[0].ref)
    scene.barrier()
    expect_acks(scene, 1)


@scenario("CLIENT-LOSS-003", needs=("reconnect", "consume", "ack"))
def a_library_that_reconnects_forgets_old_deliveries(scene: AmqpScene) -> None:
    """After the library's own recovery, acknowledging an old delivery is refused or does nothing."""
    redelivered(scene, reconnect=True)
    messages = scene.messages("s")
    scene.try_command("ack", ref=messages[1].ref)
    scene.run_command("ack", ref=messages[2].ref)
    scene.barrier()
    expect_acks(scene, 1)


@scenario("CLIENT-LOSS-004", needs=("reconnect", "consume", "ack", "qos"))
def a_library_that_reconnects_takes_up_prefetch_and_consumer(scene: AmqpScene) -> None:
    """After the library's own recovery the consumer is there again, with its prefetch limit set before."""
    scene.queue("a", "b")
    scene.open(reconnect=True)
    scene.run_command("qos", channel=1, prefetch_count=1)
    scene.consume("a")
    scene.broker.reset_connections()
    scene.await_events(lambda: len(scene.messages("s")) >= 2, 2 * LOST_WITHIN_S)
    scene.await_messages("s", "a", "a")
    connection = scene.deliveries()[-1].connection
    sent = [
        seen for seen in scene.sent_methods("basic.qos", "basic.consume") if seen.connection == connection
    ]
    scene.require(
        [method_of(seen).method for seen in sent] == ["basic.qos", "basic.consume"],
        "the consumer was not taken up as it was",
        expected="basic.qos, then basic.consume, on the new connection",
        actual=describe_observations(sent),
    )
