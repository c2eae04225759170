"""The shell of a broker with files: what is not written is not reported, and many changes are one write."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.reference_broker.store_folder import StoreError
from plumbline.reference_broker.write_queue import Append, Change

CREATE = b'{"name":"F","subjects":["f"],"storage":"file"}'
GREETING = b'CONNECT {"verbose":false}\r\nSUB i 1\r\nPUB $JS.API.STREAM.CREATE.F i %d\r\n%b\r\n'


def with_files(folder: Path, **options: Any) -> NatsBroker:
    return NatsBroker(jetstream={"store_dir": str(folder), **options})


async def client(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client, and a stream in files."""
    host, port = url.removeprefix("nats://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(GREETING % (len(CREATE), CREATE))
    await reader.readuntil(b'"did_create":true}\r\n')
    return reader, writer


class Spy:
    """Takes the place of ``StoreFolder.write``; ``seen`` is what it was given."""

    def __init__(self, broker: NatsBroker, fails: OSError | None = None) -> None:
        assert broker.storage is not None
        self.seen: list[list[Change]] = []
        self.fails = fails
        self._write = broker.storage.folder.write
        broker.storage.folder.write = self.write  # type: ignore[method-assign]

    def write(self, changes: Iterable[Change]) -> None:
        self.seen.append(list(changes))
        if self.fails:
            raise self.fails
        self._write(self.seen[-1])


@pytest.mark.parametrize("sync", ["always", "never", 60.0])
def test_many_messages_are_one_write_before_their_acknowledgements(tmp_path: Path, sync: str | float) -> None:
    async def run() -> None:
        broker = with_files(tmp_path, sync_interval=sync)
        async with broker as url:
            reader, writer = await client(url)
            spy = Spy(broker)
            writer.write(b"PUB f i 1\r\nx\r\n" * 500)
            await reader.readuntil(b'"seq":500}')
            appended = [change for changes in spy.seen for change in changes]
            assert all(isinstance(change, Append) for change in appended)
            assert len(appended) < 20
            writer.close()

    asyncio.run(run())


def test_failed_write_is_not_acknowledged(tmp_path: Path) -> None:
    async def run() -> None:
        broker = with_files(tmp_path)
        async with broker as url:
            reader, writer = await client(url)
            Spy(broker, OSError(errno.ENOSPC, "No space left on device"))
            writer.write(b"PUB f i 1\r\nx\r\n")
            try:
                heard = await reader.read()
            except ConnectionError:
                heard = b""
            assert b'"seq"' not in heard
            assert broker.failed is not None
            assert "cannot be written: [Errno 28] No space left" in await broker.failed
            writer.close()
        async with with_files(tmp_path) as url:  # what was acknowledged before is there
            reader, writer = await asyncio.open_connection(*url.removeprefix("nats://").split(":"))
            writer.write(b'CONNECT {"verbose":false}\r\nSUB i 1\r\nPUB $JS.API.STREAM.INFO.F i 0\r\n\r\n')
            assert b'"messages":0' in await reader.readuntil(b'"last_seq":0')
            writer.close()

    asyncio.run(run())


def test_by_interval_the_disk_is_reached_without_further_messages(tmp_path: Path) -> None:
    async def run() -> None:
        broker = with_files(tmp_path, sync_interval=0.01)
        async with broker as url:
            assert broker.storage is not None
            folder, synced = broker.storage.folder, asyncio.Event()
            sync = folder.sync

            def spy() -> None:
                sync()
                synced.set()

            folder.sync = spy  # type: ignore[method-assign]
            _, writer = await client(url)
            writer.write(b"PUB f i 1\r\nx\r\n")
            await asyncio.wait_for(synced.wait(), 30)
            writer.close()

    asyncio.run(run())


def test_two_brokers_do_not_share_a_store(tmp_path: Path) -> None:
    async def run() -> None:
        async with with_files(tmp_path):
            with pytest.raises(StoreError, match="in use by another broker"):
                await with_files(tmp_path).start()

    asyncio.run(run())


def test_a_broker_that_cannot_listen_lets_go_of_its_store(tmp_path: Path) -> None:
    async def run() -> None:
        async with NatsBroker() as url:
            port = int(url.rpartition(":")[2])
            with pytest.raises(OSError, match=r"in use|bind"):
                await NatsBroker(port=port, jetstream={"store_dir": str(tmp_path)}).start()
        async with with_files(tmp_path):
            pass

    asyncio.run(run())


def test_a_broker_that_has_stopped_writes_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        broker = with_files(tmp_path)
        async with broker as url:
            _, writer = await client(url)
            writer.close()
        spy = Spy(broker)
        assert broker.storage is not None
        broker.storage.write_queue.append("streams/F/msgs/1.blk", b"late")
        broker.advance(3600)
        await asyncio.sleep(0)  # the turn in which it would be written
        await asyncio.sleep(0)
        await broker.stop()
        assert not spy.seen

    asyncio.run(run())
