"""Publisher confirms: RabbitMQ, "Consumer Acknowledgements and Publisher Confirms", "Publisher Confirms".

``confirms`` is the script that the broker follows: what is sent once so many messages were published.
"""

from __future__ import annotations

from typing import Any

from plumbline.conformance.clients.amqp.scene import (
    LOST_WITHIN_S,
    ONE_AND_NO_MORE,
    QUEUE,
    AmqpScene,
    describe_observations,
    method_of,
)
from plumbline.conformance.clients.scenario import scenario

ONE = ("publish", "confirm")
SEVERAL = ("publish", "publish.async", "confirm")


def publish(scene: AmqpScene, count: int) -> None:
    """So many at once, on a channel with confirms, to a queue that is there."""
    scene.queue()
    scene.open(confirms=True)
    if count == 1:
        scene.publish(1)
    else:
        scene.publish(1, count=count)


@scenario("CLIENT-CONFIRM-001", needs=ONE)
def confirm_mode_comes_before_the_publish(scene: AmqpScene) -> None:
    """confirm.select, and behind it the publish."""
    scene.queue()
    scene.open()
    scene.run_command("confirm", channel=1)
    scene.publish(1)
    scene.await_wire(scene.publishes)
    sent = scene.sent_methods("confirm.select", "basic.publish")
    names = [method_of(seen).method for seen in sent]
    scene.require(
        names == ["confirm.select", "basic.publish"],
        "the publish was not made in confirm mode",
        expected="confirm.select, then basic.publish",
        actual=describe_observations(sent),
    )


@scenario("CLIENT-CONFIRM-002", needs=ONE)
def an_acked_publish_is_told_as_confirmed(scene: AmqpScene) -> None:
    """The publish is reported as confirmed."""
    publish(scene, 1)
    scene.expect_confirms({1: True})


@scenario("CLIENT-CONFIRM-002", needs=ONE, confirms="1: pause 1500, ack 1")
def a_publish_is_not_confirmed_before_its_ack(scene: AmqpScene) -> None:
    """Nothing is reported as confirmed before its confirm, which takes its time, has come."""
    publish(scene, 1)
    scene.await_wire(lambda: scene.received_methods("basic.ack"))
    scene.require(
        scene.received_methods("basic.ack"),
        "the broker confirmed nothing",
        expected="basic.ack",
        actual="nothing",
    )
    scene.expect_no_confirm_ahead()


@scenario("CLIENT-CONFIRM-013", needs=ONE, confirms="1: pause 1500, ack 1")
def a_confirm_that_takes_its_time_is_waited_for(scene: AmqpScene) -> None:
    """A confirm after 1.5 s is reported as one."""
    publish(scene, 1)
    scene.expect_reports({1: True})


@scenario("CLIENT-CONFIRM-003", needs=ONE, confirms="1: ack 1 multiple")
def multiple_confirms_a_single_publish(scene: AmqpScene) -> None:
    """A confirm of one publish may say ``multiple``."""
    publish(scene, 1)
    scene.expect_confirms({1: True})


@scenario("CLIENT-CONFIRM-003", needs=SEVERAL, confirms="3: ack 3 multiple")
def multiple_confirms_all_up_to_it(scene: AmqpScene) -> None:
    """One basic.ack with ``multiple`` confirms all three publishes."""
    publish(scene, 3)
    scene.expect_confirms({1: True, 2: True, 3: True})


@scenario("CLIENT-CONFIRM-004", needs=SEVERAL, confirms="3: ack 2 multiple, pause 500, ack 3")
def multiple_confirms_nothing_above_it(scene: AmqpScene) -> None:
    """``multiple`` up to the second publish leaves the third unconfirmed until its own ack."""
    publish(scene, 3)
    scene.expect_confirms({1: True, 2: True, 3: True})


@scenario("CLIENT-CONFIRM-004", needs=SEVERAL, confirms="3: ack 2, pause 500, ack 1, ack 3")
def a_single_ack_confirms_nothing_below_it(scene: AmqpScene) -> None:
    """An ack without ``multiple`` confirms its own publish and none before it."""
    publish(scene, 3)
    scene.expect_confirms({1: True, 2: True, 3: True})


@scenario("CLIENT-CONFIRM-005", needs=SEVERAL, confirms="4: ack 3, nack 1, ack 4, ack 2")
def confirms_out_of_order_find_their_publishes(scene: AmqpScene) -> None:
    """Confirms come in another order than the publishes, and each is reported for its own publish."""
    publish(scene, 4)
    scene.expect_confirms({1: False, 2: True, 3: True, 4: True})


@scenario("CLIENT-CONFIRM-006", needs=ONE, confirms="1: nack 1")
def a_nacked_publish_is_not_confirmed(scene: AmqpScene) -> None:
    """basic.nack is reported as a refusal."""
    publish(scene, 1)
    scene.expect_confirms({1: False})


