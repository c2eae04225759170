"""``plumbline replay`` of AMQP: the clients of a capture towards a broker, its server towards a client."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pika
import pytest

from plumbline.captures.files import read
from plumbline.proxy.record import recorded
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.servers.amqp.rabbitmq import RabbitMQ
from tests.captures.test_amqp_trace import connected, consumers, get, topics
from tests.captures.test_trace_writer import COMMAND
from tests.patience import HANGS_AFTER_S
from tests.proxy.replay.test_replay import served

MESSAGES = 20


def acked(channel: Any) -> None:
    """Deliveries whose tags are no small numbers of their own: two consumers, one nack, one multiple."""
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.confirm_delivery()
    for number in range(MESSAGES):
        channel.basic_publish("", queue, b"order %d" % number, mandatory=True)
    taken = [get(channel, queue)[0].delivery_tag for _ in range(3)]
    channel.basic_nack(taken[1])
    channel.basic_ack(get(channel, queue)[0].delivery_tag)
    channel.basic_ack(taken[2], multiple=True)
    channel.queue_purge(queue)


def rpc(channel: Any) -> None:
    """A question to a queue of one's own, whose name stands in reply_to."""
    answers = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_declare("questions", auto_delete=True)
    asked = pika.BasicProperties(reply_to=answers, correlation_id="7")
    channel.basic_publish("", "questions", b"?", asked)
    method, properties, _ = get(channel, "questions")
    channel.basic_publish("", properties.reply_to, b"!", pika.BasicProperties(correlation_id="7"))
    channel.basic_ack(method.delivery_tag)
    assert get(channel, answers)[2] == b"!"


SESSIONS = [acked, rpc, topics, consumers]


def replay(captures: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "replay", str(captures), url, "-o", str(captures / "again"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S)


def is_the_same(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 of them before all earlier answers had arrived" in done.stdout
    assert "1 connection, 1 the same" in done.stdout


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.__name__)
def test_a_replay_on_rabbitmq_is_the_same(rabbitmq: RabbitMQ, tmp_path: Path, session: Any) -> None:
    with recorded(rabbitmq.url, tmp_path) as proxy, connected(proxy.url) as channel:
        session(channel)
    is_the_same(replay(tmp_path, rabbitmq.url))


def test_names_and_tags_are_those_of_now(tmp_path: Path) -> None:
    with AmqpBroker.in_thread() as url:
        with recorded(url, tmp_path) as proxy, connected(proxy.url) as channel:
            rpc(channel)
        is_the_same(replay(tmp_path, url, "--pace", "original"))
    names = [
        {row.fields["queue"] for row in read([place], "amqp") if row.fields["op"] == "queue.declare-ok"}
        for place in (tmp_path, tmp_path / "again")
    ]
    assert [len(some) for some in names] == [2, 2]
    assert names[0] & names[1] == {"questions"}


def test_a_broker_that_behaves_otherwise_differs(tmp_path: Path) -> None:
    with (
        AmqpBroker.in_thread() as url,
        recorded(url, tmp_path) as proxy,
        connected(proxy.url) as channel,
    ):
        acked(channel)
    with AmqpBroker.in_thread(defect=["redelivered-is-never-set"]) as url:
        done = replay(tmp_path, url)
    assert done.returncode == 1
    assert "redelivered" in done.stdout


def test_tags_are_acknowledged_as_they_come_now(tmp_path: Path) -> None:
    with (
        AmqpBroker.in_thread() as url,
        recorded(url, tmp_path) as proxy,
        connected(proxy.url) as channel,
    ):
        acked(channel)
    with AmqpBroker.in_thread(defect=["delivery-tags-skip"]) as url:
        replay(tmp_path, url)
    then, now = (
        [row.fields for row in read([place], "amqp") if row.number]
        for place in (tmp_path, tmp_path / "again")
    )
    tags = [
        [one["delivery_tag"] for one in side if one["op"] in ("basic.ack", "basic.nack", "basic.get-ok")]
        for side in (then, now)
    ]
    assert len(tags[0]) == len(tags[1])
    assert tags[0] != tags[1]
    assert not [one for one in now if one["op"] == "channel.close" and one["sender"] == "server"]


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.__name__)
def test_the_recorded_server_answers_the_same_client(tmp_path: Path, session: Any) -> None:
    with (
        AmqpBroker.in_thread() as url,
        recorded(url, tmp_path) as proxy,
        connected(proxy.url) as channel,
    ):
        session(channel)
    with served(tmp_path, "amqp://127.0.0.1:0") as (url, process):
        with connected(url) as channel:
            session(channel)
        out, err = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 0, out + err
    assert "1 connection, 1 the same" in out


def test_a_client_that_asks_otherwise_differs(tmp_path: Path) -> None:
    with (
        AmqpBroker.in_thread() as url,
        recorded(url, tmp_path) as proxy,
        connected(proxy.url) as channel,
    ):
        channel.queue_declare("q", auto_delete=True)
    with served(tmp_path, "amqp://127.0.0.1:0") as (url, process):
        with connected(url) as channel:
            channel.queue_declare("q", exclusive=True)
        out, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 1
    assert "exclusive" in out
