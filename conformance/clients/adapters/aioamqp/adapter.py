"""The adapter of aioamqp: reads commands and writes answers and events, as in ``PROTOCOL.md``."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import aioamqp
from aioamqp.envelope import Envelope
from aioamqp.exceptions import AioamqpException, EmptyQueue, PublishFailed

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from gate import UNKNOWN, Messages, Server, bodies, header_lists, method_of, say, say_hello

# It has no transactions, does not connect again, and has no notice of a blocked connection.
FEATURES = (
    "reset tls declare publish publish.mandatory publish.async publish.message_id confirm consume get ack "
    "ack.multiple nack reject qos bind"
)
ERRORS = (AioamqpException, OSError, RuntimeError)


class Handed(NamedTuple):
    """What aioamqp gives of a message that is needed to settle it."""

    channel: Any
    delivery_tag: int


def described(error: BaseException) -> dict[str, Any]:
    """An error as aioamqp has it: ``code`` and ``message``, if the server sent them."""
    code = getattr(error, "code", None)
    text = getattr(error, "message", None) or str(error) or repr(error)
    found = {"text": str(text), "type": type(error).__name__}
    return {**found, "code": code} if isinstance(code, int) and code else found


class Adapter:
    """Commands in, what the library does and reports out."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.forget()

    def forget(self) -> None:
        """What there was of a connection."""
        self.channels: dict[int, Any] = {}
        self.consumers: dict[str, tuple[Any, str]] = {}  # subscription: channel, consumer tag
        self.messages: Messages[Handed] = Messages()
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, task: Coroutine[Any, Any, None]) -> None:
        begun = asyncio.create_task(task)
        self.tasks.add(begun)
        begun.add_done_callback(self.tasks.discard)

    # Commands

    async def do_connect(self, command: dict[str, Any]) -> None:
        server = Server(command["url"])
        tls = ssl.create_default_context(cafile=command["tls_ca"]) if "tls_ca" in command else None
        mine: list[Any] = []

        def failed(error: BaseException) -> None:
            if mine and self.connection is mine[0]:
                self.connection = None
                say(event="disconnected", **described(error))

        _, connection = await aioamqp.connect(
            host=server.host,
            port=server.port,
            login=server.user,
            password=server.password,
            virtualhost=server.vhost,
            ssl=tls,
            on_error=failed,
            **({"heartbeat": server.heartbeat} if server.heartbeat else {}),  # 0 floods the server
        )
        mine.append(connection)
        self.connection = connection
        self.channels.clear()

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
        number, connection = command["channel"], self.connection
        channel = await connection.channel(return_callback=self.returned)
        channel.add_cancellation_callback(self.cancelled)
        self.channels[number] = channel
        self.begin(self.watch(number, channel))

    async def watch(self, number: int, channel: Any) -> None:
        """The end of a channel: aioamqp sets an event, and has no reason with it."""
        await channel.close_event.wait()
        if self.connection is not None and self.channels.get(number) is channel:
            say(event="channel-closed", channel=number)

    async def do_confirm(self, command: dict[str, Any]) -> None:
        await self.channels[command["channel"]].confirm_select()

    async def do_declare(self, command: dict[str, Any]) -> dict[str, Any]:
        asked = ("durable", "exclusive", "auto_delete", "arguments")
        options = {name: command[name] for name in asked if name in command}
        declared = await self.channels[command["channel"]].queue_declare(command["queue"], **options)
        return {"queue": declared["queue"]}

    async def do_exchange(self, command: dict[str, Any]) -> None:
        channel, auto_delete = self.channels[command["channel"]], command.get("auto_delete", False)
        await channel.exchange_declare(command["exchange"], command["type"], auto_delete=auto_delete)

    async def do_bind(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        await channel.queue_bind(command["queue"], command["exchange"], command["routing_key"])

    async def do_publish(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        names = ("headers", "message_id")
        properties = {name: command[name] for name in names if name in command}
        for number, body in bodies(command):
            publish = channel.publish(
                body,
                command.get("exchange", ""),
                command["routing_key"],
                properties=properties,
                mandatory=command.get("mandatory", False),
            )
            if channel.publisher_confirms:
                self.begin(self.confirmed(number, publish))
            else:
                await publish

    async def confirmed(self, number: int, publish: Coroutine[Any, Any, None]) -> None:
        try:
            await publish
        except PublishFailed:
            say(event="confirmed", publish=number, ack=False)
        except ERRORS as error:
            say(event="confirmed", publish=number, ack=False, text=str(error))
        else:
            say(event="confirmed", publish=number, ack=True)

    async def do_consume(self, command: dict[str, Any]) -> None:
        channel, subscription = self.channels[command["channel"]], command["subscription"]

        async def handed_over(mine: Any, body: bytes, envelope: Any, properties: Any) -> None:
            message = self.message(mine, body, envelope, properties)
            say(event="message", subscription=subscription, message=message)

        no_ack = command.get("no_ack", False)
        consumed = await channel.basic_consume(handed_over, command["queue"], no_ack=no_ack)
        self.consumers[subscription] = (channel, consumed["consumer_tag"])

    async def cancelled(self, channel: Any, tag: str) -> None:
        for subscription, known in list(self.consumers.items()):
            if known == (channel, tag):
                say(event="ended", subscription=subscription, text="cancelled by the server")

    async def do_cancel(self, command: dict[str, Any]) -> None:
        channel, tag = self.consumers.pop(command["subscription"])
        await channel.basic_cancel(tag)

    async def do_get(self, command: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels[command["channel"]]
        try:
            got = await channel.basic_get(command["queue"], no_ack=command.get("no_ack", False))
        except EmptyQueue:
            return {"message": None}
        delivered = Envelope(
            "", got["delivery_tag"], got["exchange_name"], got["routing_key"], got["redelivered"]
        )
        return {"message": self.message(channel, got["message"], delivered, got["properties"])}

    async def do_ack(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"]]
        await message.channel.basic_client_ack(message.delivery_tag, command.get("multiple", False))

    async def do_nack(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"]]
        multiple, requeue = command.get("multiple", False), command.get("requeue", True)
        await message.channel.basic_client_nack(message.delivery_tag, multiple, requeue)

    async def do_reject(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"]]
        await message.channel.basic_reject(message.delivery_tag, command.get("requeue", True))

    async def do_qos(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        await channel.basic_qos(
            prefetch_count=command["prefetch_count"], connection_global=command.get("global", False)
        )

    # What aioamqp hands over

    def message(self, channel: Any, body: bytes, envelope: Any, properties: Any) -> dict[str, Any]:
        return {
            "ref": self.messages.keep(Handed(channel, envelope.delivery_tag)),
            "data": body.decode("latin-1"),
            "headers": header_lists(properties.headers),
            "exchange": envelope.exchange_name,
            "routing_key": envelope.routing_key,
            "delivery_tag": envelope.delivery_tag,
            "redelivered": envelope.is_redeliver,
        }

    async def returned(self, channel: Any, body: bytes, envelope: Any, properties: Any) -> None:
        say(
            event="returned",
            code=envelope.reply_code,
            text=envelope.reply_text,
            routing_key=envelope.routing_key,
            data=body.decode("latin-1"),
        )


async def main() -> None:
    """Until stdin ends."""
    say_hello("amqp", "aioamqp", FEATURES)
    adapter = Adapter()
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        method = method_of(adapter, command)
        try:
            answer = UNKNOWN if method is None else {"ok": await method(command) or {}}
        except (*ERRORS, KeyError, AttributeError) as error:
            answer = {"error": described(error)}
        say(id=command["id"], **answer)
    await adapter.do_close({})


if __name__ == "__main__":
    asyncio.run(main())
