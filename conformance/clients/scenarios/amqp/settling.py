"""Consumer acknowledgements: RabbitMQ, "Consumer Acknowledgements and Publisher Confirms"."""

from __future__ import annotations

from typing import Any

from plumbline.conformance.clients.amqp.scene import (
    QUEUE,
    SETTLING,
    AmqpScene,
    describe_observations,
    method_of,
    same_channel,
)
from plumbline.conformance.clients.scenario import scenario
from plumbline.monitors import Observation

CONSUME = ("consume", "ack")


def expect_frame(scene: AmqpScene, data: str, *kinds: str, **arguments: Any) -> None:
    """Evidence: one settlement, of that delivery, on its channel, of one of these kinds, as asked."""
    delivery = scene.delivery_of(data)
    tag = method_of(delivery).arguments["delivery_tag"]
    flags = " ".join(f"{name}={str(value).lower()}" for name, value in arguments.items())
    expected = f"one {' or '.join(kinds)} delivery_tag={tag} {flags}".strip()
    settled = scene.expect_settlement(
        1, expected, "the delivery was not settled, once, as the application asked"
    )
    seen = scene.settlements()[0]
    given = {name: settled.arguments.get(name, False) for name in arguments}
    scene.require(
        settled.method in kinds and settled.arguments["delivery_tag"] == tag and given == arguments,
        "the delivery was settled otherwise than the application asked",
        expected=expected,
        actual=str(settled),
        at=seen,
    )
    scene.require(
        same_channel(seen, delivery),
        "the delivery was settled on another channel than it came on",
        expected=f"channel {method_of(delivery).channel}",
        actual=str(settled),
        at=seen,
    )


@scenario("CLIENT-SETTLE-002", needs=CONSUME)
def an_ack_goes_out_on_the_channel_of_its_delivery(scene: AmqpScene) -> None:
    """Two channels with a delivery each: the second one's is acknowledged, there."""
    scene.queue("a", name="first")
    scene.queue("b", name="second")
    scene.open(1, 2)
    scene.consume("a", queue="first", subscription="f", channel=1)
    (message,) = scene.consume("b", queue="second", subscription="s", channel=2)
    scene.run_command("ack", ref=message.ref)
    scene.barrier(2)
    expect_frame(scene, "b", "basic.ack", multiple=False)


@scenario("CLIENT-SETTLE-002", needs=CONSUME)
def an_ack_settles_its_own_delivery_alone(scene: AmqpScene) -> None:
    """Of three deliveries the second is acknowledged: one basic.ack with its tag, without ``multiple``."""
    scene.queue("a", "b", "c")
    scene.open()
    messages = scene.consume("a", "b", "c")
    scene.run_command("ack", ref=messages[1].ref)
    scene.barrier()
    expect_frame(scene, "b", "basic.ack", multiple=False)


@scenario("CLIENT-SETTLE-003", needs=(*CONSUME, "ack.multiple"))
def ack_multiple_names_the_delivery_and_none_after_it(scene: AmqpScene) -> None:
    """Of four deliveries all up to the third are acknowledged by one frame; the fourth is not."""
    scene.queue("a", "b", "c", "d")
    scene.open()
    messages = scene.consume("a", "b", "c", "d")
    scene.run_command("ack", ref=messages[2].ref, multiple=True)
    scene.barrier()
    expect_frame(scene, "c", "basic.ack", multiple=True)


def ack_first_and_third(scene: AmqpScene, *, multiple: bool) -> list[Observation]:
    """Of three deliveries the first is acknowledged alone, then the third: the acknowledgements. The server
    closes the channel if one is acknowledged twice."""
    scene.queue("a", "b", "c")
    scene.open()
    messages = scene.consume("a", "b", "c")
    scene.run_command("ack", ref=messages[0].ref)
    scene.try_command("ack", ref=messages[2].ref, multiple=multiple)
    scene.barrier(may_fail=True)
    return scene.settlements()


@scenario("CLIENT-SETTLE-001", needs=CONSUME)
def a_delivery_is_acknowledged_once(scene: AmqpScene) -> None:
    """The first and the third of three are acknowledged alone: neither is settled twice."""
    expect_none_again(scene, ack_first_and_third(scene, multiple=False))


@scenario("CLIENT-SETTLE-001", needs=(*CONSUME, "ack.multiple"))
def what_was_acknowledged_is_not_acknowledged_again(scene: AmqpScene) -> None:
    """The first of three is acknowledged alone, then all up to the third: none is settled twice."""
    expect_none_again(scene, ack_first_and_third(scene, multiple=True))


def expect_none_again(scene: AmqpScene, settlements: list[Observation]) -> None:
    """Evidence: the tags of these only rise."""
    settled = 0
    for seen in settlements:
        tag = method_of(seen).arguments["delivery_tag"]
        scene.require(
            tag > settled,
            "a delivery was acknowledged again",
            expected=f"a delivery_tag above {settled}",
            actual=str(method_of(seen)),
            at=seen,
        )
        settled = tag


@scenario("CLIENT-SETTLE-003", needs=(*CONSUME, "ack.multiple"))
def ack_multiple_after_a_single_ack(scene: AmqpScene) -> None:
    """The first of three is acknowledged alone, then all up to the third by one frame with ``multiple``."""
    settled = ack_first_and_third(scene, multiple=True)
    sent = [(one.arguments["delivery_tag"], one.arguments["multiple"]) for one in map(method_of, settled)]
    scene.require(
        [*dict.fromkeys(sent)] == [(1, False), (3, True)],  # what comes again breaks CLIENT-SETTLE-001
        "the deliveries were not acknowledged as asked",
        expected="basic.ack 1, then basic.ack 3 multiple",
        actual=describe_observations(settled),
    )


