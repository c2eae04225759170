"""The adapter of nats-py: reads commands and writes answers and events, as in ``PROTOCOL.md``.

    pip install -r requirements.txt
    plumbline gate -- python adapter.py

It imports nothing of Plumbline and works with every release of nats-py from 2.0 on.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import platform
import ssl
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

with contextlib.suppress(ImportError):  # older releases have no services
    import nats.micro

FEATURES = [
    "reset", "tls", "publish", "publish.flush", "request", "subscribe", "unsubscribe.after",
    "js.create", "js.publish", "fetch", "push",
    "ack", "ack.nak", "ack.nak.delay", "ack.progress", "ack.term", "ack.sync",
    "reconnect", "reconnect.buffer", "ping", "lame-duck", "drain",
    "ordered", "kv", "kv.watch",
    "obj", "obj.create", "obj.list", "obj.seal", "obj.update", "obj.watch", "service", "service.reset",
]  # fmt: skip
CONNECT_TIMEOUT_S = 8  # for a busy machine
ENTRIES_FROM = 1_000_000  # refs of entries: no command names them


def say(**line: Any) -> None:
    """One line to Plumbline."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def trouble(error: BaseException) -> dict[str, Any]:
    """An error as the library tells it."""
    found: dict[str, Any] = {"text": str(error) or repr(error), "type": type(error).__name__}
    for number in (getattr(error, "err_code", None), getattr(error, "code", None)):
        if str(number).isdigit() and int(str(number)):
            return {**found, "code": int(str(number))}
    return found


def headers_of(command: dict[str, Any]) -> dict[str, str] | None:
    """As nats-py takes them: one value for each name."""
    given = command.get("headers") or {}
    return {name: value if isinstance(value, str) else value[0] for name, value in given.items()} or None


