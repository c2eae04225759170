"""The adapter of aio-pika: reads commands and writes answers and events, as in ``PROTOCOL.md``.

Without ``reconnect`` it uses ``aio_pika.connect``, with it ``aio_pika.connect_robust``.
"""

from __future__ import annotations

import asyncio
import json
import platform
import ssl
import sys
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import AMQPError
from aiormq.abc import DeliveredMessage

FEATURES = (
    "reset tls declare publish publish.mandatory publish.async publish.message_id confirm consume get ack "
    "ack.multiple nack reject qos tx bind reconnect reconnect.topology"
)

RECONNECT_S = 0.2


def say(**line: Any) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def trouble(error: BaseException) -> dict[str, Any]:
    """An error as the library reports it."""
    code = getattr(error, "errno", None)
    found = {"text": str(error), "type": type(error).__name__}
    return {**found, "code": int(code)} if isinstance(code, int) and code else found


def reason(error: BaseException | None) -> dict[str, Any]:
    """Of an end: the code and the text that the server gave, as far as the library shows them."""
    found = {} if error is None else trouble(error)
    return {name: found[name] for name in ("code", "text") if name in found}


class Adapter:
    """Commands in, what the library does and tells out."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.channels: dict[int, Any] = {}
        self.queues: dict[tuple[int, str], Any] = {}  # declared on a channel
        self.consumers: dict[str, tuple[Any, str]] = {}  # subscription: queue, consumer tag
        self.messages: list[AbstractIncomingMessage] = []  # by ref
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        while line := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(line)
            say(id=command["id"], **await self.answer(command))
        await self.do_close({})

    async def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        name = "do_" + command["do"].replace(".", "_")
        action: Callable[..., Coroutine[Any, Any, Any]] | None = getattr(self, name, None)
        if action is None:
            return {"error": {"text": "unknown command", "type": "unsupported"}}
        try:
            return {"ok": await action(command) or {}}
        except (AMQPError, OSError, RuntimeError, asyncio.CancelledError) as error:
            return {"error": trouble(error)}

    # Commands

    async def do_connect(self, command: dict[str, Any]) -> None:
        self.channels.clear()
        self.queues.clear()
        tls: dict[str, Any] = {}
        if "tls_ca" in command:
            tls["ssl_context"] = ssl.create_default_context(cafile=command["tls_ca"])
        if command.get("reconnect"):
            self.connection = await aio_pika.connect_robust(
                command["url"], reconnect_interval=RECONNECT_S, **tls
            )
            self.connection.reconnect_callbacks.add(lambda _: say(event="reconnected"))
        else:
            self.connection = await aio_pika.connect(command["url"], **tls)
        self.connection.close_callbacks.add(self.disconnected)

    async def do_close(self, command: dict[str, Any]) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close_callbacks.discard(self.disconnected)
            await connection.close()

    async def do_reset(self, command: dict[str, Any]) -> None:
        for task in self.tasks:
            task.cancel()
        for part in (self.channels, self.queues, self.consumers, self.messages, self.tasks):
            part.clear()
        await self.do_close(command)

    async def do_channel(self, command: dict[str, Any]) -> None:
        await self.open(command["channel"], confirms=False)

    async def do_confirm(self, command: dict[str, Any]) -> None:
        """aio-pika decides on confirms when a channel is opened."""
        number = command["channel"]
        await self.channels.pop(number).close()
        await self.open(number, confirms=True)

    async def open(self, number: int, *, confirms: bool) -> None:
        channel = await self.connection.channel(publisher_confirms=confirms)
        self.channels[number] = channel
        channel.close_callbacks.add(lambda _, error: self.channel_closed(number, channel, error))
        channel.return_callbacks.add(lambda _, message: None if confirms else self.returned(message))
        underlying = await channel.get_underlay_channel()
        if hasattr(underlying, "on_consumer_cancel_callbacks"):  # since aiormq 7
            underlying.on_consumer_cancel_callbacks.add(self.cancelled)

    async def do_declare(self, command: dict[str, Any]) -> dict[str, Any]:
        asked = ("durable", "exclusive", "auto_delete", "arguments")
        options = {name: command[name] for name in asked if name in command}
        queue = await self.channels[command["channel"]].declare_queue(command["queue"] or None, **options)
        self.queues[command["channel"], queue.name] = queue
        return {"queue": queue.name}

    async def do_exchange(self, command: dict[str, Any]) -> None:
        channel, options = (
            self.channels[command["channel"]],
            {"auto_delete": command.get("auto_delete", False)},
        )
        await channel.declare_exchange(command["exchange"], command["type"], **options)

    async def do_bind(self, command: dict[str, Any]) -> None:
        queue = self.queues[command["channel"], command["queue"]]
        await queue.bind(command["exchange"], command["routing_key"])

    async def do_publish(self, command: dict[str, Any]) -> None:
        channel, first = self.channels[command["channel"]], command.get("publish", 0)
        name = command.get("exchange", "")
        exchange = await channel.get_exchange(name, ensure=False) if name else channel.default_exchange
        for number in range(first, first + command.get("count", 1)):
            data = command["data"] + (f"-{number}" if "count" in command else "")
            message = aio_pika.Message(
                data.encode("latin-1"), headers=command.get("headers"), message_id=command.get("message_id")
            )
            publish = exchange.publish(
                message, command["routing_key"], mandatory=command.get("mandatory", False)
            )
            if channel.publisher_confirms:
                task = asyncio.create_task(self.confirmed(number, publish))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            else:
                await publish

    async def confirmed(self, number: int, publish: Coroutine[Any, Any, Any]) -> None:
        try:
            confirmed = await publish
        except (AMQPError, OSError, RuntimeError, asyncio.CancelledError) as error:
            say(event="confirmed", publish=number, ack=False, text=str(error))
            return
        if isinstance(confirmed, DeliveredMessage):  # aio-pika gives it back in the place of the confirm
            self.returned(confirmed, publish=number)
        say(event="confirmed", publish=number, ack=not isinstance(confirmed, DeliveredMessage))

    async def do_consume(self, command: dict[str, Any]) -> None:
        subscription = command["subscription"]
        queue = self.queues.get((command["channel"], command["queue"]))
        if queue is None:  # declared, since robust channels take up again what was declared on them
            queue = await self.channels[command["channel"]].declare_queue(command["queue"], passive=True)

        async def handed_over(message: AbstractIncomingMessage) -> None:
            say(event="message", subscription=subscription, message=self.message(message))

        tag = f"plumbline.{subscription}.{len(self.messages)}"
        self.consumers[subscription] = (queue, tag)
        await queue.consume(handed_over, no_ack=command.get("no_ack", False), consumer_tag=tag)

    async def do_cancel(self, command: dict[str, Any]) -> None:
        queue, tag = self.consumers.pop(command["subscription"])
        await queue.cancel(tag)

    async def do_get(self, command: dict[str, Any]) -> dict[str, Any]:
        queue = await self.channels[command["channel"]].get_queue(command["queue"], ensure=False)
        message = await queue.get(no_ack=command.get("no_ack", False), fail=False)
        return {"message": None if message is None else self.message(message)}

    async def do_ack(self, command: dict[str, Any]) -> None:
        await self.messages[command["ref"] - 1].ack(multiple=command.get("multiple", False))

    async def do_nack(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"] - 1]
        await message.nack(multiple=command.get("multiple", False), requeue=command.get("requeue", True))

    async def do_reject(self, command: dict[str, Any]) -> None:
        await self.messages[command["ref"] - 1].reject(requeue=command.get("requeue", True))

    async def do_qos(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        await channel.set_qos(prefetch_count=command["prefetch_count"], global_=command.get("global", False))

    async def do_tx_select(self, command: dict[str, Any]) -> None:
        await (await self.channels[command["channel"]].get_underlay_channel()).tx_select()

    async def do_tx_commit(self, command: dict[str, Any]) -> None:
        await (await self.channels[command["channel"]].get_underlay_channel()).tx_commit()

    async def do_tx_rollback(self, command: dict[str, Any]) -> None:
        await (await self.channels[command["channel"]].get_underlay_channel()).tx_rollback()

    # What aio-pika tells

    def message(self, message: AbstractIncomingMessage) -> dict[str, Any]:
        self.messages.append(message)
        return {
            "ref": len(self.messages),
            "data": message.body.decode("latin-1"),
            "headers": {name: [str(value)] for name, value in message.headers.items()},
            "exchange": message.exchange or "",
            "routing_key": message.routing_key or "",
            "delivery_tag": message.delivery_tag,
            "redelivered": message.redelivered,
        }

    def disconnected(self, _: Any, error: BaseException | None) -> None:
        say(event="disconnected", **reason(error))

    def channel_closed(self, number: int, channel: Any, error: BaseException | None) -> None:
        connection = self.connection
        if error is not None and connection is not None and self.channels.get(number) is channel:
            say(event="channel-closed", channel=number, **reason(error))

    def cancelled(self, frame: Any) -> None:
        for subscription, (_, tag) in list(self.consumers.items()):
            if tag == frame.consumer_tag:
                say(event="ended", subscription=subscription, text="cancelled by the server")

    def returned(self, message: Any, publish: int | None = None) -> None:
        """What a callback is given has neither the code nor the text of the server."""
        returned = getattr(message, "delivery", None)
        why = {} if returned is None else {"code": returned.reply_code, "text": returned.reply_text}
        say(
            event="returned",
            routing_key=(returned or message).routing_key,
            data=message.body.decode("latin-1"),
            **why,
            **({} if publish is None else {"publish": publish}),
        )


def run(adapter: Adapter) -> None:
    """Say hello, and do what is asked until there is no more."""
    say(
        hello="plumbline.adapter/1",
        protocol="amqp",
        library="aio-pika",
        version=version("aio-pika"),
        language=f"python {platform.python_version()}",
        features=FEATURES.split(),
    )
    asyncio.run(adapter.run())


if __name__ == "__main__":
    run(Adapter())
