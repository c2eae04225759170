"""The adapter of aiormq: reads commands and writes answers and events, as in ``PROTOCOL.md``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiormq
from aiormq import spec
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import AMQPError, PublishError

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from gate import UNKNOWN, Messages, bodies, header_lists, method_of, say, say_hello

# It does not connect again, and has no notice of a blocked connection.
FEATURES = (
    "reset tls declare publish publish.mandatory publish.async publish.message_id confirm consume get ack "
    "ack.multiple nack reject qos tx bind"
)
ERRORS = (AMQPError, OSError, RuntimeError, asyncio.CancelledError)


def described(error: BaseException | None) -> dict[str, Any]:
    """An error as aiormq has it: the number is ``errno``."""
    if error is None:
        return {}
    code = getattr(error, "errno", None)
    found = {"text": str(error) or repr(error), "type": type(error).__name__}
    return {**found, "code": int(code)} if isinstance(code, int) and code else found


class Adapter:
    """Commands in, what the library does and reports out."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.forget()

    def forget(self) -> None:
        """What there was of a connection."""
        self.channels: dict[int, Any] = {}
        self.consumers: dict[str, tuple[Any, str]] = {}  # subscription: channel, consumer tag
        self.messages: Messages[DeliveredMessage] = Messages()
        self.tasks: set[asyncio.Task[None]] = set()

    # Commands

    async def do_connect(self, command: dict[str, Any]) -> None:
        tls: dict[str, Any] = {}
        if "tls_ca" in command:
            tls["context"] = ssl.create_default_context(cafile=command["tls_ca"])
        connection = await aiormq.connect(command["url"], **tls)
        self.connection = connection
        self.channels.clear()
        connection.closing.add_done_callback(lambda closing: self.disconnected(connection, closing))

    def disconnected(self, connection: Any, closing: asyncio.Future[Any]) -> None:
        if self.connection is connection:
            say(event="disconnected", **described(failure_of(closing)))

    async def do_close(self, command: dict[str, Any]) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def do_reset(self, command: dict[str, Any]) -> None:
        for task in self.tasks:
            task.cancel()
        self.forget()
        await self.do_close(command)

    async def do_channel(self, command: dict[str, Any]) -> None:
        await self.open(command["channel"], confirms=False)

    async def do_confirm(self, command: dict[str, Any]) -> None:
        """Confirms are decided on when a channel is opened."""
        await self.channels.pop(command["channel"]).close()
        await self.open(command["channel"], confirms=True)

    async def open(self, number: int, *, confirms: bool) -> None:
        channel = await self.connection.channel(publisher_confirms=confirms)
        self.channels[number] = channel
        channel.closing.add_done_callback(lambda closing: self.channel_closed(number, channel, closing))
        channel.on_consumer_cancel_callbacks.add(self.cancelled)
        if not confirms:
            channel.on_return_callbacks.add(self.returned)

    def channel_closed(self, number: int, channel: Any, closing: asyncio.Future[Any]) -> None:
        connection = self.connection
        if connection is not None and not connection.is_closed and self.channels.get(number) is channel:
            say(event="channel-closed", channel=number, **described(failure_of(closing)))

    async def do_declare(self, command: dict[str, Any]) -> dict[str, Any]:
        asked = ("queue", "durable", "exclusive", "auto_delete", "arguments")
        options = {name: command[name] for name in asked if name in command}
        return {"queue": (await self.channels[command["channel"]].queue_declare(**options)).queue}

    async def do_exchange(self, command: dict[str, Any]) -> None:
        options = {"exchange_type": command["type"], "auto_delete": command.get("auto_delete", False)}
        await self.channels[command["channel"]].exchange_declare(command["exchange"], **options)

    async def do_bind(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        await channel.queue_bind(command["queue"], command["exchange"], command["routing_key"])

    async def do_publish(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        properties = spec.Basic.Properties(
            headers=command.get("headers"), message_id=command.get("message_id")
        )
        for number, body in bodies(command):
            publish = channel.basic_publish(
                body,
                exchange=command.get("exchange", ""),
                routing_key=command["routing_key"],
                properties=properties,
                mandatory=command.get("mandatory", False),
            )
            if channel.publisher_confirms:
                task = asyncio.create_task(self.confirmed(number, publish))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            else:
                await publish

    async def confirmed(self, number: int, publish: Coroutine[Any, Any, Any]) -> None:
        try:
            await publish
        except PublishError as error:  # it came back
            self.returned(error.message, number)
            say(event="confirmed", publish=number, ack=False)
        except ERRORS as error:
            say(event="confirmed", publish=number, ack=False, text=str(error))
        else:
            say(event="confirmed", publish=number, ack=True)

    async def do_consume(self, command: dict[str, Any]) -> None:
        channel, subscription = self.channels[command["channel"]], command["subscription"]

        async def handed_over(message: DeliveredMessage) -> None:
            say(event="message", subscription=subscription, message=self.message(message))

        consumed = await channel.basic_consume(
            command["queue"], handed_over, no_ack=command.get("no_ack", False)
        )
        self.consumers[subscription] = (channel, consumed.consumer_tag)

    def cancelled(self, frame: Any) -> None:
        for subscription, (_, tag) in list(self.consumers.items()):
            if tag == frame.consumer_tag:
                say(event="ended", subscription=subscription, text="cancelled by the server")

    async def do_cancel(self, command: dict[str, Any]) -> None:
        channel, tag = self.consumers.pop(command["subscription"])
        await channel.basic_cancel(tag)

    async def do_get(self, command: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels[command["channel"]]
        message = await channel.basic_get(command["queue"], no_ack=command.get("no_ack", False))
        is_empty = isinstance(message.delivery, spec.Basic.GetEmpty)
        return {"message": None if is_empty else self.message(message)}

    async def do_ack(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"]]
        await message.channel.basic_ack(tag_of(message), multiple=command.get("multiple", False))

    async def do_nack(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"]]
        multiple, requeue = command.get("multiple", False), command.get("requeue", True)
        await message.channel.basic_nack(tag_of(message), multiple=multiple, requeue=requeue)

    async def do_reject(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"]]
        await message.channel.basic_reject(tag_of(message), requeue=command.get("requeue", True))

    async def do_qos(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        await channel.basic_qos(
            prefetch_count=command["prefetch_count"], global_=command.get("global", False)
        )

    async def do_tx_select(self, command: dict[str, Any]) -> None:
        await self.channels[command["channel"]].tx_select()

    async def do_tx_commit(self, command: dict[str, Any]) -> None:
        await self.channels[command["channel"]].tx_commit()

    async def do_tx_rollback(self, command: dict[str, Any]) -> None:
        await self.channels[command["channel"]].tx_rollback()

    # What aiormq hands over

    def message(self, message: DeliveredMessage) -> dict[str, Any]:
        return {
            "ref": self.messages.keep(message),
            "data": message.body.decode("latin-1"),
            "headers": header_lists(message.header.properties.headers),
            "exchange": message.exchange or "",
            "routing_key": message.routing_key or "",
            "delivery_tag": message.delivery_tag,
            "redelivered": message.redelivered,
        }

    def returned(self, message: Any, publish: int | None = None) -> None:
        came = message.delivery
        say(
            event="returned",
            code=came.reply_code,
            text=came.reply_text,
            routing_key=came.routing_key,
            data=message.body.decode("latin-1"),
            **({} if publish is None else {"publish": publish}),
        )


def tag_of(message: DeliveredMessage) -> int:
    """The delivery tag; a message of a consumer or of ``basic_get`` has one."""
    assert message.delivery_tag is not None
    return message.delivery_tag


def failure_of(closing: asyncio.Future[Any]) -> BaseException | None:
    """Why a connection or channel has ended, if there was a reason."""
    with contextlib.suppress(asyncio.CancelledError):
        return closing.exception()
    return None


async def main() -> None:
    """Until stdin ends."""
    say_hello("amqp", "aiormq", FEATURES)
    adapter = Adapter()
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        method = method_of(adapter, command)
        try:
            answer = UNKNOWN if method is None else {"ok": await method(command) or {}}
        except (*ERRORS, KeyError) as error:
            answer = {"error": described(error)}
        say(id=command["id"], **answer)
    await adapter.do_close({})


if __name__ == "__main__":
    asyncio.run(main())