@scenario("CLIENT-SETTLE-004", needs=(*CONSUME, "nack"))
def nack_requeues(scene: AmqpScene) -> None:
    """A delivery that the application hands back goes back: ``requeue`` is set."""
    scene.queue("a")
    scene.open()
    (message,) = scene.consume("a")
    scene.run_command("nack", ref=message.ref, requeue=True)
    scene.barrier(may_fail=True)  # the delivery that comes again ends some clients, which is not judged here
    expect_frame(scene, "a", "basic.nack", "basic.reject", multiple=False, requeue=True)


@scenario("CLIENT-SETTLE-004", needs=(*CONSUME, "nack"))
def nack_discards(scene: AmqpScene) -> None:
    """A delivery that the application refuses for good does not go back: ``requeue`` is not set."""
    scene.queue("a")
    scene.open()
    (message,) = scene.consume("a")
    scene.run_command("nack", ref=message.ref, requeue=False)
    scene.barrier()
    expect_frame(scene, "a", "basic.nack", "basic.reject", multiple=False, requeue=False)


@scenario("CLIENT-SETTLE-005", needs=(*CONSUME, "reject"))
def reject_discards(scene: AmqpScene) -> None:
    """basic.reject without ``requeue``."""
    scene.queue("a")
    scene.open()
    (message,) = scene.consume("a")
    scene.run_command("reject", ref=message.ref, requeue=False)
    scene.barrier()
    expect_frame(scene, "a", "basic.reject", "basic.nack", requeue=False)


@scenario("CLIENT-SETTLE-005", needs=(*CONSUME, "reject"))
def reject_requeues(scene: AmqpScene) -> None:
    """basic.reject with ``requeue``."""
    scene.queue("a")
    scene.open()
    (message,) = scene.consume("a")
    scene.run_command("reject", ref=message.ref, requeue=True)
    scene.barrier(may_fail=True)  # the delivery that comes again ends some clients, which is not judged here
    expect_frame(scene, "a", "basic.reject", "basic.nack", requeue=True)


@scenario("CLIENT-SETTLE-006", needs=(*CONSUME, "nack"))
def nack_multiple_hands_all_back(scene: AmqpScene) -> None:
    """Two of three deliveries are refused for good by one basic.nack with ``multiple``."""
    scene.queue("a", "b", "c")
    scene.open()
    messages = scene.consume("a", "b", "c")
    scene.run_command("nack", ref=messages[1].ref, multiple=True, requeue=False)
    scene.barrier()
    expect_frame(scene, "b", "basic.nack", multiple=True, requeue=False)


@scenario("CLIENT-SETTLE-007", needs=CONSUME)
def nothing_is_settled_that_the_application_did_not_settle(scene: AmqpScene) -> None:
    """Three deliveries, none acknowledged by the application; consumer, channel and connection end."""
    scene.queue("a", "b", "c")
    scene.open()
    scene.consume("a", "b", "c")
    scene.barrier()
    scene.run_command("cancel", subscription="s")
    scene.run_command("close", within=5.0)
    acked = [seen for seen in scene.settlements() if _gives_up(seen.operation)]
    scene.require(
        not acked,
        "the library settled what the application had not",
        expected="no basic.ack, and no nack or reject without requeue",
        actual=describe_observations(acked),
    )
    scene.stage.await_queue(QUEUE, message_count=3)
    scene.count_observation()


def _gives_up(operation: Any) -> bool:
    """Whether the broker lets go of the message."""
    return operation.method == "basic.ack" or not operation.arguments["requeue"]


@scenario("CLIENT-SETTLE-008", needs=CONSUME)
def what_needs_no_ack_gets_none(scene: AmqpScene) -> None:
    """A consumer without acknowledgements: basic.consume says no_ack, and nothing is acknowledged."""
    scene.queue("a", "b")
    scene.open()
    scene.consume("a", "b", no_ack=True)
    scene.barrier()
    asked = method_of(scene.sent_methods("basic.consume")[0])
    scene.require(asked.arguments["no_ack"], "no_ack was not sent", expected="no_ack=true", actual=str(asked))
    scene.require(
        not scene.settlements(),
        "deliveries without acknowledgement were acknowledged",
        expected=f"none of {', '.join(SETTLING)}",
        actual=describe_observations(scene.settlements()),
    )


@scenario("CLIENT-SETTLE-008", needs=CONSUME)
def what_needs_an_ack_is_asked_for_with_one(scene: AmqpScene) -> None:
    """A consumer with acknowledgements: basic.consume does not say no_ack."""
    scene.queue("a")
    scene.open()
    scene.consume("a", no_ack=False)
    asked = method_of(scene.sent_methods("basic.consume")[0])
    scene.require(
        not asked.arguments["no_ack"], "no_ack was sent", expected="no_ack=false", actual=str(asked)
    )


@scenario("CLIENT-SETTLE-009", needs=("get", "ack"))
def what_was_got_is_acknowledged_by_its_tag(scene: AmqpScene) -> None:
    """Two messages are fetched with basic.get, and the second is acknowledged."""
    scene.queue("a", "b")
    scene.open()
    got = [scene.get() for _ in range(2)]
    scene.require(
        [one.data for one in got if one] == ["a", "b"],
        "get handed over otherwise",
        expected="a, b",
        actual=got,
    )
    assert got[1] is not None
    scene.run_command("ack", ref=got[1].ref)
    scene.barrier()
    expect_frame(scene, "b", "basic.ack", multiple=False)
