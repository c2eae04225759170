"""A client with very many subscriptions leaves: its interest ends at once, the work is done in parts."""

from __future__ import annotations

import pytest

from plumbline.bounds import SUBSCRIPTIONS_AT_ONCE
from tests.reference_broker.virtual import Client, Virtual

MANY = 3 * SUBSCRIPTIONS_AT_ONCE + 7


def subscribed(virtual: Virtual, count: int, form: str) -> Client:
    client = virtual.client()
    client.send("".join(f"SUB {form.format(number)} {number}\r\n" for number in range(count)).encode())
    assert client.take() == []
    return client


@pytest.mark.parametrize("form", ["s.{}", "s.{}.*"])
def test_each_event_takes_out_a_bounded_number_and_others_are_served_between(form: str) -> None:
    virtual = Virtual()
    subscribed(virtual, MANY, form).leave()
    router, other = virtual.broker.router, virtual.client()
    events = 0
    while left := sum(map(len, router.leaving)):
        assert virtual.broker.next_wake() == virtual.now
        subject = form.format(events).replace("*", "a")
        (status,) = other.ask(f"SUB r 1\nPUB {subject} r 0\n\nUNSUB 1")
        assert "NATS/1.0 503" in status
        assert left - sum(map(len, router.leaving)) <= SUBSCRIPTIONS_AT_ONCE
        events += 1
    assert events >= 2
    assert not router.leaving
    assert router.subscriptions.match(form.format(MANY - 1).replace("*", "a").encode()) == []
    assert not router.subscriptions._literals
    assert not router.subscriptions._wildcards.below


def test_time_that_passes_takes_out_all() -> None:
    virtual = Virtual()
    subscribed(virtual, MANY, "s.{}").leave()
    virtual.pass_time(0.001)
    assert not virtual.broker.router.leaving
    assert not virtual.broker.router.subscriptions._literals


def test_nothing_is_delivered_to_a_client_that_has_left() -> None:
    virtual = Virtual()
    leaving = subscribed(virtual, MANY, "s.{}")
    staying = virtual.client()
    staying.send(f"SUB s.{MANY - 1} 1\nSUB s.1 1 workers\nSUB s.* 2")
    leaving.leave()
    assert virtual.broker.router.leaving
    publisher = virtual.client()
    publisher.send(f"PUB s.{MANY - 1} 1\nx\nPUB s.0 1\ny")
    assert staying.take() == [f"MSG s.{MANY - 1} 2 1 | x", f"MSG s.{MANY - 1} 1 1 | x", "MSG s.0 2 1 | y"]
    assert leaving.take_bytes() == b""


def test_push_consumers_hear_that_their_subscriber_has_left() -> None:
    virtual = Virtual(jetstream=True)
    leaving = subscribed(virtual, MANY, "s.{}")
    maker = virtual.client()
    config = f'{{"deliver_subject":"s.{MANY - 1}","durable_name":"C","ack_policy":"none"}}'
    body = f'{{"stream_name":"S","config":{config}}}'
    stream = '{"name":"S","subjects":["a"],"storage":"memory"}'
    maker.send(f"SUB r 1\nPUB $JS.API.STREAM.CREATE.S r {len(stream)}\n{stream}")
    maker.send(f"PUB $JS.API.CONSUMER.DURABLE.CREATE.S.C r {len(body)}\n{body}")
    info = "PUB $JS.API.CONSUMER.INFO.S.C r 0\n"
    maker.take()
    assert '"push_bound":true' in maker.ask(info)[0]
    leaving.leave()
    virtual.pass_time(0.001)
    assert '"push_bound":true' not in maker.ask(info)[0]
