"""A recorded AMQP session, written as a trace, passes on the broker that it was recorded on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest

from plumbline.proxy.record import recorded
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.servers.amqp.rabbitmq import RabbitMQ
from tests.captures.test_trace_writer import COMMAND, traced, verify
from tests.patience import HANGS_AFTER_S

ODD_TEXT = b' {curly} | bar \\ back "quoted" * \r\n\t\x00\xff caf\xc3\xa9 within 5s '
ODD_HEADERS = {"a": 1, "b": "{x}", "c": ["*", True], "d": {"deep": "ORDERS"}}


@contextmanager
def connected(url: str) -> Iterator[Any]:
    """A channel of a client of its own."""
    parts = urlsplit(url)
    parameters = pika.ConnectionParameters(parts.hostname, parts.port, heartbeat=0)
    with pika.BlockingConnection(parameters) as connection:
        yield connection.channel()


def get(channel: Any, queue: str) -> Any:
    return channel.basic_get(queue)


def topics(channel: Any) -> None:
    """An exchange, a queue that the server names, confirms, a return, acknowledgements of every kind."""
    channel.exchange_declare("news.all", "topic", auto_delete=True)
    queue = channel.queue_declare("", exclusive=True, arguments={"x-max-length": 10}).method.queue
    channel.queue_bind(queue, "news.all", "news.*")
    channel.confirm_delivery()
    properties = pika.BasicProperties(headers=ODD_HEADERS, delivery_mode=2, reply_to=queue)
    for body in (ODD_TEXT, b"", b"x" * 3000):
        channel.basic_publish("news.all", "news.a", body, properties, mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nowhere", b"lost", mandatory=True)
    first, second, third = (get(channel, queue)[0] for _ in range(3))
    channel.basic_nack(second.delivery_tag, requeue=True)
    again = get(channel, queue)[0]
    channel.basic_ack(again.delivery_tag, multiple=True)
    assert get(channel, queue)[0] is None
    assert first.delivery_tag < third.delivery_tag


def consumers(channel: Any) -> None:
    """Deliveries to a consumer, a cancel, a name that no trace can have, an error and a second life."""
    channel.queue_declare("1 odd:name", auto_delete=True)
    channel.basic_qos(prefetch_count=2)
    channel.basic_publish("", "1 odd:name", b"one")
    channel.basic_publish("", "1 odd:name", b"two")
    for came, (method, _, _) in enumerate(channel.consume("1 odd:name"), 1):
        channel.basic_ack(method.delivery_tag)
        if came == 2:
            break
    channel.cancel()
    other = channel.connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        other.queue_declare("nothing", passive=True)


Session = Callable[[Any], None]


def recorded_as_trace(url: str, folder: Path, session: Session) -> Path:
    with recorded(url, folder) as proxy, connected(proxy.url) as channel:
        session(channel)
    return traced(folder, "1")


@pytest.mark.parametrize("session", [topics, consumers], ids=lambda session: session.__name__)
def test_a_recorded_session_passes_on_the_reference_broker(tmp_path: Path, session: Session) -> None:
    with AmqpBroker.in_thread() as url:
        trace = recorded_as_trace(url, tmp_path, session)
        for operation in ("connection.start", "connection.tune", "protocol-header", "amq.gen", "ctag1.\n"):
            assert operation not in trace.read_text()
        verify(url, trace)


@pytest.mark.parametrize("session", [topics, consumers], ids=lambda session: session.__name__)
def test_a_recorded_session_passes_on_rabbitmq(rabbitmq: RabbitMQ, tmp_path: Path, session: Session) -> None:
    verify(rabbitmq.url, recorded_as_trace(rabbitmq.url, tmp_path, session))


def test_existing_objects_become_given_lines(tmp_path: Path) -> None:
    def consume(channel: Any) -> None:
        method, _, body = get(channel, "ORDERS")
        assert body == b"older"
        channel.basic_nack(method.delivery_tag)
        assert get(channel, "ORDERS")[0].redelivered
        channel.exchange_bind("EVENTS", "amq.fanout")

    with AmqpBroker.in_thread() as url, connected(url) as channel:
        channel.queue_declare("ORDERS")
        channel.exchange_declare("EVENTS", "fanout")
        channel.basic_publish("", "ORDERS", b"older")
        trace = recorded_as_trace(url, tmp_path, consume)
        verify(url, trace)
    text = trace.read_text()
    for line in ("given     queue ORDERS", "given     exchange EVENTS type=topic"):
        assert line in text
    assert text.count("given     message ORDERS") == 1


def test_several_connections_have_names(tmp_path: Path) -> None:
    with AmqpBroker.in_thread() as url:
        with recorded(url, tmp_path) as proxy, connected(proxy.url) as one, connected(proxy.url) as other:
            one.queue_declare("shared", auto_delete=True)
            other.confirm_delivery()
            other.basic_publish("", "shared", b"hi")
            method, _, _ = get(one, "shared")
            one.basic_ack(method.delivery_tag)
        trace = traced(tmp_path, "1", "2")
        verify(url, trace)
    steps = trace.read_text().split("\n\n", 1)[1].splitlines()
    assert steps.index('c2> basic.publish routing_key=shared body="hi"') < steps.index(
        'c1< basic.get-ok delivery_tag=1 redelivered=false exchange="" routing_key=shared body="hi"'
    )


def test_a_change_of_the_broker_fails_the_trace(tmp_path: Path) -> None:
    with AmqpBroker.in_thread() as url:
        trace = recorded_as_trace(url, tmp_path, topics)
    trace.write_text(trace.read_text().replace("redelivered=true", "redelivered=false"))
    with AmqpBroker.in_thread() as url:
        result = tmp_path / "r.json"
        command = [*COMMAND, "verify", url, "--trace", str(trace), "--json", str(result)]
        assert (
            subprocess.run(command, capture_output=True, check=False, timeout=HANGS_AFTER_S).returncode == 1
        )
    (check,) = json.loads(result.read_text())["checks"]
    assert "redelivered" in check["message"]
