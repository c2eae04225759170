"""The adapter of aiorabbit: reads commands and writes answers and events, as in ``PROTOCOL.md``.

A client of aiorabbit is one connection with one channel. The first channel is that of the client that was
connected; each further one is a client, and so a connection, of its own. One round trip at a time is how
aiorabbit wants to be used: no publish begins before the last one on its channel has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from aiorabbit import client as aiorabbit
from aiorabbit.exceptions import AIORabbitException

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from gate import UNKNOWN, Messages, bodies, header_lists, method_of, say, say_hello

# It connects again only while it waits for an answer, and has no notice of a blocked connection. Publishes at
# once are not for its state machine: basic.nack after basic.ack is an error to it, if no publish was between.
FEATURES = (
    "reset tls declare publish publish.mandatory publish.message_id confirm consume get ack ack.multiple "
    "nack reject qos tx bind"
)
ERRORS = (AIORabbitException, AttributeError, KeyError, OSError, RuntimeError)
LOOK_EVERY_S = 0.05


class Client(aiorabbit.Client):  # type: ignore[misc]  # it is Any where aiorabbit is not installed
    """A client that tells when a consumer is there: the generator ``consume`` does not until a message is."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.consuming = asyncio.Event()

    async def basic_consume(self, *args: Any, **options: Any) -> str:
        tag: str = await super().basic_consume(*args, **options)
        self.consuming.set()
        return tag


class Handed(NamedTuple):
    """What is needed to settle a message."""

    client: Client
    delivery_tag: int


def described(error: BaseException | None) -> dict[str, Any]:
    """An error as aiorabbit has it: the number is ``value``."""
    if error is None:
        return {}
    code = getattr(error, "value", None)
    found = {"text": str(error) or repr(error), "type": type(error).__name__}
    return {**found, "code": code} if isinstance(code, int) else found


