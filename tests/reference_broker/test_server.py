"""The asyncio shell, over real sockets: what only it can get wrong."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import struct
import threading
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlsplit

import nats
import pytest

from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats.server import NatsBroker

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


def dial(url: str) -> socket.socket:
    """A connection that has read INFO and sent CONNECT."""
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname, address.port), timeout=5)
    assert connection.recv(65536).startswith(b"INFO {")
    connection.sendall(CONNECT)
    return connection


def receive(connection: socket.socket, size: int) -> bytes:
    """That many bytes, or what came before the end."""
    data = bytearray()  # grows in place: a reader that copies what it has is a slow consumer
    while len(data) < size and (more := connection.recv(65536)):
        data += more
    return bytes(data)


def test_the_url_is_where_it_listens() -> None:
    with NatsBroker.in_thread() as url, closing(dial(url)) as connection:
        connection.sendall(b"PING\r\n")
        assert receive(connection, 6) == b"PONG\r\n"


def test_info_names_the_true_port() -> None:
    with NatsBroker.in_thread() as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
            assert f'"port":{address.port}'.encode() in connection.recv(65536)


def test_nothing_listens_or_runs_after_the_end() -> None:
    running = NatsBroker.in_thread()
    threads = threading.active_count()
    with running as url:
        dial(url).close()
    address = urlsplit(url)
    assert threading.active_count() == threads
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port), timeout=5)


def test_stop_closes_client_connections() -> None:
    running = NatsBroker.in_thread()
    connection = dial(running.start())
    with closing(connection):
        running.stop()
        assert connection.recv(1) == b""


@pytest.mark.parametrize("turns", range(5))
def test_connection_during_stop_is_closed(turns: int) -> None:
    """A socket that was not closed would be found by the collector, as an error of this test."""

    async def stop_as_one_connects() -> None:
        broker = NatsBroker()
        await broker.start()
        with socket.create_connection((broker.host, broker.port), timeout=5) as connection:
            for _ in range(turns):  # of the event loop: it accepts in the second
                await asyncio.sleep(0)
            await broker.stop()
            with suppress(ConnectionResetError):
                receive(connection, 65536)  # up to its end

    asyncio.run(stop_as_one_connects())
    gc.collect()


def test_reset_connection_does_not_delay_stop() -> None:
    async def run() -> None:
        broker = AmqpBroker()
        await broker.start()
        link = socket.create_connection((broker.host, broker.port))
        link.sendall(b"AMQP\x00\x00\x09\x01")
        await asyncio.to_thread(link.recv, 1)  # the broker knows it
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()  # the loop does not know it yet when the broker closes
        await broker.stop()
        assert not broker.is_listening

    asyncio.run(run())


def test_an_address_in_use_is_an_error_that_the_caller_gets() -> None:
    with NatsBroker.in_thread() as url, pytest.raises(OSError, match="in use") as caught:
        NatsBroker.in_thread(port=urlsplit(url).port).start()
    assert caught.value.errno == errno.EADDRINUSE


class BreaksAtTheEnd(NatsBroker):
    async def __aexit__(self, *exception: object) -> None:
        await super().__aexit__(*exception)
        raise OSError("no space left on device")


def test_stop_raises_failure_of_broker_thread() -> None:
    running = BreaksAtTheEnd.in_thread()
    with pytest.raises(OSError, match="no space left"), running as url:
        assert url.startswith("nats://")
    running.stop()  # reported once


class BreaksWhenMoved(NatsBroker):
    def advance(self, seconds: float) -> None:
        raise ValueError("no")


def test_advance_raises_failure_and_broker_continues() -> None:
    running = BreaksWhenMoved.in_thread()
    with running as url:
        with pytest.raises(ValueError, match="no"):
            running.advance(1)
        with closing(dial(url)) as connection:
            connection.sendall(b"PING\r\n")
            assert receive(connection, 6) == b"PONG\r\n"


def test_a_whole_megabyte_passes_and_one_byte_more_does_not() -> None:
    with NatsBroker.in_thread() as url, closing(dial(url)) as connection:
        payload = b"x" * 1024 * 1024
        expected = b"MSG a 1 1048576\r\n" + payload + b"\r\n"
        connection.sendall(b"SUB a 1\r\nPUB a 1048576\r\n" + payload + b"\r\n")
        assert receive(connection, len(expected)) == expected
        connection.sendall(b"PUB a 1048577\r\n")
        assert receive(connection, 1000) == b"-ERR 'Maximum Payload Violation'\r\n"


def test_output_before_close_is_delivered() -> None:
    with NatsBroker.in_thread() as url, closing(dial(url)) as connection:
        connection.sendall(b"SUB a 1\r\n" + b"PUB a 1000\r\n" + b"x" * 1000 + b"\r\nBAD\r\n")
        answer = receive(connection, 10_000)
        assert answer.endswith(b"\r\n-ERR 'Unknown Protocol Operation'\r\n")
        assert len(answer) == len("MSG a 1 1000\r\n\r\n") + 1000 + len(
            "-ERR 'Unknown Protocol Operation'\r\n"
        )


def test_many_messages_to_many_clients_in_order() -> None:
    count, size = 20_000, 100
    with NatsBroker.in_thread() as url, closing(dial(url)) as publisher:
        subscribers = [dial(url) for _ in range(3)]
        for subscriber in subscribers:
            subscriber.sendall(b"SUB a 1\r\nPING\r\n")
            assert receive(subscriber, 6) == b"PONG\r\n"
        messages = [b"%d\r\n%b\r\n" % (size, b"%0*d" % (size, number)) for number in range(count)]
        expected = b"".join(b"MSG a 1 " + message for message in messages)
        sender = threading.Thread(
            target=publisher.sendall, args=(b"".join(b"PUB a " + one for one in messages),)
        )
        sender.start()
        for subscriber in subscribers:
            with closing(subscriber):
                assert receive(subscriber, len(expected)) == expected
        sender.join()


def test_slow_reader_is_disconnected_alone() -> None:
    with (
        NatsBroker.in_thread(max_pending=128 * 1024, write_deadline="300ms") as url,
        closing(dial(url)) as publisher,
        closing(dial(url)) as sleeper,
        closing(dial(url)) as reader,
    ):
        for subscriber in (sleeper, reader):
            subscriber.sendall(b"SUB a 1\r\nPING\r\n")
            assert receive(subscriber, 6) == b"PONG\r\n"
        message = b"MSG a 1 65536\r\n" + b"x" * 65536 + b"\r\n"
        count = 400
        reading = threading.Thread(target=receive, args=(reader, len(message) * count))
        reading.start()
        publisher.sendall((b"PUB a 65536\r\n" + b"x" * 65536 + b"\r\n") * count + b"PING\r\n")
        assert receive(publisher, 6) == b"PONG\r\n"
        reading.join()
        assert not reading.is_alive()
        assert len(_until_the_end(sleeper)) < len(message) * count
        publisher.sendall(b"PUB a 0\r\n\r\n")
        assert receive(reader, 13) == b"MSG a 1 0\r\n\r\n"


def _until_the_end(connection: socket.socket) -> bytes:
    data = b""
    try:
        while more := connection.recv(1 << 20):
            data += more
    except ConnectionResetError:
        pass
    return data


def test_timers_run_by_the_clock() -> None:
    with NatsBroker.in_thread(ping_interval="50ms", ping_max=2) as url, closing(dial(url)) as connection:
        assert receive(connection, 1000) == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"


def test_the_clock_can_be_moved_forward() -> None:
    running = NatsBroker.in_thread()
    with running as url, closing(dial(url)) as connection:
        connection.sendall(b"PING\r\n")
        assert receive(connection, 6) == b"PONG\r\n"
        for expected in (b"PING\r\n", b"PING\r\n", b"-ERR 'Stale Connection'\r\n"):
            running.advance(120)
            assert receive(connection, len(expected)) == expected


def test_a_config_and_keywords_exclude_each_other() -> None:
    config = NatsBroker().config
    assert NatsBroker(config).config is config
    with pytest.raises(TypeError, match="not both"):
        NatsBroker(config, port=1)


def ask_async(**options: Any) -> list[bytes]:
    """What an ordinary nats-py program sees: publish and subscribe, a queue group, request and reply."""

    async def run() -> list[bytes]:
        seen: list[bytes] = []
        async with NatsBroker(**options) as url:
            client = await nats.connect(url, allow_reconnect=False)

            async def answer(message: Any) -> None:
                await message.respond(message.data.upper())

            await client.subscribe("service", queue="workers", cb=answer)
            subscription = await client.subscribe("news.*")
            await client.publish("news.today", b"rain", headers={"From": "sky"})
            message = await subscription.next_msg(timeout=5)
            seen += [message.data, (message.headers or {})["From"].encode()]
            seen.append((await client.request("service", b"hello", timeout=5)).data)
            try:
                await client.request("unused", b"", timeout=5)
            except nats.errors.NoRespondersError:
                seen.append(b"no responders")
            await client.drain()
        return seen

    return asyncio.run(run())


@pytest.mark.parametrize("level", ["2.9", "2.15"])
def test_nats_py_works_with_it(level: str) -> None:
    assert ask_async(level=level) == [b"rain", b"sky", b"HELLO", b"no responders"]
