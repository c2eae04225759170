"""A full disk, a failed fsync, writes that are cut short: at every call of a run that changes files.

What was acknowledged is there when the disk works again, and the broker reports why it ended.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import Struct

from plumbline.captures.files import CaptureSource
from plumbline.captures.reassembly import Reassembler, StreamBytes
from plumbline.captures.segments import segment
from plumbline.proxy.record import recorded
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.durable import DurableShell
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.reference_broker.store_folder import StoreError
from plumbline.wire.nats import Pub
from plumbline.wire.sender import Direction
from tests.durability import amqp_load, load
from tests.durability.faulty_files import FaultyFiles, FileFault
from tests.patience import HANGS_AFTER_S
from tests.proxy.peers import echo, server

MESSAGES = 5
FAILING = [FileFault.FULL, FileFault.HALF, FileFault.FAILS]


class Known(Struct):
    """What clients know for certain: published and acknowledged, consumed and acknowledged."""

    published: set[str]
    consumed: set[str]
    consuming: set[str]  # an acknowledgement is under way: it counts or not


async def nats_clients(url: str, known: Known) -> None:
    """Publishes, consumes some, removes one, publishes again. Raises ``Lost``."""
    link = await load.Link.open(url)
    try:
        await link.ask("$JS.API.STREAM.CREATE.F", {"name": "F", "subjects": ["f"], "storage": "file"})
        config = {"durable_name": "C", "ack_policy": "explicit"}
        await link.ask("$JS.API.CONSUMER.DURABLE.CREATE.F.C", {"stream_name": "F", "config": config})
        for number in range(MESSAGES):
            await nats_publish(link, f"m{number}", known)
        for number in range(2):
            link.send(Pub.make("$JS.API.CONSUMER.MSG.NEXT.F.C", b"", f"{link.inbox}.pull"))
            message = await link.message()
            known.consuming.add(message.payload.decode())
            link.send(Pub.make(message.reply or "", b"+ACK", f"{link.inbox}.acked"))
            await link.message()
            known.consumed.add(f"m{number}")
        known.published.discard("m4")  # removed perhaps from here on
        await link.ask("$JS.API.STREAM.MSG.DELETE.F", {"seq": 5})
        await nats_publish(link, "last", known)
    finally:
        link.close()


async def nats_publish(link: load.Link, name: str, known: Known) -> None:
    link.send(Pub.make("f", name.encode(), f"{link.inbox}.p"))
    assert b'"seq":' in (await link.message()).payload
    known.published.add(name)


def nats_broker(folder: Path, sync: float | str = "always") -> NatsBroker:
    return NatsBroker(jetstream={"store_dir": str(folder), "sync_interval": sync})


def nats_broker_that_seldom_syncs(folder: Path) -> NatsBroker:
    return nats_broker(folder, 3600)


def nats_check(broker: DurableShell, known: Known) -> None:
    assert isinstance(broker, NatsBroker)
    assert isinstance(broker.broker.service, JetStream)
    stream = broker.broker.service.streams.get("F")
    there = {one.payload.decode(): one.seq for one in stream.store.messages()} if stream else {}
    assert known.published <= there.keys(), "acknowledged messages are lost"
    if stream is not None and known.consumed:
        consumer = stream.consumers["C"]
        again = {
            name
            for name, seq in there.items()
            if seq in consumer.acks.pending or seq >= consumer.position.next_seq
        }
        assert not again & known.consumed, "delivered after a confirmed acknowledgement"


async def amqp_clients(url: str, known: Known) -> None:
    """Publishes with confirms, consumes some, publishes again. Raises ``Lost``."""
    link = await amqp_load.Link.open(url)
    try:
        await link.ask("confirm.select")
        for number in range(MESSAGES):
            await amqp_publish(link, f"m{number}", known)
        for _ in range(2):
            link.send("basic.get", queue=amqp_load.QUEUE)
            message = await link.next()
            name = message.body.decode()
            known.consuming.add(name)
            link.send("basic.ack", delivery_tag=message.arguments["delivery_tag"])
            await link.ask("basic.qos")
            known.consumed.add(name)
        await amqp_publish(link, "last", known)
    finally:
        link.close()


async def amqp_publish(link: amqp_load.Link, name: str, known: Known) -> None:
    link.send(
        "basic.publish", routing_key=amqp_load.QUEUE, body=name.encode(), properties={"delivery_mode": 2}
    )
    answer = await link.next()
    assert answer.method == "basic.ack"
    known.published.add(name)


def amqp_broker(folder: Path) -> AmqpBroker:
    return AmqpBroker(data_dir=str(folder))


def amqp_check(broker: DurableShell, known: Known) -> None:
    assert isinstance(broker, AmqpBroker)
    queue = broker.broker.vhosts["/"].queues.get(amqp_load.QUEUE)
    there = (
        {one.message.operation.body.decode() for one in queue.durable_entries.values()} if queue else set()
    )
    assert known.published - known.consuming <= there, "confirmed messages are lost"
    assert not there & known.consumed, "there after its acknowledgement was done"


Clients = Callable[[str, Known], Awaitable[None]]
PROTOCOLS = {
    "nats": (nats_broker, nats_clients, nats_check),
    "nats at intervals": (nats_broker_that_seldom_syncs, nats_clients, nats_check),
    "amqp": (amqp_broker, amqp_clients, amqp_check),
}


async def life(broker: DurableShell, clients: Clients, known: Known) -> str:
    """One broker, from its start to its end; why it ended, if it did not end in order."""
    try:
        await broker.start()
    except (StoreError, OSError) as error:
        return str(error)
    try:
        with suppress(load.Lost):
            await clients(broker.url, known)
    finally:
        await broker.stop()
    return broker.failed.result() if broker.failed is not None and broker.failed.done() else ""


async def one_run(folder: Path, protocol: str, files: FaultyFiles) -> None:
    """A run on these files, then another broker on files that work."""
    make, clients, check = PROTOCOLS[protocol]
    known = Known(set(), set(), set())
    with files.installed():
        why = await life(make(folder), clients, known)
    assert bool(why) == files.failed, f"{why!r}, but a call failed: {files.failed}"
    assert not why or str(folder) in why
    broker = make(folder)
    await broker.start()
    try:
        assert not broker.warnings or why
        check(broker, known)
    finally:
        await broker.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", FAILING)
def test_what_was_acknowledged_survives_a_failure_of_any_call(
    tmp_path: Path, protocol: str, fault: FileFault
) -> None:
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        files = FaultyFiles(folder, fault, number)
        asyncio.run(one_run(folder, protocol, files))
        if files.calls < number:
            break
    assert number > 20


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_writes_that_are_cut_short_go_on(tmp_path: Path, protocol: str) -> None:
    files = FaultyFiles(tmp_path, FileFault.SHORT, 0)
    asyncio.run(one_run(tmp_path, protocol, files))
    assert files.calls > 20


def recorded_run(folder: Path, files: FaultyFiles) -> tuple[bytes, bytes]:
    """What a client sent through a strict recorder, and what came back, until the connection ended."""
    sent = came = b""
    with server(echo) as url, files.installed():
        try:
            with recorded(
                url.replace("tcp", "nats"), folder / "a.pcapng", strict=True, roll_bytes=2000
            ) as proxy:
                place = proxy.relay.address
                with (
                    suppress(OSError),
                    socket.create_connection((place.host, place.port), timeout=HANGS_AFTER_S) as client,
                ):
                    for number in range(8):
                        block = b"PUB a 300\r\n%0300d\r\n" % number
                        client.sendall(block)
                        sent += block
                        while len(came) < len(sent):
                            data = client.recv(65536)
                            if not data:
                                return sent, came
                            came += data
        except OSError:
            assert files.failed, "the recorder did not begin, though the files work"
    return sent, came


@pytest.mark.parametrize("fault", FileFault)
def test_a_capture_has_what_passed_whatever_call_fails(tmp_path: Path, fault: FileFault) -> None:
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        files = FaultyFiles(folder, fault, number)
        sent, came = recorded_run(folder, files)
        to_server, to_client = captured(folder)
        assert sent.startswith(to_server)
        assert to_server.startswith(to_client)
        assert to_client.startswith(came), "bytes have passed that are not recorded"
        if files.calls < number or fault is FileFault.SHORT:
            break
    assert number > 10 or fault is FileFault.SHORT


def captured(folder: Path) -> tuple[bytes, bytes]:
    """Both directions of the one connection. Raises ``CaptureError`` if a file is not readable."""
    reassembler = Reassembler()
    found: tuple[list[bytes], list[bytes]] = ([], [])
    if not any(folder.iterdir()):
        return b"", b""
    for packet in CaptureSource([folder]).packets():
        one = segment(packet)
        for event in reassembler.feed(one) if one is not None else ():
            if isinstance(event, StreamBytes):
                found[event.direction].append(event.data)
    return b"".join(found[Direction.TO_SERVER]), b"".join(found[Direction.TO_CLIENT])