class Adapter:
    """Commands in, what the library does and reports out."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """What there was of a connection."""
        self.new: Client | None = None  # connected, and no channel of a command yet
        self.clients: dict[int, Client] = {}
        self.confirming: set[int] = set()
        self.publishing: dict[int, asyncio.Task[None]] = {}  # the last publish of a channel with confirms
        self.consumers: dict[str, asyncio.Task[None]] = {}
        self.messages: Messages[Handed] = Messages()
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, task: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        begun = asyncio.create_task(task)
        self.tasks.add(begun)
        begun.add_done_callback(self.tasks.discard)
        return begun

    # Commands

    async def do_connect(self, command: dict[str, Any]) -> None:
        self.connecting = command
        self.clients.clear()
        self.confirming.clear()
        self.publishing.clear()
        self.new = await self.connected()

    async def connected(self) -> Client:
        command = self.connecting
        tls = ssl.create_default_context(cafile=command["tls_ca"]) if "tls_ca" in command else None
        client = Client(command["url"], on_return=self.returned, ssl_context=tls)
        await client.connect()
        _ = self.begin(self.watch(client))
        return client

    async def watch(self, client: Client) -> None:
        """Ask whether it is closed: aiorabbit reports it to who consumes or waits for an answer alone."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if client.is_closed:
                break
        if client is self.new or client in self.clients.values():
            say(event="disconnected", **described(client.exception))

    async def do_close(self, command: dict[str, Any]) -> None:
        for subscription in list(self.consumers):
            await self.do_cancel({"subscription": subscription})
        clients = [*self.clients.values(), *([self.new] if self.new is not None else [])]
        self.new = None
        self.clients.clear()
        for client in clients:
            await client.close()

    async def do_reset(self, command: dict[str, Any]) -> None:
        await self.do_close(command)
        for task in self.tasks:
            task.cancel()
        self.forget()

    async def do_channel(self, command: dict[str, Any]) -> None:
        client, self.new = self.new, None
        self.clients[command["channel"]] = client or await self.connected()

    async def do_confirm(self, command: dict[str, Any]) -> None:
        await self.clients[command["channel"]].confirm_select()
        self.confirming.add(command["channel"])

    async def do_declare(self, command: dict[str, Any]) -> dict[str, Any]:
        asked = ("durable", "exclusive", "auto_delete", "arguments")
        options = {name: command[name] for name in asked if name in command}
        await self.clients[command["channel"]].queue_declare(command["queue"], **options)
        return {"queue": command["queue"]}  # aiorabbit does not show a name that the server gave

    async def do_exchange(self, command: dict[str, Any]) -> None:
        client, auto_delete = self.clients[command["channel"]], command.get("auto_delete", False)
        await client.exchange_declare(command["exchange"], command["type"], auto_delete=auto_delete)

    async def do_bind(self, command: dict[str, Any]) -> None:
        client = self.clients[command["channel"]]
        await client.queue_bind(command["queue"], command["exchange"], command["routing_key"])

    async def do_publish(self, command: dict[str, Any]) -> None:
        channel = command["channel"]
        ((number, body),) = bodies(command)
        publish = self.clients[channel].publish(
            command.get("exchange", ""),
            command["routing_key"],
            body,
            mandatory=command.get("mandatory", False),
            headers=command.get("headers"),
            message_id=command.get("message_id"),
        )
        if channel not in self.confirming:
            await publish
            return
        if channel in self.publishing:
            await self.publishing[channel]
        self.publishing[channel] = self.begin(self.confirmed(number, publish))

    async def confirmed(self, number: int, publish: Coroutine[Any, Any, bool | None]) -> None:
        try:
            ack = await publish
        except ERRORS as error:
            say(event="confirmed", publish=number, ack=False, text=str(error))
        else:
            say(event="confirmed", publish=number, ack=bool(ack))

    async def do_consume(self, command: dict[str, Any]) -> None:
        client, subscription = self.clients[command["channel"]], command["subscription"]
        client.consuming.clear()
        messages = client.consume(command["queue"], no_ack=command.get("no_ack", False))
        consumer = self.begin(self.consume(subscription, client, messages))
        registered = asyncio.create_task(client.consuming.wait())
        await asyncio.wait({consumer, registered}, return_when=asyncio.FIRST_COMPLETED)
        registered.cancel()
        if not client.consuming.is_set():
            consumer.result()  # raises what it has failed with
        self.consumers[subscription] = consumer

    async def consume(self, subscription: str, client: Client, messages: AsyncIterator[Any]) -> None:
        try:
            async for message in messages:
                say(event="message", subscription=subscription, message=self.message(client, message))
        except ERRORS as error:
            if not client.consuming.is_set():
                raise
            say(event="error", subscription=subscription, **described(error))
        else:
            say(event="ended", subscription=subscription)

    async def do_cancel(self, command: dict[str, Any]) -> None:
        consumer = self.consumers.pop(command["subscription"])
        consumer.cancel()  # the generator sends basic.cancel when it ends
        with contextlib.suppress(asyncio.CancelledError):
            await consumer

    async def do_get(self, command: dict[str, Any]) -> dict[str, Any]:
        client = self.clients[command["channel"]]
        message = await client.basic_get(command["queue"], no_ack=command.get("no_ack", False))
        return {"message": None if message is None else self.message(client, message)}

    async def do_ack(self, command: dict[str, Any]) -> None:
        client, tag = self.messages[command["ref"]]
        await client.basic_ack(tag, command.get("multiple", False))

    async def do_nack(self, command: dict[str, Any]) -> None:
        client, tag = self.messages[command["ref"]]
        await client.basic_nack(tag, command.get("multiple", False), command.get("requeue", True))

    async def do_reject(self, command: dict[str, Any]) -> None:
        client, tag = self.messages[command["ref"]]
        await client.basic_reject(tag, command.get("requeue", True))

    async def do_qos(self, command: dict[str, Any]) -> None:
        client = self.clients[command["channel"]]
        await client.qos_prefetch(command["prefetch_count"], per_consumer=not command.get("global", False))

    async def do_tx_select(self, command: dict[str, Any]) -> None:
        await self.clients[command["channel"]].tx_select()

    async def do_tx_commit(self, command: dict[str, Any]) -> None:
        await self.clients[command["channel"]].tx_commit()

    async def do_tx_rollback(self, command: dict[str, Any]) -> None:
        await self.clients[command["channel"]].tx_rollback()

    # What aiorabbit hands over

    def message(self, client: Client, message: Any) -> dict[str, Any]:
        return {
            "ref": self.messages.keep(Handed(client, message.delivery_tag)),
            "data": message.body.decode("latin-1"),
            "headers": header_lists(message.headers),
            "exchange": message.exchange,
            "routing_key": message.routing_key,
            "delivery_tag": message.delivery_tag,
            "redelivered": message.redelivered,
        }

    def returned(self, message: Any) -> None:
        say(
            event="returned",
            code=message.reply_code,
            text=message.reply_text,
            routing_key=message.routing_key,
            data=message.body.decode("latin-1"),
        )


async def main() -> None:
    """Until stdin ends."""
    say_hello("amqp", "aiorabbit", FEATURES)
    adapter = Adapter()
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        method = method_of(adapter, command)
        try:
            answer = UNKNOWN if method is None else {"ok": await method(command) or {}}
        except ERRORS as error:
            answer = {"error": described(error)}
        say(id=command["id"], **answer)


if __name__ == "__main__":
    asyncio.run(main())