@scenario("CLIENT-CONFIRM-006", needs=ONE)
def what_a_full_queue_refuses_is_not_confirmed(scene: AmqpScene) -> None:
    """A queue that takes one message and no more: the second publish is refused."""
    scene.queue(arguments=ONE_AND_NO_MORE)
    scene.open(confirms=True)
    scene.publish(1)
    scene.publish(2)
    scene.expect_confirms({1: True, 2: False})


@scenario("CLIENT-CONFIRM-007", needs=SEVERAL, confirms="3: ack 3, nack 2 multiple")
def nack_multiple_refuses_all_up_to_it(scene: AmqpScene) -> None:
    """One basic.nack with ``multiple`` refuses what is not settled yet up to its tag."""
    publish(scene, 3)
    scene.expect_confirms({1: False, 2: False, 3: True})


@scenario("CLIENT-CONFIRM-008", needs=SEVERAL, confirms="4: nack 2, ack 4 multiple")
def multiple_leaves_what_was_settled_before(scene: AmqpScene) -> None:
    """A publish that was refused is not confirmed by a later ``multiple`` above it."""
    publish(scene, 4)
    scene.expect_confirms({1: True, 2: False, 3: True, 4: True})


@scenario(
    "CLIENT-CONFIRM-009",
    source="aiormq, issue 10",
    needs=SEVERAL,
    confirms="6: ack 1, ack 3, ack 5, ack 6 multiple",
)
def multiple_reaches_across_what_was_confirmed_singly(scene: AmqpScene) -> None:
    """``multiple`` confirms the publishes between those that were confirmed one by one before."""
    publish(scene, 6)
    scene.expect_confirms(dict.fromkeys(range(1, 7), True))


def publish_and_lose(scene: AmqpScene, **fields: Any) -> None:
    """Publish; the connection is lost before all is confirmed, which may be an error to whoever publishes."""
    scene.queue()
    scene.open(confirms=True)
    asked = {"exchange": "", "routing_key": QUEUE, "publish": 1, **fields}
    scene.try_command("publish", within=LOST_WITHIN_S, channel=1, **asked)


@scenario("CLIENT-CONFIRM-010", needs=SEVERAL, confirms="3: ack 2, pause 200, cut")
def a_lost_connection_leaves_publishes_unconfirmed(scene: AmqpScene) -> None:
    """Who still waits for a confirm when the connection is lost hears that none will come."""
    publish_and_lose(scene, data="message", count=3)
    scene.expect_confirms({1: False, 2: True, 3: False})


@scenario("CLIENT-CONFIRM-010", needs=ONE, confirms="1: pause 200, cut")
def a_lost_connection_leaves_a_publish_unconfirmed(scene: AmqpScene) -> None:
    """One publish that waits for its confirm when the connection is lost."""
    publish_and_lose(scene, data="message-1")
    scene.expect_confirms({1: False})


@scenario(
    "CLIENT-CONFIRM-011", source="amqplib, issue 191", needs=SEVERAL, confirms="3: ack 2, pause 200, close"
)
def a_closed_channel_leaves_publishes_unconfirmed(scene: AmqpScene) -> None:
    """Who still waits for a confirm when the server closes the channel hears that none will come."""
    publish(scene, 3)
    scene.expect_confirms({1: False, 2: True, 3: False})


@scenario("CLIENT-CONFIRM-012", needs=SEVERAL, confirms="2: ack 2, nack 1")
def each_channel_counts_for_itself(scene: AmqpScene) -> None:
    """Two channels with confirms: tag 1 and 2 of each are its own publishes."""
    scene.queue()
    scene.open(1, 2, confirms=True)
    for number, channel in ((1, 1), (2, 2), (3, 1), (4, 2)):
        scene.publish(number, channel=channel)
    scene.expect_confirms({1: False, 2: False, 3: True, 4: True})


@scenario("CLIENT-CONFIRM-014", needs=ONE, confirms="1: nack 1")
def publishes_before_confirm_mode_are_not_counted(scene: AmqpScene) -> None:
    """What was published before confirm.select has no number: counting starts at 1 after it."""
    scene.queue()
    scene.open()
    scene.publish(1)
    scene.publish(2)
    scene.select_confirms()
    scene.publish(3)
    scene.expect_confirms({3: False})


@scenario("CLIENT-CONFIRM-015", needs=ONE, confirms="1: nack 1")
def the_requeue_field_of_a_nack_is_ignored(scene: AmqpScene) -> None:
    """The nack says ``requeue``, as RabbitMQ's does: the library publishes nothing again by itself."""
    publish(scene, 1)
    scene.expect_confirms({1: False})
    scene.barrier()
    scene.require(
        len(scene.publishes()) == 1,
        "the library published again by itself",
        expected="one basic.publish",
        actual=describe_observations(scene.sent_methods("basic.publish")),
    )
