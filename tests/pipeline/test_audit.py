"""Audits of conversations: which message a receiver had to get, and what the captures do not show."""

from __future__ import annotations

import pytest

from plumbline.monitors.histories import HistoryOutcome, Judgement
from plumbline.wire import nats
from tests.pipeline.support.conversations import STORED_AT, Conversations


@pytest.fixture
def talks() -> Conversations:
    return Conversations()


def counts(judgement: Judgement) -> dict[str, int]:
    """How many of each, where there are any."""
    kinds = ("ok", "lost_prefix", "lost_middle", "lost_postfix", "duplicated", "unexpected", "indeterminate")
    return {kind: number for kind in kinds if (number := len(getattr(judgement, kind)))}


# -- JetStream --


def test_delivered_and_acknowledged_is_ok(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    for number in range(1, 4):
        publisher.publish(f"m{number}", number)
        consumer.delivered(f"m{number}", number, number)
    assert counts(talks.judged()) == {"ok": 3}


def test_overtaken_message_is_lost_and_last_is_indeterminate(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    for number in range(1, 6):
        publisher.publish(f"m{number}", number)
    consumer.delivered("m2", 2, 1)
    consumer.delivered("m4", 4, 2)
    assert counts(talks.judged()) == {"ok": 2, "lost_prefix": 1, "lost_middle": 1, "indeterminate": 1}


def test_last_message_is_lost_after_empty_pull(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    consumer.client(nats.Sub.make("_INBOX.n", 2))
    publisher.publish("m1", 1)
    publisher.publish("m2", 2)
    consumer.delivered("m1", 1, 1)
    consumer.nothing_left()
    assert counts(talks.judged()) == {"ok": 1, "lost_postfix": 1}


def test_pull_proves_nothing_while_acknowledgements_are_missing(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    consumer.client(nats.Sub.make("_INBOX.n", 2))
    publisher.publish("m1", 1)
    publisher.publish("m2", 2)
    consumer.deliver("m1", 1, 1)
    consumer.nothing_left()
    assert counts(talks.judged()) == {"indeterminate": 2}


def test_a_retry_that_is_stored_twice_is_a_duplicate(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.publish("m1")
    publisher.publish("m1", 2)
    consumer.delivered("m1", 1, 1)
    consumer.delivered("m1", 2, 2)
    assert counts(talks.judged()) == {"duplicated": 1}


def test_same_payload_after_answer_is_new_message(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.publish("tick", 1)
    publisher.publish("tick", 2)
    consumer.delivered("tick", 1, 1)
    consumer.delivered("tick", 2, 2)
    assert counts(talks.judged()) == {"ok": 2}


def test_a_redelivery_after_a_nak_is_no_duplicate(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.publish("m1", 1)
    consumer.client(nats.Pub.make(consumer.deliver("m1", 1, 1), b"-NAK"))
    consumer.client(nats.Pub.make(consumer.deliver("m1", 1, 2, delivered=2), b"+ACK"))
    assert counts(talks.judged()) == {"ok": 1}


def test_a_delivery_after_a_confirmed_acknowledgement_is_a_duplicate(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.publish("m1", 1)
    consumer.client(nats.Pub.make(consumer.deliver("m1", 1, 1), b"+ACK", "_INBOX.a"))
    consumer.server(nats.Msg.make("_INBOX.a", 3, b""))
    consumer.deliver("m1", 1, 2, delivered=2)
    assert counts(talks.judged()) == {"duplicated": 1}


def test_unacknowledged_message_is_indeterminate(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.publish("m1", 1)
    consumer.deliver("m1", 1, 1)
    assert counts(talks.judged()) == {"indeterminate": 1}


def test_changed_payload_is_lost_and_unexpected(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.publish("m1", 1)
    publisher.publish("m2", 2)
    consumer.delivered("mX", 1, 1)
    consumer.delivered("m2", 2, 2)
    assert counts(talks.judged()) == {"ok": 1, "lost_prefix": 1, "unexpected": 1}


def test_delivery_of_refused_publish_is_unexpected(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.publish("m1", 1)
    publisher.refused("m2")
    consumer.delivered("m1", 1, 1)
    assert counts(talks.judged()) == {"ok": 1}
    consumer.delivered("m2", 2, 2)
    assert counts(talks.judged()) == {"ok": 1, "unexpected": 1}


def test_a_publish_without_an_answer_may_be_missing(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.publish("m1")
    publisher.publish("m2", 2)
    consumer.delivered("m2", 2, 1)
    assert counts(talks.judged()) == {"ok": 1, "indeterminate": 1}


def test_messages_stored_before_capture_are_not_unexpected(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.publish("m2", 2)
    consumer.deliver("m1", 1, 1, stored=STORED_AT - 1)
    consumer.delivered("m2", 2, 2)
    (one,) = talks.audited()
    assert counts(one.judgement) == {"ok": 1}
    assert one.remarks == ("1 more were stored before the captures begin",)


def test_deliveries_before_consumer_capture_are_not_judged(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    for number in range(1, 4):
        publisher.publish(f"m{number}", number)
    later = STORED_AT + 4_000_000  # between the second message and the third
    consumer.client(nats.Pub.make(consumer.deliver("m3", 3, 3, stored=later), b"+ACK"))
    (one,) = talks.audited()
    assert counts(one.judgement) == {"ok": 1}
    assert one.remarks == ("2 more were published before the captures show the receiver",)


def test_a_consumer_is_not_expected_to_get_what_its_filter_leaves_out(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    info = (
        b'{"type":"io.nats.jetstream.api.v1.consumer_info_response","stream_name":"S","name":"C",'
        b'"config":{"filter_subject":"o.x","ack_policy":"none"},"delivered":{"consumer_seq":0,"stream_seq":0},'
        b'"ack_floor":{"consumer_seq":0,"stream_seq":0},"num_ack_pending":0,"num_redelivered":0,'
        b'"num_waiting":0,"num_pending":0}'
    )
    consumer.client(nats.Pub.make("$JS.API.CONSUMER.INFO.S.C", b"", "_INBOX.i"))
    consumer.server(nats.Msg.make("_INBOX.i", 1, info))
    publisher.publish("m1", 1)
    publisher.publish("other", 2, subject="o.y")
    publisher.publish("m3", 3)
    consumer.deliver("m1", 1, 1)
    consumer.deliver("m3", 3, 2)
    assert counts(talks.judged()) == {"ok": 2}


def test_missing_message_with_capture_gap_is_indeterminate(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    for number in range(1, 4):
        publisher.publish(f"m{number}", number)
    consumer.delivered("m1", 1, 1)
    consumer.auditor.mark_incomplete()
    consumer.delivered("m3", 3, 3)
    assert counts(talks.judged()) == {"ok": 2, "indeterminate": 1}


def test_unpublished_message_with_publisher_gap_is_only_a_remark(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.publish("m1", 1)
    publisher.auditor.mark_incomplete()
    consumer.delivered("m1", 1, 1)
    consumer.delivered("m2", 2, 2)
    (one,) = talks.audited()
    assert counts(one.judgement) == {"ok": 1}
    assert "1 more came from publishers" in one.remarks[0]


# -- subscriptions --


def test_subscription_receives_only_while_active(talks: Conversations) -> None:
    publisher, consumer = talks.nats("1"), talks.nats("2")
    publisher.client(nats.Pub.make("a.b", b"before"))
    consumer.client(nats.Sub.make("a.*", 1), nats.Ping.make())
    consumer.server(nats.Pong.make())
    publisher.client(nats.Pub.make("a.b", b"1"), nats.Pub.make("a.b", b"2"), nats.Ping.make())
    publisher.server(nats.Pong.make())
    consumer.server(nats.Msg.make("a.b", 1, b"2"))
    consumer.client(nats.Unsub.make(1))
    publisher.client(nats.Pub.make("a.b", b"after"))
    assert counts(talks.judged()) == {"ok": 1, "lost_prefix": 1}


def test_answers_are_no_messages(talks: Conversations) -> None:
    asking, service = talks.nats("1"), talks.nats("2")
    service.client(nats.Sub.make("help", 1))
    asking.client(nats.Sub.make("my.answers", 1), nats.Pub.make("help", b"?", "my.answers"))
    service.server(nats.Msg.make("help", 1, b"?", "my.answers"))
    service.client(nats.Pub.make("my.answers", b"!"))
    asking.server(nats.Msg.make("my.answers", 1, b"!"))
    assert [one.receiver for one in talks.audited()] == ["subscription help of connection 2, sid 1"]
    assert talks.judged().outcome is HistoryOutcome.OK


# -- AMQP --


def test_a_queue_that_gives_what_was_confirmed_is_ok(talks: Conversations) -> None:
    publisher, consumer = talks.amqp("1"), talks.amqp("2")
    publisher.client("confirm.select")
    consumer.consume()
    for number in (1, 2):
        publisher.publish(f"m{number}")
        publisher.confirm(number)
        consumer.delivered(f"m{number}", number)
    assert counts(talks.judged()) == {"ok": 2}


def test_a_queue_that_skips_a_message_has_lost_it(talks: Conversations) -> None:
    publisher, consumer = talks.amqp("1"), talks.amqp("2")
    publisher.client("confirm.select")
    consumer.consume()
    for number in (1, 2, 3):
        publisher.publish(f"m{number}")
        publisher.confirm(number)
    consumer.delivered("m1", 1)
    consumer.delivered("m3", 2)
    assert counts(talks.judged()) == {"ok": 2, "lost_middle": 1}


def test_empty_queue_means_undelivered_is_lost(talks: Conversations) -> None:
    publisher, consumer = talks.amqp("1"), talks.amqp("2")
    publisher.client("confirm.select")
    consumer.consume()
    publisher.publish("m1")
    publisher.confirm(1)
    consumer.client("basic.get", queue="q")
    consumer.server("basic.get-empty")
    assert counts(talks.judged()) == {"lost_postfix": 1}


def test_returned_or_refused_message_is_not_lost(talks: Conversations) -> None:
    publisher, consumer = talks.amqp("1"), talks.amqp("2")
    publisher.client("confirm.select")
    consumer.consume()
    publisher.publish("m1")
    publisher.server(
        "basic.return", b"m1", reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key="q"
    )
    publisher.confirm(1)
    publisher.publish("m2")
    publisher.confirm(2, "nack")
    publisher.publish("m3")
    publisher.confirm(3)
    consumer.delivered("m3", 1)
    assert counts(talks.judged()) == {"ok": 1, "indeterminate": 1}


def test_a_second_copy_is_a_duplicate_and_a_redelivery_is_none(talks: Conversations) -> None:
    publisher, consumer = talks.amqp("1"), talks.amqp("2")
    publisher.client("confirm.select")
    consumer.consume()
    for number, text in enumerate(("twice", "again"), 1):
        publisher.publish(text)
        publisher.confirm(number)
    consumer.delivered("twice", 1)
    consumer.delivered("twice", 2)
    consumer.deliver("again", 3)
    consumer.client("basic.nack", delivery_tag=3, multiple=False, requeue=True)
    consumer.delivered("again", 4, again=True)
    judgement = talks.judged()
    assert counts(judgement) == {"ok": 1, "duplicated": 1}


def test_orderly_channel_close_proves_that_publishes_were_read(talks: Conversations) -> None:
    publisher, consumer = talks.amqp("1"), talks.amqp("2")
    consumer.consume()
    publisher.publish("m1")
    consumer.client("basic.get", queue="q")
    consumer.server("basic.get-empty")
    assert counts(talks.judged()) == {"indeterminate": 1}
    publisher.client("channel.close", reply_code=200)
    publisher.server("channel.close-ok")
    consumer.client("basic.get", queue="q")
    consumer.server("basic.get-empty")
    assert counts(talks.judged()) == {"lost_postfix": 1}


def test_a_queue_is_expected_to_get_what_its_binding_asks_for(talks: Conversations) -> None:
    publisher, consumer = talks.amqp("1"), talks.amqp("2")
    publisher.client("confirm.select")
    consumer.client("queue.bind", queue="q", exchange="ex", routing_key="k")
    consumer.consume()
    for number, key in enumerate(("k", "other", "k"), 1):
        publisher.publish(f"m{number}", key, "ex")
        publisher.confirm(number)
    consumer.deliver("m3", 1, routing_key="k", exchange="ex")
    consumer.client("basic.ack", delivery_tag=1, multiple=False)
    assert counts(talks.judged()) == {"ok": 1, "lost_prefix": 1}
