"""The adapter of pika's ``BlockingConnection``: reads commands and writes answers and events, as in
``PROTOCOL.md``.

pika has one thread. A second one here reads stdin and wakes the first, which runs commands between what pika
processes; so callbacks of pika and commands never meet.
"""

from __future__ import annotations

import json
import platform
import queue
import ssl
import sys
import threading
from typing import Any

import pika
from pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelClosed,
    ChannelWrongStateError,
    NackError,
    UnroutableError,
)

FEATURES = (
    "reset tls declare publish publish.mandatory publish.message_id confirm consume get ack ack.multiple "
    "nack reject qos tx bind blocked"
)


def say(**line: Any) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def trouble(error: BaseException) -> dict[str, Any]:
    """An error as the library reports it."""
    code = getattr(error, "reply_code", None)
    text = getattr(error, "reply_text", "") or str(error)
    return {"text": text, "type": type(error).__name__, **({} if code is None else {"code": code})}


class Adapter:
    """Commands in, what the library does and tells out."""

    def __init__(self) -> None:
        self.commands: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.connection: Any = None
        self.forget()

    def forget(self) -> None:
        """What there was of a connection."""
        self.channels: dict[int, Any] = {}
        self.confirming: set[int] = set()
        self.consumers: dict[str, tuple[int, str]] = {}  # subscription: channel, consumer tag
        self.messages: list[tuple[Any, int]] = []  # by ref: the channel of its delivery, delivery tag

    def read(self) -> None:
        """In a thread of its own: stdin to the queue."""
        for line in sys.stdin:
            self.enqueue(json.loads(line))
        self.enqueue(None)

    def enqueue(self, command: dict[str, Any] | None) -> None:
        self.commands.put(command)
        try:
            if self.connection is not None:
                self.connection.add_callback_threadsafe(lambda: None)
        except AMQPConnectionError:
            pass  # it is closed: no thread waits in it

    def run(self) -> None:
        while True:
            if self.connection is not None and self.commands.empty():
                try:
                    self.connection.process_data_events(time_limit=None)
                except AMQPError as error:
                    self.lost(error)
                self.look_at_channels()
                continue
            command = self.commands.get()
            if command is None:
                return
            say(id=command["id"], **self.answer(command))

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        action = getattr(self, "do_" + command["do"].replace(".", "_"), None)
        if action is None:
            return {"error": {"text": "unknown command", "type": "unsupported"}}
        try:
            return {"ok": action(command) or {}}
        except AMQPError as error:
            answer = {"error": trouble(error)}
            if self.connection is not None and self.connection.is_closed:
                self.lost(error)
            return answer
        except (ValueError, OSError) as error:  # of TLS, too
            return {"error": trouble(error)}

    def lost(self, error: BaseException) -> None:
        say(event="disconnected", **trouble(error))
        self.connection = None

    def look_at_channels(self) -> None:
        """That a server closed a channel pika tells by an exception at the next use: ask for it."""
        for number, channel in list(self.channels.items()):
            if self.connection is not None and channel.is_closed:
                del self.channels[number]
                try:
                    channel.basic_qos()
                except ChannelClosed as error:
                    say(event="channel-closed", channel=number, code=error.reply_code, text=error.reply_text)
                except ChannelWrongStateError as error:
                    say(event="channel-closed", channel=number, text=str(error))

    def channel(self, command: dict[str, Any]) -> Any:
        if command["channel"] not in self.channels:
            raise ChannelWrongStateError(f"channel {command['channel']} is closed")
        return self.channels[command["channel"]]

    # Commands

    def do_connect(self, command: dict[str, Any]) -> None:
        parameters = pika.URLParameters(command["url"])
        if "tls_ca" in command:
            trusted = ssl.create_default_context(cafile=command["tls_ca"])
            parameters.ssl_options = pika.SSLOptions(trusted, parameters.host)
        self.connection = pika.BlockingConnection(parameters)
        self.connection.add_on_connection_blocked_callback(
            lambda _, frame: say(event="blocked", text=frame.method.reason)
        )
        self.connection.add_on_connection_unblocked_callback(lambda _, __: say(event="unblocked"))
        self.channels.clear()

    def do_close(self, command: dict[str, Any]) -> None:
        connection, self.connection = self.connection, None
        self.channels.clear()
        if connection is not None and connection.is_open:
            connection.close()

    def do_channel(self, command: dict[str, Any]) -> None:
        number = command["channel"]
        channel = self.connection.channel()
        channel.add_on_cancel_callback(lambda frame: self.cancelled(number, frame.method.consumer_tag))
        channel.add_on_return_callback(lambda _, method, __, body: self.came_back(number, method, body))
        self.channels[number] = channel
        self.confirming.discard(number)

    def do_exchange(self, command: dict[str, Any]) -> None:
        options = {"exchange_type": command["type"], "auto_delete": command.get("auto_delete", False)}
        self.channel(command).exchange_declare(command["exchange"], **options)

    def do_bind(self, command: dict[str, Any]) -> None:
        self.channel(command).queue_bind(command["queue"], command["exchange"], command["routing_key"])

    def do_declare(self, command: dict[str, Any]) -> dict[str, Any]:
        asked = ("queue", "durable", "exclusive", "auto_delete", "arguments")
        declared = self.channel(command).queue_declare(
            **{name: command[name] for name in asked if name in command}
        )
        return {"queue": declared.method.queue}

    def do_confirm(self, command: dict[str, Any]) -> None:
        self.channel(command).confirm_delivery()
        self.confirming.add(command["channel"])

    def do_publish(self, command: dict[str, Any]) -> None:
        number, channel, publish = command["channel"], self.channel(command), command.get("publish")
        headers = command.get("headers")
        properties = pika.BasicProperties(headers=headers, message_id=command.get("message_id"))
        ack = True
        try:
            channel.basic_publish(
                command.get("exchange", ""),
                command["routing_key"],
                command["data"].encode("latin-1"),
                properties,
                mandatory=command.get("mandatory", False),
            )
        except UnroutableError as error:
            ack = False
            for one in error.messages:
                self.returned(one.method, one.body, publish)
        except NackError as error:
            ack = False
            for one in error.messages:
                self.returned(one.method, one.body, publish)
        except AMQPError:
            if number in self.confirming:
                say(event="confirmed", publish=publish, ack=False)
            raise
        if number in self.confirming:
            say(event="confirmed", publish=publish, ack=ack)

    def do_consume(self, command: dict[str, Any]) -> None:
        number, subscription = command["channel"], command["subscription"]
        tag = f"plumbline.{subscription}.{len(self.messages)}"
        self.consumers[subscription] = (number, tag)
        self.channel(command).basic_consume(
            command["queue"],
            lambda channel, *delivered: say(
                event="message", subscription=subscription, message=self.message(channel, *delivered)
            ),
            auto_ack=command.get("no_ack", False),
            consumer_tag=tag,
        )

    def do_cancel(self, command: dict[str, Any]) -> None:
        number, tag = self.consumers.pop(command["subscription"])
        self.channels[number].basic_cancel(tag)

    def do_get(self, command: dict[str, Any]) -> dict[str, Any]:
        channel = self.channel(command)
        method, properties, body = channel.basic_get(command["queue"], command.get("no_ack", False))
        return {"message": None if method is None else self.message(channel, method, properties, body)}

    def do_ack(self, command: dict[str, Any]) -> None:
        channel, tag = self.messages[command["ref"] - 1]
        channel.basic_ack(tag, command.get("multiple", False))

    def do_nack(self, command: dict[str, Any]) -> None:
        channel, tag = self.messages[command["ref"] - 1]
        channel.basic_nack(tag, command.get("multiple", False), command.get("requeue", True))

    def do_reset(self, command: dict[str, Any]) -> None:
        connection, self.connection = self.connection, None
        self.forget()
        if connection is not None and connection.is_open:
            connection.close()

    def do_reject(self, command: dict[str, Any]) -> None:
        channel, tag = self.messages[command["ref"] - 1]
        channel.basic_reject(tag, command.get("requeue", True))

    def do_qos(self, command: dict[str, Any]) -> None:
        self.channel(command).basic_qos(
            prefetch_count=command["prefetch_count"], global_qos=command.get("global", False)
        )

    def do_tx_select(self, command: dict[str, Any]) -> None:
        self.channel(command).tx_select()

    def do_tx_commit(self, command: dict[str, Any]) -> None:
        self.channel(command).tx_commit()

    def do_tx_rollback(self, command: dict[str, Any]) -> None:
        self.channel(command).tx_rollback()

    # What pika tells

    def message(self, channel: Any, method: Any, properties: Any, body: bytes) -> dict[str, Any]:
        self.messages.append((channel, method.delivery_tag))
        headers = {name: [str(value)] for name, value in (properties.headers or {}).items()}
        return {
            "ref": len(self.messages),
            "data": body.decode("latin-1"),
            "headers": headers,
            "exchange": method.exchange,
            "routing_key": method.routing_key,
            "delivery_tag": method.delivery_tag,
            "redelivered": method.redelivered,
        }

    def cancelled(self, number: int, tag: str) -> None:
        for subscription, known in list(self.consumers.items()):
            if known == (number, tag):
                say(event="ended", subscription=subscription, text="cancelled by the server")

    def came_back(self, number: int, method: Any, body: bytes) -> None:
        if number not in self.confirming:  # with confirms the exception tells the same
            self.returned(method, body)

    def returned(self, method: Any, body: bytes, publish: int | None = None) -> None:
        say(
            event="returned",
            code=method.reply_code,
            text=method.reply_text,
            routing_key=method.routing_key,
            data=body.decode("latin-1"),
            **({} if publish is None else {"publish": publish}),
        )


if __name__ == "__main__":
    say(
        hello="plumbline.adapter/1",
        protocol="amqp",
        library="pika",
        version=pika.__version__,
        language=f"python {platform.python_version()}",
        features=FEATURES.split(),
    )
    adapter = Adapter()
    threading.Thread(target=adapter.read, daemon=True).start()
    adapter.run()
