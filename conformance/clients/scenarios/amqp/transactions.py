"""Transactions: AMQP 0-9-1, class tx; RabbitMQ, "Consumer Acknowledgements and Publisher Confirms"."""

from __future__ import annotations

from plumbline.conformance.clients.amqp.scene import (
    ONE_AND_NO_MORE,
    QUEUE,
    AmqpScene,
    describe_observations,
    method_of,
)
from plumbline.conformance.clients.scenario import scenario

PUBLISH = ("tx", "publish", "declare")


def expect_methods(scene: AmqpScene, *names: str) -> None:
    """Evidence: of transactions and publishes the client sent these, in this order."""
    sent = scene.sent_methods("tx.select", "tx.commit", "tx.rollback", "basic.publish", "basic.ack")
    scene.require(
        [method_of(seen).method for seen in sent] == list(names),
        "not what was asked for was sent",
        expected=", ".join(names),
        actual=describe_observations(sent),
    )


@scenario("CLIENT-TX-001", needs=PUBLISH)
def a_commit_publishes_what_was_said_before_it(scene: AmqpScene) -> None:
    """tx.select, two publishes, tx.commit: both are in the queue once the commit is reported as done."""
    scene.queue()
    scene.open()
    scene.run_command("tx.select", channel=1)
    scene.publish(1)
    scene.publish(2)
    scene.run_command("tx.commit", channel=1)
    expect_methods(scene, "tx.select", "basic.publish", "basic.publish", "tx.commit")
    state = scene.stage.queue_state(QUEUE)
    scene.require(state["message_count"] == 2, "not committed", expected="2 messages", actual=state)


@scenario("CLIENT-TX-002", needs=PUBLISH)
def a_rollback_takes_back_what_was_said_before_it(scene: AmqpScene) -> None:
    """tx.select, a publish, tx.rollback: nothing is in the queue."""
    scene.queue()
    scene.open()
    scene.run_command("tx.select", channel=1)
    scene.publish(1)
    scene.run_command("tx.rollback", channel=1)
    expect_methods(scene, "tx.select", "basic.publish", "tx.rollback")
    state = scene.stage.queue_state(QUEUE)
    scene.require(state["message_count"] == 0, "not rolled back", expected="no message", actual=state)


@scenario("CLIENT-TX-003", needs=PUBLISH, faults=["delay 300ms tx.commit-ok"])
def a_commit_is_told_as_done_after_commit_ok(scene: AmqpScene) -> None:
    """The answer to a commit takes its time and is waited for."""
    scene.queue()
    scene.open()
    scene.run_command("tx.select", channel=1)
    scene.publish(1)
    scene.run_command("tx.commit", channel=1)
    answered = scene.client.spoken[-1].at
    reported = [seen.at for seen in scene.received_methods("tx.commit-ok")]
    scene.require(
        reported and reported[0] <= answered,
        "the commit was reported as done before tx.commit-ok",
        expected="tx.commit-ok first",
        actual="no tx.commit-ok" if not reported else "tx.commit-ok later",
    )


@scenario("CLIENT-TX-004", needs=PUBLISH)
def a_commit_that_fails_is_told_as_failed(scene: AmqpScene) -> None:
    """A full queue refuses a message of the transaction, and the server closes the channel."""
    scene.queue("full", arguments=ONE_AND_NO_MORE)
    scene.open()
    scene.run_command("tx.select", channel=1)
    scene.publish(1)
    answer = scene.try_command("tx.commit", channel=1)
    scene.require(
        answer.error is not None,
        "a commit that failed was reported as done",
        expected="an error",
        actual=describe_observations(scene.received_methods("channel.close", "tx.commit-ok")),
    )


@scenario("CLIENT-TX-005", needs=(*PUBLISH, "consume", "ack"))
def a_rollback_takes_acknowledgements_back(scene: AmqpScene) -> None:
    """An ack in a transaction that is rolled back: the delivery can be acknowledged again, and is, once."""
    scene.queue("a")
    scene.open()
    scene.run_command("tx.select", channel=1)
    (message,) = scene.consume("a")
    scene.run_command("ack", ref=message.ref)
    scene.run_command("tx.rollback", channel=1)
    expect_methods(scene, "tx.select", "basic.ack", "tx.rollback")
    scene.run_command("close", within=5.0)
    scene.stage.await_queue(QUEUE, message_count=1)
    scene.count_observation()
