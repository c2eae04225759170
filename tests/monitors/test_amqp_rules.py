"""Each rule of AMQP channels on a short exchange: what breaks it, and what looks like it and does not."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from plumbline.monitors import MonitorRunner, MonitorScope, Observation, Violation
from plumbline.wire import amqp
from plumbline.wire.sender import Sender

Step = tuple[Sender, amqp.Method]


def client(method: str, channel: int = 1, **arguments: Any) -> Step:
    return Sender.CLIENT, amqp.Method.make(method, channel, **arguments)


def server(method: str, channel: int = 1, **arguments: Any) -> Step:
    return Sender.SERVER, amqp.Method.make(method, channel, **arguments)


OPENED = [
    client("connection.open", 0, virtual_host="/"),
    client("channel.open"),
    server("channel.open-ok"),
]
SELECTED = [*OPENED, client("confirm.select"), server("confirm.select-ok")]


def consuming(tag: str = "c", **arguments: Any) -> list[Step]:
    return [
        client("basic.consume", queue="q", consumer_tag=tag, **arguments),
        server("basic.consume-ok", consumer_tag=tag),
    ]


def qos(count: int, *, all_consumers: bool = False) -> list[Step]:
    return [client("basic.qos", prefetch_count=count, global_=all_consumers), server("basic.qos-ok")]


def deliver(number: int, tag: str = "c", **arguments: Any) -> Step:
    return server("basic.deliver", consumer_tag=tag, delivery_tag=number, routing_key="q", **arguments)


def got(number: int, **arguments: Any) -> list[Step]:
    asked = client("basic.get", queue="q", no_ack=bool(arguments.pop("no_ack", False)))
    return [asked, server("basic.get-ok", delivery_tag=number, routing_key="q", **arguments)]


def publish(key: str = "q", *, mandatory: bool = False, **content: Any) -> Step:
    return client("basic.publish", routing_key=key, mandatory=mandatory, body=b"x", **content)


def observations(steps: list[Step]) -> list[Observation]:
    return [
        Observation(operation, sender, "1", index, index * 1_000_000)
        for index, (sender, operation) in enumerate(steps, 1)
    ]


def judged(steps: list[Step]) -> list[Violation]:
    watch = MonitorRunner()
    return [violation for seen in observations(steps) for violation in watch.observe(seen)]


def rules(steps: list[Step]) -> list[tuple[str, bool]]:
    return [(violation.rule, violation.certain) for violation in judged(steps)]


def test_delivery_tags_count_consumers_and_gets_together() -> None:
    sound = [*OPENED, *consuming(), deliver(1), *got(2), deliver(3)]
    assert rules(sound) == []
    (violation,) = judged([*sound, deliver(5)])
    assert (violation.rule, violation.expected) == ("delivery-tag", "delivery tag 4")
    assert rules([*OPENED, *consuming(), deliver(0)]) == [("delivery-tag", True)]
    assert rules([*consuming(), deliver(7), deliver(8)]) == []  # the beginning was not seen
    assert rules([*consuming(), deliver(7), deliver(9)]) == [("delivery-tag", True)]


def test_delivery_tags_of_a_channel_that_is_opened_again_begin_again() -> None:
    again = [*OPENED, *consuming(), deliver(1), *OPENED[1:], *consuming()]
    assert rules([*again, deliver(1)]) == []
    assert rules([*again, deliver(2)]) == [("delivery-tag", True)]


def test_prefetch_limits_each_new_consumer() -> None:
    two = [*OPENED, *qos(2), *consuming("a"), *consuming("b")]
    full = [*two, deliver(1, "a"), deliver(2, "b"), deliver(3, "a"), deliver(4, "b")]
    assert rules(full) == []
    assert rules([*full, deliver(5, "a")]) == [("prefetch", True)]
    for settling in (
        client("basic.ack", delivery_tag=1),
        client("basic.nack", delivery_tag=1, requeue=True),
        client("basic.reject", delivery_tag=1),
        client("basic.ack", delivery_tag=0, multiple=True),
    ):
        assert rules([*full, settling, deliver(5, "a")]) == []
    assert rules([*full, client("basic.ack", delivery_tag=2), deliver(5, "a")]) == [("prefetch", True)]


def test_prefetch_limits_no_get_and_no_consumer_without_acknowledgements() -> None:
    assert rules([*OPENED, *qos(1), *consuming(), deliver(1), *got(2), *got(3)]) == []
    assert rules([*OPENED, *qos(1), *consuming(no_ack=True), deliver(1), deliver(2)]) == []


def test_prefetch_of_the_channel_is_shared() -> None:
    shared = [*OPENED, *qos(2, all_consumers=True), *consuming("a"), *consuming("b")]
    assert rules([*shared, deliver(1, "a"), deliver(2, "b")]) == []
    assert rules([*shared, deliver(1, "a"), deliver(2, "b"), deliver(3, "a")]) == [("prefetch", True)]


def test_limit_that_is_lowered_in_flight_shows_possible_violations_only() -> None:
    flying = [*OPENED, *qos(3, all_consumers=True), *consuming(), deliver(1), deliver(2)]
    assert rules([*flying, *qos(1, all_consumers=True), deliver(3)]) == [("prefetch", False)]


def test_cancelled_consumer_leaves_the_window_of_the_next_alone() -> None:
    cancelled = [client("basic.cancel", consumer_tag="c"), server("basic.cancel-ok", consumer_tag="c")]
    assert rules([*OPENED, *qos(1), *consuming(), deliver(1), *cancelled, *consuming(), deliver(2)]) == []


@pytest.mark.parametrize(
    "step",
    [
        client("basic.ack", delivery_tag=1),
        client("basic.nack", delivery_tag=1),
        client("basic.reject", delivery_tag=1),
        client("basic.ack", delivery_tag=1, multiple=True),
        client("basic.ack", delivery_tag=9),
        client("basic.ack", delivery_tag=0),
    ],
    ids=str,
)
def test_client_settles_unknown_or_settled_tags(step: Step) -> None:
    settled = [*OPENED, *consuming(), deliver(1), client("basic.ack", delivery_tag=1)]
    (violation,) = judged([*settled, step])
    assert (violation.rule, violation.side) == ("known-delivery-tag", "client")


def test_client_may_settle_in_any_order_and_all_at_once() -> None:
    three = [*OPENED, *consuming(), deliver(1), deliver(2), *got(3)]
    in_disorder = [client("basic.ack", delivery_tag=tag) for tag in (3, 1, 2)]
    assert rules([*three, *in_disorder]) == []
    everything = client("basic.ack", delivery_tag=0, multiple=True)
    assert rules([*three, everything, everything]) == []
    assert rules([*three, client("basic.ack", delivery_tag=2, multiple=True), in_disorder[0]]) == []


def test_delivery_without_acknowledgement_must_not_get_one() -> None:
    unasked = [*OPENED, *got(1, no_ack=True), client("basic.ack", delivery_tag=1)]
    assert rules(unasked) == [("known-delivery-tag", True)]


def test_recovered_tags_are_settled() -> None:
    recovered = [*OPENED, *consuming(), deliver(1), client("basic.recover", requeue=True)]
    recovered += [server("basic.recover-ok"), client("basic.ack", delivery_tag=1)]
    assert rules(recovered) == [("known-delivery-tag", True)]


def test_rollback_may_restore_what_was_settled() -> None:
    transacted = [*OPENED, client("tx.select"), server("tx.select-ok"), *consuming(), deliver(1)]
    transacted += [client("basic.ack", delivery_tag=1), client("tx.rollback"), server("tx.rollback-ok")]
    assert rules([*transacted, client("basic.ack", delivery_tag=1)]) == []


def test_channel_that_began_unseen_is_not_judged_for_tags() -> None:
    assert rules([client("basic.ack", delivery_tag=4), deliver(5), client("basic.ack", delivery_tag=5)]) == []


def test_deliveries_lie_between_consume_ok_and_cancel_ok() -> None:
    early = [*OPENED, client("basic.consume", queue="q", consumer_tag="c"), deliver(1)]
    assert ("live-consumer", True) in rules(early)
    racing = [*OPENED, *consuming(), client("basic.cancel", consumer_tag="c"), deliver(1)]
    assert rules(racing) == []
    late = [*racing, server("basic.cancel-ok", consumer_tag="c"), deliver(2)]
    assert rules(late) == [("live-consumer", True)]
    # With no_wait no answer shows when the server has processed it.
    unanswered = [*OPENED, *consuming(), client("basic.cancel", consumer_tag="c", no_wait=True), deliver(1)]
    assert rules(unanswered) == []


def test_redelivered_message_must_have_redelivered_set() -> None:
    first = deliver(1, properties={"message_id": "m1"})
    known = [*OPENED, *consuming(), first, client("basic.nack", delivery_tag=1, requeue=True)]
    again: dict[str, Any] = {"properties": {"message_id": "m1"}}
    assert rules([*known, deliver(2, redelivered=True, **again)]) == []
    assert rules([*known, deliver(2, **again)]) == [("redelivered", False)]
    dead: dict[str, Any] = {"properties": {"message_id": "m1", "headers": {"x-death": []}}}
    assert rules([*known, deliver(2, **dead)]) == []


def test_every_publish_is_confirmed_once() -> None:
    three = [*SELECTED, publish(), publish(), publish()]
    assert rules([*three, server("basic.ack", delivery_tag=3, multiple=True)]) == []
    out_of_order = [server("basic.ack", delivery_tag=2), server("basic.nack", delivery_tag=1)]
    assert rules([*three, *out_of_order, server("basic.ack", delivery_tag=3, multiple=True)]) == []
    (violation,) = judged([*three, *out_of_order, server("basic.ack", delivery_tag=1)])
    assert (violation.rule, violation.actual) == ("one-confirm", "basic.ack 1 is the second")
    assert rules([*three, server("basic.ack", delivery_tag=4)]) == [("one-confirm", True)]
    assert rules([*three, server("basic.ack", delivery_tag=0)]) == [("one-confirm", True)]


def test_publishes_before_confirm_select_do_not_count() -> None:
    before = [*OPENED, publish(), client("confirm.select"), server("confirm.select-ok"), publish()]
    assert rules([*before, server("basic.ack", delivery_tag=1)]) == []
    assert rules([*before, server("basic.ack", delivery_tag=2)]) == [("one-confirm", True)]


def test_return_comes_before_its_confirm() -> None:
    returned = server("basic.return", reply_code=312, reply_text="NO_ROUTE", routing_key="nowhere")
    two = [*SELECTED, publish("nowhere", mandatory=True), publish("nowhere", mandatory=True)]
    assert rules([*two, returned, server("basic.ack", delivery_tag=1), returned]) == []
    assert rules([*two, server("basic.ack", delivery_tag=2, multiple=True), returned]) == [
        ("return-first", True)
    ]
    early = [
        *OPENED,
        publish("nowhere", mandatory=True),
        client("confirm.select"),
        server("confirm.select-ok"),
    ]
    assert rules([*early, returned]) == []


@pytest.mark.parametrize("cut", range(1, 15))
def test_state_can_be_put_aside_and_taken_up_anywhere(cut: int) -> None:
    steps = [*SELECTED, *qos(1), *consuming(), publish("n", mandatory=True), deliver(1), deliver(2)]
    steps += [client("basic.ack", delivery_tag=1), server("basic.ack", delivery_tag=1), deliver(4)]
    steps += [server("basic.return", routing_key="n"), client("basic.ack", delivery_tag=1)]
    whole = MonitorRunner()
    expected = [violation for seen in observations(steps) for violation in whole.observe(seen)]
    assert {found.rule for found in expected} == {
        "delivery-tag",
        "prefetch",
        "known-delivery-tag",
        "return-first",
    }
    first, second = MonitorRunner(), MonitorRunner()
    before = [violation for seen in observations(steps)[:cut] for violation in first.observe(seen)]
    second.readers = pickle.loads(pickle.dumps(first.readers))
    second.monitors = pickle.loads(pickle.dumps(first.monitors))
    after = [violation for seen in observations(steps)[cut:] for violation in second.observe(seen)]
    assert before + after == expected


def test_channels_of_a_closed_connection_are_forgotten() -> None:
    watch = MonitorRunner()
    for seen in observations([*OPENED, *consuming(), deliver(1)]):
        assert list(watch.observe(seen)) == []
    watch.close("1")
    assert {kind.scope for kind, _ in watch.monitors} <= {MonitorScope.QUEUE}
