"""nats-py's key-value and object store API on the reference broker."""

from __future__ import annotations

import pytest
from nats.js import JetStreamContext
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KeyValue

from tests.reference_broker.jetstream.test_nats_py import LEVELS, play


@LEVELS
def test_a_bucket_puts_gets_updates_and_deletes(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket="cfg", history=3)
        assert await bucket.put("a", b"one") == 1
        assert await bucket.create("b", b"two") == 2
        with pytest.raises(KeyWrongLastSequenceError):
            await bucket.create("b", b"again")
        assert await bucket.update("a", b"three", last=1) == 3
        with pytest.raises(KeyWrongLastSequenceError):
            await bucket.update("a", b"stale", last=1)
        entry = await bucket.get("a")
        assert (entry.value, entry.revision) == (b"three", 3)
        assert (await bucket.get("a", revision=1)).value == b"one"
        assert sorted(await bucket.keys()) == ["a", "b"]
        assert [one.value for one in await bucket.history("a")] == [b"one", b"three"]
        await bucket.delete("a")
        with pytest.raises(KeyNotFoundError):
            await bucket.get("a")
        await bucket.purge("a")
        assert (await bucket.status()).values == 2
        assert await js.delete_key_value("cfg")

    play(scenario, level)


@LEVELS
def test_watch_signals_end_of_initial_values(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket="cfg")
        await bucket.put("a", b"one")
        await bucket.put("b", b"two")
        watcher = await bucket.watchall()
        seen = [await watcher.updates(timeout=1) for _ in range(3)]  # type: ignore[no-untyped-call]
        assert [entry and entry.key for entry in seen] == ["a", "b", None]
        await bucket.put("a", b"three")
        entry = await watcher.updates(timeout=1)  # type: ignore[no-untyped-call]
        assert isinstance(entry, KeyValue.Entry)
        assert entry.value == b"three"
        await watcher.stop()  # type: ignore[no-untyped-call]

    play(scenario, level)


@LEVELS
def test_an_object_is_put_got_and_deleted(level: str) -> None:
    async def scenario(js: JetStreamContext) -> None:
        store = await js.create_object_store("files")
        content = bytes(range(256)) * 1024
        await store.put("my file", content)
        assert (await store.get_info("my file")).size == len(content)
        assert (await store.get("my file")).data == content
        assert [one.name for one in await store.list()] == ["my file"]
        await store.delete("my file")
        with pytest.raises(NotFoundError):
            await store.get("my file")

    play(scenario, level)
