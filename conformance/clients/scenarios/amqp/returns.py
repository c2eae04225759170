"""Returned messages: AMQP 0-9-1, basic.return; RabbitMQ, "Publishers", Unroutable Message Handling."""

from __future__ import annotations

from functools import partial
from itertools import accumulate

from plumbline.conformance.clients.amqp.scene import QUEUE, AmqpScene, method_of
from plumbline.conformance.clients.protocol import AdapterEvent
from plumbline.conformance.clients.scenario import scenario
from plumbline.conformance.outcomes import Untestable

NOWHERE = "nowhere"
NO_ROUTE = 312
RETURNS = 8
MANDATORY = ("publish", "publish.mandatory")
CONFIRMED = (*MANDATORY, "confirm")


def expect_returned(scene: AmqpScene, *bodies: str) -> list[AdapterEvent]:
    """Evidence: exactly these were reported as returned."""
    scene.await_events(lambda: len(scene.events_named("returned")) >= len(bodies))
    came = scene.events_named("returned")
    scene.require(
        sorted(event.data for event in came) == sorted(bodies),
        "other messages were reported than those that were returned",
        expected=f"returned: {', '.join(sorted(bodies)) or 'nothing'}",
        actual=", ".join(sorted(event.data for event in came)) or "nothing",
    )
    return came


@scenario("CLIENT-RETURN-001", needs=CONFIRMED)
def a_returned_message_is_told_in_confirm_mode(scene: AmqpScene) -> None:
    """A mandatory message that no queue takes is reported as returned."""
    scene.open(confirms=True)
    scene.publish(1, key=NOWHERE, mandatory=True)
    expect_returned(scene, "message-1")


@scenario("CLIENT-RETURN-004", needs=CONFIRMED)
def why_a_message_was_returned_is_told(scene: AmqpScene) -> None:
    """What is reported as returned has the code of the server and the routing key."""
    scene.open(confirms=True)
    scene.publish(1, key=NOWHERE, mandatory=True)
    scene.await_events(lambda: scene.events_named("returned"))
    if not (returned := scene.events_named("returned")):
        raise Untestable("no message was reported as returned, which CLIENT-RETURN-001 judges")
    reported = returned[0]
    scene.require(
        (reported.code, reported.routing_key) == (NO_ROUTE, NOWHERE),
        "it was reported with other values than the server sent",
        expected=f"{NO_ROUTE}, routing key {NOWHERE}",
        actual=f"{reported.code}, routing key {reported.routing_key}",
    )


@scenario("CLIENT-RETURN-002", needs=MANDATORY)
def a_returned_message_is_told_without_confirms(scene: AmqpScene) -> None:
    """A mandatory message comes back on a channel without confirms."""
    scene.open()
    scene.publish(1, key=NOWHERE, mandatory=True)
    expect_returned(scene, "message-1")


@scenario("CLIENT-RETURN-003", needs=CONFIRMED)
def a_return_is_told_no_later_than_its_confirm(scene: AmqpScene) -> None:
    """A message that came back is not taken for confirmed: its return is reported first.

    Several times, since some libraries fail only if the return and the confirm arrive in one read.
    """
    scene.open(confirms=True)
    for number in range(1, RETURNS + 1):
        scene.publish(number, key=NOWHERE, mandatory=True)
        scene.await_events(partial(_are_reported, scene, number))
        reported = scene.events_named("returned", "confirmed")
        scene.require(
            not _overtakes(reported),
            "a message that came back was taken for confirmed",
            expected="returned before it is reported as confirmed",
            actual=", then ".join(map(_describe, reported)) or "nothing",
        )


def _are_reported(scene: AmqpScene, messages: int) -> bool:
    return all(len(scene.events_named(event)) >= messages for event in ("returned", "confirmed"))


def _overtakes(reported: list[AdapterEvent]) -> bool:
    """Whether none was reported as returned, or one as confirmed while more had an answer than were returned.

    All come back. A refusal is the answer that some libraries have for what came back, so it counts."""
    balances = accumulate(1 if event.event == "returned" else -1 for event in reported)
    confirmed = [balance for event, balance in zip(reported, balances, strict=True) if event.ack]
    return all(event.event != "returned" for event in reported) or min(confirmed, default=0) < 0


def _describe(event: AdapterEvent) -> str:
    return "not confirmed" if event.ack is False else event.event


@scenario("CLIENT-RETURN-001", needs=CONFIRMED)
def only_what_came_back_is_told_as_returned(scene: AmqpScene) -> None:
    """Of three mandatory messages the second comes back: the others are confirmed and not returned."""
    scene.queue()
    scene.open(confirms=True)
    for number, key in ((1, QUEUE), (2, NOWHERE), (3, QUEUE)):
        scene.publish(number, key=key, mandatory=True)
    scene.await_events(lambda: set(scene.confirms()) >= {1, 3})
    expect_returned(scene, "message-2")
    reported = scene.confirms()
    scene.require(
        reported.get(1) == reported.get(3) == [True],
        "a message that reached its queue was not reported as confirmed",
        expected="1 and 3 confirmed",
        actual=reported,
    )


@scenario(
    "CLIENT-RETURN-005",
    source="aio-pika, issue 689",
    needs=(*CONFIRMED, "publish.async", "publish.message_id"),
)
def returns_with_the_same_message_id_are_all_told(scene: AmqpScene) -> None:
    """Two messages of one message-id come back; the application may give an id twice."""
    scene.open(confirms=True)
    scene.publish(1, key=NOWHERE, mandatory=True, count=2, message_id="same")
    expect_returned(scene, "message-1", "message-2")


@scenario("CLIENT-RETURN-006", needs=MANDATORY)
def mandatory_is_sent_as_asked(scene: AmqpScene) -> None:
    """The mandatory flag is set where the application wants it, and nowhere else."""
    scene.queue()
    scene.open()
    scene.publish(1, key=NOWHERE)
    scene.publish(2, mandatory=True)
    scene.barrier()
    flags = [method_of(one.observation).arguments["mandatory"] for one in scene.publishes()]
    scene.require(
        flags == [False, True],
        "mandatory was sent otherwise than asked",
        expected="false, then true",
        actual=flags,
    )
