"""Confirms that follow a script: what a publisher hears, when, and what it does not hear."""

from __future__ import annotations

import subprocess
import sys

import pika
import pytest
from pika.exceptions import NackError

from plumbline.reference_broker.amqp.messages.confirm_script import read_script
from plumbline.wire.amqp import Method, Operation
from tests.patience import HANGS_AFTER_S
from tests.reference_broker.amqp.virtual import Client, Virtual

COMMAND = [sys.executable, "-m", "plumbline", "broker", "amqp", "-p", "-1"]


def publisher(script: str) -> tuple[Virtual, Client]:
    """A client with confirms and a queue ``q``; confirms follow ``script``."""
    virtual = Virtual(confirms=script)
    client = virtual.client()
    client.send("queue.declare", queue="q")
    client.send("confirm.select")
    client.take()
    return virtual, client


def steps(operations: list[Operation]) -> list[str]:
    """Confirms and closes as steps of a script."""
    lines = []
    for one in operations:
        assert isinstance(one, Method)
        multiple = " multiple" if one.arguments.get("multiple") else ""
        tag = f" {one.arguments['delivery_tag']}" if "delivery_tag" in one.arguments else ""
        lines.append(one.method.removeprefix("basic.") + tag + multiple)
    return lines


def test_nothing_is_confirmed_before_all_are_published() -> None:
    _, client = publisher("3: ack 3 multiple")
    client.publish("q", "1", "2")
    assert client.take() == []
    client.publish("q", "3")
    assert steps(client.take()) == ["ack 3 multiple"]


def test_confirms_come_in_the_order_of_the_script() -> None:
    _, client = publisher("4: ack 3, nack 1, ack 4 multiple")
    client.publish("q", "1", "2", "3", "4")
    assert steps(client.take()) == ["ack 3", "nack 1", "ack 4 multiple"]


def test_publishes_after_script_are_confirmed_normally() -> None:
    _, client = publisher("1: nack 1")
    client.publish("q", "1", "2")
    assert steps(client.take()) == ["nack 1", "ack 2"]


def test_each_channel_goes_through_the_script() -> None:
    _, client = publisher("1: nack 1")
    client.send("channel.open", 2)
    client.send("confirm.select", 2)
    client.take()
    client.publish("q", "1")
    client.publish("q", "1", channel=2)
    assert [(one.channel, *steps([one])) for one in client.take()] == [(1, "nack 1"), (2, "nack 1")]


def test_returns_come_at_once_and_their_acks_by_the_script() -> None:
    _, client = publisher("2: ack 2, ack 1")
    client.publish("nowhere", "1", mandatory=True)
    assert client.names() == ["basic.return"]
    client.publish("q", "2")
    assert steps(client.take()) == ["ack 2", "ack 1"]


def test_a_pause_is_waited_for() -> None:
    virtual, client = publisher("2: ack 1, pause 200, ack 2")
    client.publish("q", "1", "2")
    assert steps(client.take()) == ["ack 1"]
    virtual.pass_time(0.19)
    assert client.take() == []
    virtual.pass_time(0.02)
    assert steps(client.take()) == ["ack 2"]


def test_the_channel_is_closed_and_the_connection_goes_on() -> None:
    _, client = publisher("2: ack 2, close")
    client.publish("q", "1", "2")
    assert steps(client.take()) == ["ack 2", "channel.close"]
    client.send("channel.close-ok")
    client.send("channel.open")
    assert client.names() == ["channel.open-ok"]


def test_the_connection_is_cut() -> None:
    _, client = publisher("2: ack 1, cut")
    client.publish("q", "1", "2")
    assert steps(client.take()) == ["ack 1"]
    assert client.is_ended


WRONG = ["", "ack 1", "0: ack 1", "2: ack 3", "2: ack 0", "1: shrug", "1: pause 5 multiple"]


@pytest.mark.parametrize("text", WRONG)
def test_invalid_script_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"script|no step"):
        read_script(text)


def test_the_command_line_refuses_a_wrong_script() -> None:
    ended = subprocess.run(
        [*COMMAND, "--confirms", "2: ack 3"],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "plumbline: confirm script '2: ack 3': ack 3 is not one of the publishes\n"


def test_the_command_line_takes_a_script() -> None:
    with subprocess.Popen(
        [*COMMAND, "--confirms", "1: nack 1"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            connection = pika.BlockingConnection(pika.URLParameters(process.stdout.readline().split()[0]))
            channel = connection.channel()
            channel.confirm_delivery()
            with pytest.raises(NackError):
                channel.basic_publish("", "nowhere", b"refused by the script")
            connection.close()
        finally:
            process.kill()
