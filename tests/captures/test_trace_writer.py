"""A recorded session, written as a trace, passes on the server that it was recorded on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from plumbline.proxy.record import recorded
from plumbline.servers.nats.nats_server import NatsServer
from tests.patience import HANGS_AFTER_S

COMMAND = [sys.executable, "-m", "plumbline"]
ODD_TEXT = b' {curly} | bar \\ back "quoted" * \r\n\t\x00\xff caf\xc3\xa9 within 5s '
WAIT_S = 5.0


async def core(client: Client) -> None:
    """Payloads of every kind, headers, a queue, a maximum."""
    came = await client.subscribe("news.*", queue="desk")
    await client.publish("news.odd", ODD_TEXT)
    await client.publish("news.none")
    await client.publish("news.headed", b"body", headers={"A": "b | c", "X": "{y}"})
    await client.publish("news.alone", headers={"A": "b"})
    for _ in range(4):
        await came.next_msg(HANGS_AFTER_S)
    await came.unsubscribe(limit=5)
    await client.publish("news.last", b"within 10ms")
    await came.next_msg(HANGS_AFTER_S)
    await client.flush()


async def pull(client: Client) -> None:
    """A stream and a durable pull consumer, with every kind of acknowledgement."""
    jetstream = client.jetstream()
    await jetstream.add_stream(name="ORDERS", subjects=["ORDERS.>"])
    for number in range(3):
        await jetstream.publish("ORDERS.new", b"order %d" % number)
    orders = await jetstream.pull_subscribe("ORDERS.*", durable="DISPATCH", stream="ORDERS")
    first, second, third = await orders.fetch(3, timeout=WAIT_S)
    await first.ack_sync()
    await second.nak()
    (again,) = await orders.fetch(1, timeout=WAIT_S)
    await again.ack_sync()
    await third.term()
    await jetstream.consumer_info("ORDERS", "DISPATCH")


async def push(client: Client) -> None:
    """A push consumer that the server names, on a stream that was there before."""
    jetstream = client.jetstream()
    came = await jetstream.subscribe("BEFORE.x", stream="BEFORE")
    await jetstream.publish("BEFORE.x", b"one")
    message = await came.next_msg(HANGS_AFTER_S)
    await message.ack_sync()
    await came.unsubscribe()


Session = Callable[[Client], Awaitable[None]]


def play(url: str, session: Session) -> None:
    async def run() -> None:
        async with await nats.connect(url) as client:
            await session(client)

    asyncio.run(run())


def traced(captures: Path, *connections: str) -> Path:
    place = captures / "recorded.trace"
    chosen = [part for number in connections for part in ("--connection", number)]
    subprocess.run(
        [*COMMAND, "trace", str(captures), *chosen, "-o", str(place)], check=True, timeout=HANGS_AFTER_S
    )
    return place


def verify(url: str, trace: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "verify", url, "--trace", str(trace)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == 0, f"{trace.read_text()}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("session", [core, pull], ids=lambda session: session.__name__)
def test_a_recorded_session_passes_where_it_was_recorded(
    nats_server: NatsServer, tmp_path: Path, session: Session
) -> None:
    with recorded(nats_server.url, tmp_path) as proxy:
        play(proxy.url, session)
    trace = traced(tmp_path, "1")
    for operation in ("> CONNECT", "< INFO", "> PONG"):
        assert operation not in trace.read_text()
    verify(nats_server.url, trace)


def test_existing_objects_become_given_lines(nats_server: NatsServer, tmp_path: Path) -> None:
    async def prepare(client: Client) -> None:
        await client.jetstream().add_stream(name="BEFORE", subjects=["BEFORE.>"])

    play(nats_server.url, prepare)
    with recorded(nats_server.url, tmp_path) as proxy:
        play(proxy.url, push)
    text = traced(tmp_path, "1").read_text()
    assert "given     stream BEFORE subjects=BEFORE,BEFORE.>" in text
    assert "deliver_subject" in text


async def talk(url: str) -> None:
    """One receives what the other publishes."""
    async with await nats.connect(url) as listener, await nats.connect(url) as speaker:
        came = await listener.subscribe("news.*")
        probe = await listener.subscribe("probe")  # a flush() may overtake what is pending
        await listener.publish("probe")
        await probe.next_msg(HANGS_AFTER_S)
        await speaker.publish("news.a", b"one")
        await came.next_msg(HANGS_AFTER_S)


def test_several_connections_have_names_and_their_order(nats_server: NatsServer, tmp_path: Path) -> None:
    with recorded(nats_server.url, tmp_path) as proxy:
        asyncio.run(talk(proxy.url))
    trace = traced(tmp_path, "1", "2")
    steps = trace.read_text().split("\n\n", 1)[1].splitlines()
    heard = steps.index("c1< MSG news.a 1 | one")
    assert steps.index("c1> SUB news.* 1") < steps.index("c2> PUB news.a | one") < heard
    verify(nats_server.url, trace)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--connection", "7"], "no connection 7 in "),
        (
            ["--connection", "1"],
            "the server sent no operation after the handshake, so the trace would expect nothing",
        ),
    ],
)
def test_untraceable_capture_is_rejected(
    nats_server: NatsServer, tmp_path: Path, arguments: list[str], message: str
) -> None:
    async def nothing(client: Client) -> None:
        await client.publish("a", b"b")

    with recorded(nats_server.url, tmp_path) as proxy:
        play(proxy.url, nothing)
    done = subprocess.run(
        [*COMMAND, "trace", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == 2
    assert message in done.stderr
