"""What happens when nothing does: timers of connections, queues and messages, in virtual time."""

from __future__ import annotations

import pytest

from plumbline.wire.amqp import PROTOCOL_HEADER, Heartbeat, Method
from tests.reference_broker.amqp.virtual import Client, Virtual

HEARTBEAT = Heartbeat.make().raw


def started(virtual: Virtual) -> Client:
    """A client that was asked to log in."""
    client = virtual.stranger()
    client.raw(PROTOCOL_HEADER)
    client.take()
    return client


def test_half_a_header_gets_no_answer_and_is_dropped_after_ten_seconds() -> None:
    virtual = Virtual()
    client = virtual.stranger()
    client.raw(PROTOCOL_HEADER[:4])
    virtual.pass_time(9.9)
    assert not client.is_ended
    virtual.pass_time(0.2)
    assert client.take() == []
    assert client.is_ended


def test_handshake_timeout_closes_only_unauthenticated() -> None:
    virtual = Virtual()
    late, done = started(virtual), virtual.client()
    virtual.pass_time(60)
    assert late.is_ended
    assert not done.is_ended


@pytest.mark.parametrize(("capable", "answers"), [(True, ["connection.close"]), (False, [])])
def test_a_wrong_password_ends_after_three_seconds(capable: bool, answers: list[str]) -> None:
    virtual = Virtual()
    client = started(virtual)
    client.send(
        "connection.start-ok",
        0,
        client_properties={"capabilities": {"authentication_failure_close": capable}},
        mechanism="PLAIN",
        response="\0guest\0wrong",
    )
    assert client.names() == answers
    virtual.pass_time(2.9)
    assert not client.is_ended
    virtual.pass_time(0.2)
    assert client.is_ended


def test_heartbeat_sent_twice_per_interval_when_idle() -> None:
    virtual = Virtual()
    client = virtual.client(heartbeat=10)
    for _ in range(4):
        virtual.pass_time(5)
        assert client.names() == ["heartbeat"]
        client.raw(HEARTBEAT)
    virtual.pass_time(3)
    assert [one.method for one in client.ask("basic.qos")] == ["basic.qos-ok"]
    virtual.pass_time(4.9)
    assert client.names() == []
    virtual.pass_time(0.2)
    assert client.names() == ["heartbeat"]


def test_silent_client_is_closed_after_two_intervals_and_messages_requeued() -> None:
    virtual = Virtual()
    silent, other = virtual.client(heartbeat=1), virtual.client()
    other.ask("queue.declare", queue="q")
    other.publish("q", "1")
    assert silent.get("q", no_ack=False) == ("1", False)
    virtual.pass_time(1.9)
    assert virtual.ended == set()
    virtual.pass_time(0.2)
    assert virtual.ended == {silent.number}
    silent.leave()
    assert other.drain("q") == [("1", True)]


def test_any_traffic_is_a_sign_of_life() -> None:
    virtual = Virtual()
    client = virtual.client(heartbeat=1)
    for _ in range(10):
        virtual.pass_time(1.5)
        client.send("basic.qos")
    assert not client.is_ended


@pytest.mark.parametrize(
    ("data", "seconds"), [(b"\x09\0\0\0\0\0\0\xce", 3), (Method.make("basic.qos", 9).raw, 30)]
)
def test_missing_close_ok_ends_connection_after_timeout(data: bytes, seconds: float) -> None:
    virtual = Virtual()
    client = virtual.client()
    client.raw(data)
    assert client.names() == ["connection.close"]
    client.send("queue.declare", queue="ignored")
    virtual.pass_time(seconds - 0.1)
    assert client.take() == []
    assert not client.is_ended
    virtual.pass_time(0.2)
    assert client.is_ended


def test_close_ok_ends_connection_immediately() -> None:
    virtual = Virtual()
    client = virtual.client()
    client.send("basic.qos", 9)
    client.send("connection.close-ok", 0)
    assert client.is_ended


