"""The adapter of AMQPStorm: reads commands and writes answers and events, as in ``PROTOCOL.md``.

AMQPStorm reads in a thread of its own. It has no callbacks: a consumer asks for its messages, here in one
more thread for each channel, and errors are raised at the next use.
"""

from __future__ import annotations

import ssl
import sys
import threading
from pathlib import Path
from typing import Any

from amqpstorm import AMQPChannelError, AMQPConnectionError, AMQPError, AMQPMessageError, UriConnection

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from gate import Messages, bodies, describe, header_lists, say, say_hello, serve

FEATURES = (
    "reset tls declare publish publish.mandatory publish.message_id confirm consume get ack ack.multiple "
    "nack reject qos tx bind"
)
LOOK_EVERY_S = 0.05


class Adapter:
    """Commands in, what the library does and reports out."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.forget()

    def forget(self) -> None:
        """What there was of a connection."""
        self.channels: dict[int, Any] = {}
        self.consumers: dict[str, tuple[Any, str]] = {}  # subscription: channel, consumer tag
        self.messages: Messages[Any] = Messages()

    def report(self, error: AMQPError) -> None:
        """An error that a channel or the connection raised between commands."""
        if isinstance(error, AMQPConnectionError):
            connection, self.connection = self.connection, None
            if connection is not None:
                say(event="disconnected", **described(error))

    # Commands

    def do_connect(self, command: dict[str, Any]) -> None:
        tls = {}
        if "tls_ca" in command:
            tls["context"] = ssl.create_default_context(cafile=command["tls_ca"])
        self.connection = UriConnection(command["url"], ssl_options=tls)
        self.channels.clear()
        threading.Thread(target=self.watch, args=[self.connection], daemon=True).start()

    def watch(self, connection: Any) -> None:
        """In a thread of its own: ask for errors, as AMQPStorm wants its users to."""
        pause = threading.Event()
        while self.connection is connection:
            try:
                connection.check_for_errors()
            except AMQPError as error:
                if self.connection is connection:
                    self.report(error)
                return
            for channel in list(self.channels.values()):
                if channel.is_open and not channel.confirming_deliveries:  # there publish raises it
                    self.look_at(channel)
            pause.wait(LOOK_EVERY_S)

    def look_at(self, channel: Any) -> None:
        """A message that came back: AMQPStorm reports it without its body."""
        try:
            channel.check_for_exceptions()
        except AMQPMessageError as error:
            say(event="returned", code=error.error_code, text=str(error))
        except AMQPError:
            pass  # the channel was closed meanwhile: the next use raises that again

    def do_close(self, command: dict[str, Any]) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def do_reset(self, command: dict[str, Any]) -> None:
        self.do_close(command)
        self.forget()

    def do_channel(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]] = self.connection.channel()

    def do_confirm(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]].confirm_deliveries()

    def do_declare(self, command: dict[str, Any]) -> dict[str, Any]:
        asked = ("queue", "durable", "exclusive", "auto_delete", "arguments")
        options = {name: command[name] for name in asked if name in command}
        return {"queue": self.channels[command["channel"]].queue.declare(**options)["queue"]}

    def do_exchange(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]].exchange.declare(
            command["exchange"], command["type"], auto_delete=command.get("auto_delete", False)
        )

    def do_bind(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        channel.queue.bind(command["queue"], command["exchange"], command["routing_key"])

    def do_publish(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        ((publish, body),) = bodies(command)
        names = {"headers": "headers", "message_id": "message_id"}
        properties = {ours: command[theirs] for theirs, ours in names.items() if theirs in command}
        mandatory, confirming = command.get("mandatory", False), channel.confirming_deliveries
        try:
            ack = channel.basic.publish(
                body, command["routing_key"], command.get("exchange", ""), properties, mandatory
            )
        except AMQPMessageError as error:
            self.returned(error, command)
            ack = True
        except AMQPError:
            if confirming:
                say(event="confirmed", publish=publish, ack=False)
            raise
        if confirming:
            say(event="confirmed", publish=publish, ack=ack)

    def returned(self, error: AMQPMessageError, command: dict[str, Any]) -> None:
        """AMQPStorm raises it where the message was published, and so that message is known."""
        error_fields = describe(error)
        say(
            event="returned",
            code=error.error_code,
            text=error_fields["text"],
            routing_key=command["routing_key"],
            data=command["data"],
        )

    def do_consume(self, command: dict[str, Any]) -> None:
        channel, subscription = self.channels[command["channel"]], command["subscription"]
        first = not any(mine is channel for mine, _ in self.consumers.values())

        def handed_over(message: Any) -> None:
            say(event="message", subscription=subscription, message=self.message(message))

        tag = channel.basic.consume(handed_over, command["queue"], no_ack=command.get("no_ack", False))
        self.consumers[subscription] = (channel, tag)
        if first:
            threading.Thread(target=self.consume, args=[channel], daemon=True).start()

    def consume(self, channel: Any) -> None:
        """In a thread of its own: what AMQPStorm has for the consumers of a channel."""
        try:
            channel.start_consuming(auto_decode=False)
        except AMQPChannelError as error:
            for number, known in self.channels.items():
                if known is channel:
                    say(event="channel-closed", channel=number, **described(error))
            return
        except AMQPError as error:
            self.report(error)
            return
        if self.connection is not None and channel.is_open:
            for subscription, (mine, _) in list(self.consumers.items()):
                if mine is channel:  # start_consuming ends when no consumer is left
                    del self.consumers[subscription]
                    say(event="ended", subscription=subscription, text="start_consuming has ended")

    def do_cancel(self, command: dict[str, Any]) -> None:
        channel, tag = self.consumers.pop(command["subscription"])
        channel.basic.cancel(tag)

    def do_get(self, command: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels[command["channel"]]
        message = channel.basic.get(command["queue"], no_ack=command.get("no_ack", False), auto_decode=False)
        return {"message": None if message is None else self.message(message)}

    def do_ack(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"]]
        message.channel.basic.ack(message.delivery_tag, command.get("multiple", False))

    def do_nack(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"]]
        multiple, requeue = command.get("multiple", False), command.get("requeue", True)
        message.channel.basic.nack(message.delivery_tag, multiple, requeue)

    def do_reject(self, command: dict[str, Any]) -> None:
        self.messages[command["ref"]].reject(command.get("requeue", True))

    def do_qos(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        channel.basic.qos(command["prefetch_count"], global_=command.get("global", False))

    def do_tx_select(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]].tx.select()

    def do_tx_commit(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]].tx.commit()

    def do_tx_rollback(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]].tx.rollback()

    # What AMQPStorm hands over

    def message(self, message: Any) -> dict[str, Any]:
        delivery = message.method
        return {
            "ref": self.messages.keep(message),
            "data": message.body.decode("latin-1"),
            "headers": header_lists(message.properties.get("headers")),
            "exchange": text(delivery["exchange"]),
            "routing_key": text(delivery["routing_key"]),
            "delivery_tag": message.delivery_tag,
            "redelivered": message.redelivered,
        }


def text(value: bytes | str) -> str:
    """AMQPStorm decodes names only if it decodes bodies, too."""
    return value.decode("latin-1") if isinstance(value, bytes) else value


def described(error: BaseException) -> dict[str, Any]:
    """As AMQPStorm has it: the number is ``error_code``."""
    code = getattr(error, "error_code", None)
    return {**describe(error), **({"code": code} if code else {})}


if __name__ == "__main__":
    say_hello("amqp", "AMQPStorm", FEATURES)
    serve(Adapter(), (AMQPError, OSError), described)