class Adapter:
    """One connection and what came over it."""

    def __init__(self) -> None:
        self.client = Client()
        self.messages: dict[int, Msg] = {}
        self.subscriptions: dict[str, Any] = {}
        self.pulls: dict[tuple[str, str], Any] = {}
        self.watching: dict[str, asyncio.Task[None]] = {}
        self.entries = 0
        self.services: dict[str, Any] = {}
        self.is_over = False  # another one has its place: it reports nothing more

    def say(self, **line: Any) -> None:
        """One event to Plumbline."""
        if not self.is_over:
            say(**line)

    async def end(self) -> None:
        """Close what is open."""
        self.is_over = True
        for task in self.watching.values():
            task.cancel()
        await self.client.close()

    def handed(self, msg: Msg) -> dict[str, Any]:
        """A message that the library handed over."""
        ref = len(self.messages) + 1
        self.messages[ref] = msg
        headers = {name: [value] for name, value in (getattr(msg, "headers", None) or {}).items()}
        data = msg.data.decode("latin-1")
        return {"ref": ref, "subject": msg.subject, "reply": msg.reply, "data": data, "headers": headers}

    def into(self, name: str) -> Callable[[Msg], Awaitable[None]]:
        """A callback for a subscription of that name."""

        async def came(msg: Msg) -> None:
            self.say(event="message", subscription=name, message=self.handed(msg))

        return came

    # -- commands ----------------------------------------------------------------------------

    async def connect(self, url: str, *, reconnect: bool = False, **command: Any) -> None:
        async def error(problem: Exception) -> None:
            self.say(event="error", **trouble(problem))

        async def disconnected() -> None:
            self.say(event="disconnected")

        async def reconnected() -> None:
            self.say(event="reconnected")

        async def closed() -> None:
            self.say(event="closed", text=str(self.client.last_error or ""))

        async def lame_duck() -> None:
            self.say(event="lame-duck")

        more: dict[str, Any] = {}
        if reconnect:
            more["max_reconnect_attempts"] = -1
            more["reconnect_time_wait"] = command.get("reconnect_wait_ms", 100) / 1000
        if "buffer_bytes" in command:
            more["pending_size"] = command["buffer_bytes"]
        if "ping_ms" in command:
            more["ping_interval"] = command["ping_ms"] / 1000
            more["max_outstanding_pings"] = command["pings_out"]
        if "tls_ca" in command:
            more["tls"] = ssl.create_default_context(cafile=command["tls_ca"])
        if takes(Client.connect, "lame_duck_mode_cb"):
            more["lame_duck_mode_cb"] = lame_duck
        self.client = Client()
        self.pulls.clear()
        await self.client.connect(
            url,
            allow_reconnect=reconnect,
            connect_timeout=CONNECT_TIMEOUT_S,
            error_cb=error,
            disconnected_cb=disconnected,
            reconnected_cb=reconnected,
            closed_cb=closed,
            **more,
        )

    async def flush(self, **_: Any) -> None:
        await self.client.flush()

    async def drain(self, **_: Any) -> None:
        await self.client.drain()

    async def close(self, **_: Any) -> None:
        await self.client.close()

    async def publish(self, subject: str, data: str = "", reply: str = "", **command: Any) -> None:
        headers = headers_of(command)
        await self.client.publish(subject, data.encode("latin-1"), reply=reply, headers=headers)
        if command.get("flush"):
            await self.client.flush()

    async def request(self, subject: str, data: str = "", timeout_ms: int = 1000, **command: Any) -> Any:
        headers = headers_of(command)
        more: dict[str, Any] = {"headers": headers} if headers else {}
        msg = await self.client.request(subject, data.encode("latin-1"), timeout=timeout_ms / 1000, **more)
        return {"message": self.handed(msg)}

    async def subscribe(self, subscription: str, subject: str, queue: str = "", **_: Any) -> None:
        callback = self.into(subscription)
        self.subscriptions[subscription] = await self.client.subscribe(subject, queue=queue, cb=callback)

    async def unsubscribe(self, subscription: str, after: int = 0, **_: Any) -> None:
        await self.subscriptions[subscription].unsubscribe(after)

    async def stop(self, subscription: str, **_: Any) -> None:
        await self.subscriptions[subscription].unsubscribe()

    async def js_create(
        self, stream: dict[str, Any] | None = None, consumer: dict[str, Any] | None = None, **_: Any
    ) -> None:
        manager = self.client.jsm()
        if stream is not None:
            await manager.add_stream(**stream)
        if consumer is not None:
            await manager.add_consumer(consumer.pop("stream_name"), **consumer)

    async def js_publish(
        self, subject: str, data: str = "", msg_id: str = "", timeout_ms: int = 1000, **command: Any
    ) -> Any:
        headers = {**(headers_of(command) or {}), **({"Nats-Msg-Id": msg_id} if msg_id else {})}
        acknowledged = await self.client.jetstream().publish(
            subject, data.encode("latin-1"), timeout=timeout_ms / 1000, headers=headers or None
        )
        return {
            "stream": acknowledged.stream,
            "seq": acknowledged.seq,
            "duplicate": bool(acknowledged.duplicate),
        }

    async def js_subscribe(self, subscription: str, stream: str, consumer: str, **_: Any) -> None:
        info = await self.client.jsm().consumer_info(stream, consumer)
        bind = self.client.jetstream().subscribe_bind
        own: dict[str, Any] = {"consumer": consumer} if takes(bind, "consumer") else {}
        self.subscriptions[subscription] = await bind(
            stream=stream, config=info.config, cb=self.into(subscription), manual_ack=True, **own
        )

    async def ordered(
        self, subscription: str, stream: str, subject: str, heartbeat_ms: int, **_: Any
    ) -> None:
        self.subscriptions[subscription] = await self.client.jetstream().subscribe(
            subject,
            stream=stream,
            ordered_consumer=True,
            idle_heartbeat=heartbeat_ms / 1000,
            cb=self.into(subscription),
        )

    async def bucket(self, name: str) -> Any:
        """A key-value store that exists."""
        return await self.client.jetstream().key_value(name)

    async def kv_put(self, bucket: str, key: str, data: str, **_: Any) -> Any:
        return {"seq": await (await self.bucket(bucket)).put(key, data.encode("latin-1"))}

    async def kv_create(self, bucket: str, key: str, data: str, **_: Any) -> Any:
        return {"seq": await (await self.bucket(bucket)).create(key, data.encode("latin-1"))}

    async def kv_update(self, bucket: str, key: str, data: str, revision: int, **_: Any) -> Any:
        return {"seq": await (await self.bucket(bucket)).update(key, data.encode("latin-1"), revision)}

    async def kv_delete(self, bucket: str, key: str, **_: Any) -> None:
        await (await self.bucket(bucket)).delete(key)

    async def kv_purge(self, bucket: str, key: str, **_: Any) -> None:
        await (await self.bucket(bucket)).purge(key)

    async def kv_get(self, bucket: str, key: str, **_: Any) -> Any:
        return {"message": self.entry(await (await self.bucket(bucket)).get(key))}

    async def kv_watch(self, bucket: str, subscription: str, **_: Any) -> None:
        watcher = await (await self.bucket(bucket)).watchall()
        self.watching[subscription] = asyncio.create_task(self.watch(watcher, subscription, self.entry))

    async def watch(self, watcher: Any, subscription: str, handed: Callable[[Any], dict[str, Any]]) -> None:
        """Report each entry, and the end of the initial data, which is None."""
        async for entry in watcher:
            if entry is None:
                self.say(event="up-to-date", subscription=subscription)
            else:
                self.say(event="message", subscription=subscription, message=handed(entry))

    def entry(self, entry: Any) -> dict[str, Any]:
        """A value that the library handed over."""
        self.entries += 1
        headers = {"KV-Operation": [entry.operation]} if entry.operation else {}
        value = (entry.value or b"").decode("latin-1")
        return {"ref": ENTRIES_FROM + self.entries, "subject": entry.key, "data": value, "headers": headers}

    async def store(self, name: str) -> Any:
        """An object store that exists."""
        return await self.client.jetstream().object_store(name)

    def object(self, info: Any, data: bytes | None = None) -> dict[str, Any]:
        """An object that the library handed over."""
        self.entries += 1
        text = (data or b"").decode("latin-1")
        return {"ref": ENTRIES_FROM + self.entries, "subject": info.name, "data": text}

    async def obj_create(self, bucket: str, **_: Any) -> None:
        await self.client.jetstream().create_object_store(bucket)

    async def obj_put(self, bucket: str, name: str, data: str, chunk_bytes: int = 0, **_: Any) -> None:
        meta = None
        if chunk_bytes:
            options = nats.js.api.ObjectMetaOptions(max_chunk_size=chunk_bytes)
            meta = nats.js.api.ObjectMeta(name=name, options=options)
        await (await self.store(bucket)).put(name, data.encode("latin-1"), meta=meta)

    async def obj_get(self, bucket: str, name: str, **_: Any) -> Any:
        found = await (await self.store(bucket)).get(name)
        return {"message": self.object(found.info, found.data)}

    async def obj_info(self, bucket: str, name: str, **_: Any) -> Any:
        return {"message": self.object(await (await self.store(bucket)).get_info(name))}

    async def obj_delete(self, bucket: str, name: str, **_: Any) -> None:
        await (await self.store(bucket)).delete(name)

    async def obj_update(self, bucket: str, name: str, new_name: str, description: str, **_: Any) -> None:
        meta = nats.js.api.ObjectMeta(name=new_name, description=description)
        await (await self.store(bucket)).update_meta(name, meta)

    async def obj_list(self, bucket: str, **_: Any) -> Any:
        found = await (await self.store(bucket)).list(ignore_deletes=True)
        return {"messages": [self.object(info) for info in found]}

    async def obj_watch(self, bucket: str, subscription: str, **_: Any) -> None:
        watcher = await (await self.store(bucket)).watch()
        self.watching[subscription] = asyncio.create_task(self.watch(watcher, subscription, self.object))

    async def obj_seal(self, bucket: str, **_: Any) -> None:
        await (await self.store(bucket)).seal()

    async def service_add(
        self, service: str, name: str, version: str, queue: str | None = None, **described: Any
    ) -> None:
        described = {field: described[field] for field in ("description", "metadata") if field in described}
        self.services[service] = await nats.micro.add_service(
            self.client, name=name, version=version, queue_group=queue, **described
        )

    async def service_endpoint(self, service: str, name: str, **command: Any) -> None:
        async def handler(request: Any) -> None:
            await asyncio.sleep(command.get("delay_ms", 0) / 1000)
            if "error_code" in command:
                raise nats.micro.request.ServiceError(command["error_code"], command["error_text"])
            await request.respond(request.data)

        place = self.services[service]
        if "group" in command:
            place = place.add_group(name=command["group"], queue_group=command.get("group_queue"))
        await place.add_endpoint(
            name=name,
            handler=handler,
            subject=command.get("subject"),
            queue_group=command.get("queue"),
            metadata=command.get("metadata"),
        )

    async def service_stop(self, service: str, **_: Any) -> None:
        await self.services[service].stop()

    async def service_reset(self, service: str, **_: Any) -> None:
        await self.services[service].reset()

    async def fetch(
        self, stream: str, consumer: str, batch: int, expires_ms: int, heartbeat_ms: int = 0, **_: Any
    ) -> Any:
        if (stream, consumer) not in self.pulls:
            js = self.client.jetstream()
            if hasattr(js, "pull_subscribe_bind"):
                pull = await js.pull_subscribe_bind(durable=consumer, stream=stream)
            else:  # before 2.1
                pull = await js.pull_subscribe("", consumer, stream)
            self.pulls[stream, consumer] = pull
        more = {"heartbeat": heartbeat_ms / 1000} if heartbeat_ms else {}
        messages = await self.pulls[stream, consumer].fetch(batch, timeout=expires_ms / 1000, **more)
        return {"messages": [self.handed(msg) for msg in messages]}

    async def ack(self, ref: int, kind: str = "ack", delay_ms: int = 0, **_: Any) -> None:
        msg = self.messages[ref]
        if kind == "nak" and delay_ms:
            await msg.nak(delay=delay_ms / 1000)
        else:
            method = {"ack": msg.ack, "nak": msg.nak, "progress": msg.in_progress, "term": msg.term}[kind]
            await method()

    async def ack_sync(self, ref: int, timeout_ms: int = 1000, **_: Any) -> None:
        await self.messages[ref].ack_sync(timeout=timeout_ms / 1000)