def test_unused_queue_is_deleted_after_x_expires() -> None:
    virtual = Virtual()
    client = virtual.client()
    client.send("queue.declare", queue="q", arguments={"x-expires": 1000})
    virtual.pass_time(0.9)
    client.send("basic.get", queue="q")
    virtual.pass_time(0.9)
    client.send("basic.consume", queue="q", consumer_tag="c")
    virtual.pass_time(10)
    client.send("basic.cancel", consumer_tag="c")
    virtual.pass_time(0.9)
    assert "q" in virtual.broker.vhosts["/"].queues
    client.publish("q", "does not use it")
    virtual.pass_time(0.2)
    assert "q" not in virtual.broker.vhosts["/"].queues


def test_messages_expire_at_the_head_alone() -> None:
    virtual = Virtual()
    client = virtual.client()
    client.send("queue.declare", queue="q")
    client.publish("q", "1", properties={"expiration": "1000"})
    client.publish("q", "2")
    client.publish("q", "3", properties={"expiration": "500"})
    queue = virtual.broker.vhosts["/"].queues["q"]
    virtual.pass_time(0.9)
    assert len(queue.ready) == 3
    virtual.pass_time(0.2)
    assert len(queue.ready) == 2
    assert client.drain("q") == [("2", False)]


def test_requeued_message_past_ttl_expires() -> None:
    virtual = Virtual()
    client = virtual.client()
    client.send("queue.declare", queue="dead")
    arguments = {"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.send("queue.declare", queue="q", arguments=arguments)
    client.publish("q", "1")
    assert client.get("q", no_ack=False) == ("1", False)
    virtual.pass_time(1)
    client.send("basic.nack", delivery_tag=1, requeue=True)
    assert client.drain("q") == []
    assert client.drain("dead") == [("1", False)]


def test_publishers_receive_connection_blocked() -> None:
    virtual = Virtual()
    knows, does_not = virtual.client(**{"connection.blocked": True}), virtual.client()
    virtual.carry_out(virtual.broker.block("low on memory", virtual.now))
    late = virtual.client(**{"connection.blocked": True})
    (method,) = knows.take()
    assert isinstance(method, Method)
    assert (method.method, method.arguments["reason"]) == ("connection.blocked", "low on memory")
    virtual.carry_out(virtual.broker.unblock(virtual.now))
    assert [client.names() for client in (knows, does_not, late)] == [
        ["connection.unblocked"],
        [],
        ["connection.unblocked"],
    ]


def test_blocked_publishes_are_processed_in_order_later() -> None:
    virtual = Virtual()
    publisher, consumer = virtual.client(), virtual.client()
    consumer.ask("queue.declare", queue="q")
    virtual.carry_out(virtual.broker.block("low on memory", virtual.now))
    assert [one.method for one in publisher.ask("basic.qos")] == ["basic.qos-ok"]
    publisher.publish("q", "1", "2")
    publisher.send("queue.purge", queue="q")
    publisher.publish("q", "3")
    assert publisher.take() == []
    assert consumer.drain("q") == []
    virtual.carry_out(virtual.broker.unblock(virtual.now))
    (purged,) = publisher.take()
    assert isinstance(purged, Method)
    assert purged.arguments["message_count"] == 2
    assert consumer.drain("q") == [("3", False)]


def test_slow_client_gets_no_deliveries_until_it_reads() -> None:
    virtual = Virtual()
    slow, quick = virtual.client(), virtual.client()
    slow.send("queue.declare", queue="q")
    for client in (slow, quick):
        client.send("basic.consume", queue="q", consumer_tag="c")
        client.take()
    virtual.broker.on_client_slow(slow.number)
    quick.publish("q", *"12345")
    assert slow.take() == []
    assert quick.names() == ["basic.deliver"] * 5
    quick.send("basic.cancel", consumer_tag="c")
    quick.publish("q", "6")
    assert slow.take() == []
    virtual.carry_out(virtual.broker.on_client_ready(slow.number, virtual.now))
    assert slow.names() == ["basic.deliver"]
