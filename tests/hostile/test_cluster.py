"""``plumbline cluster`` on nodes that are hostile: it ends with a sentence, and within bounded memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plumbline.bounds import (
    CLUSTER_COPY_SEQUENCES,
    CLUSTER_MESSAGE_BYTES,
    CLUSTER_REMARKS,
    CLUSTER_UNSENT_BYTES,
)
from plumbline.cluster.history import message_text
from plumbline.cluster.nats.answers import read_answer
from plumbline.cluster.nats.connection import Message, NodeConnection
from plumbline.cluster.nats.reading import number_in, read_copy
from plumbline.conformance.targets.urls import NatsUrl
from plumbline.errors import ExitCode
from plumbline.wire.nats import Ping
from tests.hostile import amqp_servers, nats_servers
from tests.hostile.running import MOST_MEMORY, cluster
from tests.hostile.sockets import serving

SCRIPTS = {"nats": nats_servers.SERVERS, "amqp": amqp_servers.SERVERS}
FLOODED_MEMORY = 2 * MOST_MEMORY  # it also keeps the deliveries that the bound allows


@pytest.mark.parametrize(
    ("protocol", "name", "sentence"),
    [
        ("nats", "endless-info", "the stream could not be created: "),
        ("nats", "err-flood", "the stream could not be created: no answer"),
        ("nats", "ping-flood", "the stream could not be created: no answer"),
        ("nats", "wrong-types", "was refused: not an answer of the JetStream API: Expected `object"),
        ("nats", "nested-answer", "was refused: not an answer of the JetStream API: it is nested too deeply"),
        ("nats", "long-answer", "was refused: not an answer of the JetStream API: Integer value"),
        ("amqp", "nested-table", "the queue could not be declared: "),
        ("amqp", "small-body-frames", "the queue could not be declared: payload too large"),
        ("amqp", "on-many-channels", "the queue could not be declared: payload too large"),
        ("amqp", "empty-deliveries", "the cluster floods: "),
    ],
)
def test_a_hostile_node_ends_the_run_with_a_sentence(
    protocol: str, name: str, sentence: str, tmp_path: Path
) -> None:
    with serving(SCRIPTS[protocol][name]) as address:
        cost = cluster(tmp_path, f"{protocol}://{address}")
    assert sentence in cost.err, cost.err[-500:]
    assert cost.err.strip().splitlines()[-1].startswith("plumbline: ")
    assert cost.code == ExitCode.TARGET_LOST
    assert cost.largest < FLOODED_MEMORY


def test_a_copy_of_impossible_length_is_not_read() -> None:
    log = asyncio.run(read_copy(0, "nats://127.0.0.1:1", "S", (1, CLUSTER_COPY_SEQUENCES + 1, 5)))
    assert not log.complete
    assert "too many to be read" in log.problem


@pytest.mark.parametrize("payload", [b"[]", b"\xff", b"[" * 100_000, b'{"seq":' + b"9" * 5000 + b"}", b"{"])
def test_what_is_not_an_answer_is_an_error(payload: bytes) -> None:
    error = read_answer(payload).error
    assert error is not None
    assert "not an answer of the JetStream API" in str(error)


@pytest.mark.parametrize("text", ["", "-1", "\u00b2", "9" * 5000, "1.5", "\u0661"])
def test_a_text_that_is_no_number_is_minus_1(text: str) -> None:
    assert number_in(text) == -1


def test_the_history_keeps_the_beginning_of_a_long_message() -> None:
    assert message_text(b"\xff" * 1_000_000) == "\ufffd" * CLUSTER_MESSAGE_BYTES


class Transport:
    """What a connection uses of one."""

    def __init__(self) -> None:
        self.unsent = 0
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes) -> None:
        self.unsent += len(data)

    def abort(self) -> None:
        self.is_aborted = True


def test_a_node_that_pings_and_does_not_read_loses_the_connection() -> None:
    async def play() -> tuple[Transport, NodeConnection]:
        url = NatsUrl.parse("nats://127.0.0.1:4222")
        connection, transport = NodeConnection(url, "a", no_message), Transport()
        connection.connection_made(transport)
        while connection.is_open and transport.unsent < 2 * CLUSTER_UNSENT_BYTES:
            connection.data_received(Ping.make().raw * 100_000)
        return transport, connection

    transport, connection = asyncio.run(play())
    assert transport.is_aborted
    assert not connection.is_open
    assert transport.unsent < 2 * CLUSTER_UNSENT_BYTES


def no_message(message: Message, now: int) -> None:
    raise AssertionError(message)


def test_errors_of_a_connection_are_bounded() -> None:
    async def play() -> list[str]:
        connection = NodeConnection(NatsUrl.parse("nats://127.0.0.1:4222"), "a", no_message)
        connection.connection_made(Transport())
        connection.data_received(b"-ERR 'no'\r\n" * (CLUSTER_REMARKS + 10))
        return connection.errors

    assert len(asyncio.run(play())) == CLUSTER_REMARKS