async def answer(adapter: Adapter, command: dict[str, Any]) -> None:
    """Do one command and answer it."""
    number = command.pop("id")
    method = getattr(adapter, command.pop("do").replace(".", "_"), None)
    if method is None:
        say(id=number, error={"text": "unknown command", "type": "unsupported"})
        return
    try:
        say(id=number, ok=await method(**command) or {})
    except (Exception, asyncio.CancelledError) as error:
        say(id=number, error=trouble(error))


def takes(method: Callable[..., Any], name: str) -> bool:
    """Whether a method of this release has that parameter."""
    return name in inspect.signature(method).parameters


def features() -> list[str]:
    """What this release can do."""
    js = nats.js.client.JetStreamContext
    found = list(FEATURES)
    if takes(js.PullSubscription.fetch, "heartbeat"):
        found.append("fetch.heartbeat")
    if not takes(Msg.nak, "delay"):
        found.remove("ack.nak.delay")
    if not takes(Client.connect, "pending_size"):
        found.remove("reconnect.buffer")
    if not takes(Client.connect, "lame_duck_mode_cb"):
        found.remove("lame-duck")
    if not hasattr(js, "subscribe_bind"):
        found.remove("push")
    if not takes(js.subscribe, "idle_heartbeat"):
        found.remove("ordered")
    if not hasattr(js, "key_value"):
        found = [name for name in found if not name.startswith("kv")]
    if not hasattr(js, "object_store"):
        found = [name for name in found if not name.startswith("obj")]
    if not hasattr(nats, "micro"):
        found = [name for name in found if not name.startswith("service")]
    return found


async def main() -> None:
    """Until stdin ends."""
    say(
        hello="plumbline.adapter/1",
        protocol="nats",
        library="nats-py",
        version=version("nats-py"),
        language=f"python {platform.python_version()}",
        features=features(),
    )
    lines = asyncio.StreamReader(limit=1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    adapter = Adapter()
    while line := await lines.readline():
        command = json.loads(line)
        if command["do"] == "reset":
            await adapter.end()
            adapter = Adapter()
            say(id=command["id"], ok={})
        else:
            await answer(adapter, command)


if __name__ == "__main__":
    asyncio.run(main())
