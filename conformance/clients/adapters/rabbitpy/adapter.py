"""The adapter of rabbitpy: reads commands and writes answers and events, as in ``PROTOCOL.md``.

rabbitpy reads in a thread of its own. It has no callbacks: a consumer is a generator that blocks, here in one
more thread for each of them, and errors are raised at the next use. Its documentation wants each channel in
one thread. A consumer that waits leaves no way to keep to that: the other commands come from the main thread,
one at a time, when the consumer has nothing left to hand over.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import rabbitpy
from rabbitpy.exceptions import (
    AMQPException,
    ConnectionException,
    MessageReturnedException,
    RabbitpyException,
    RemoteCancellationException,
    RemoteClosedException,
)

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from gate import Messages, bodies, describe, header_lists, say, say_hello, serve

# It shows that a connection is blocked, without the reason, to who asks; it does not connect again.
FEATURES = (
    "reset tls declare publish publish.mandatory publish.message_id confirm consume get ack ack.multiple "
    "nack reject qos tx bind"
)
EXCHANGES = {
    "direct": rabbitpy.DirectExchange,
    "fanout": rabbitpy.FanoutExchange,
    "headers": rabbitpy.HeadersExchange,
    "topic": rabbitpy.TopicExchange,
}
ERRORS = (RabbitpyException, OSError, RuntimeError)
LOOK_EVERY_S = 0.01
CANCELLED_WITHIN_S = 1.0


class Consuming(NamedTuple):
    """A consumer, and the thread that runs it."""

    queue: Any
    thread: threading.Thread


class Adapter:
    """Commands in, what the library does and reports out."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.forget()

    def forget(self) -> None:
        """What there was of a connection."""
        self.channels: dict[int, Any] = {}
        self.transactions: dict[int, Any] = {}
        self.consumers: dict[str, Consuming] = {}
        self.messages: Messages[Any] = Messages()

    # Commands

    def do_connect(self, command: dict[str, Any]) -> None:
        url = command["url"]
        if "tls_ca" in command:
            tls = {"cacertfile": command["tls_ca"], "verify": "required", "ssl_check_hostname": "yes"}
            url += ("&" if "?" in url else "?") + urlencode(tls)
        self.connection = rabbitpy.Connection(url)
        self.channels.clear()

    def do_close(self, command: dict[str, Any]) -> None:
        for subscription in list(self.consumers):
            self.do_cancel({"subscription": subscription})
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def do_reset(self, command: dict[str, Any]) -> None:
        self.do_close(command)
        self.forget()

    def do_channel(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]] = self.connection.channel()

    def do_confirm(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]].enable_publisher_confirms()

    def do_declare(self, command: dict[str, Any]) -> dict[str, Any]:
        asked = ("durable", "exclusive", "auto_delete", "arguments")
        options = {name: command[name] for name in asked if name in command}
        queue = rabbitpy.Queue(self.channels[command["channel"]], command["queue"], **options)
        queue.declare()
        return {"queue": queue.name}

    def do_exchange(self, command: dict[str, Any]) -> None:
        kind, channel = EXCHANGES[command["type"]], self.channels[command["channel"]]
        kind(channel, command["exchange"], auto_delete=command.get("auto_delete", False)).declare()

    def do_bind(self, command: dict[str, Any]) -> None:
        queue = rabbitpy.Queue(self.channels[command["channel"]], command["queue"])
        queue.bind(command["exchange"], command["routing_key"])

    def do_publish(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        ((publish, body),) = bodies(command)
        names = ("headers", "message_id")
        properties = {name: command[name] for name in names if name in command}
        message, confirming, ack = (
            rabbitpy.Message(channel, body, properties),
            channel.publisher_confirms,
            False,
        )
        try:
            ack = message.publish(
                command.get("exchange", ""), command["routing_key"], mandatory=command.get("mandatory", False)
            )
        except MessageReturnedException as error:
            if not confirming:  # it is about another one
                raise
            # rabbitpy has not its body. It is raised where the message was published: that is known.
            say(event="returned", publish=publish, data=command["data"], **returned(error))
        finally:
            if confirming:
                say(event="confirmed", publish=publish, ack=ack)

    def do_consume(self, command: dict[str, Any]) -> None:
        queue = rabbitpy.Queue(self.channels[command["channel"]], command["queue"])
        subscription, messages = command["subscription"], queue.consume(no_ack=command.get("no_ack", False))
        arguments = [command["channel"], subscription, messages]
        thread = threading.Thread(target=self.consume, args=arguments, daemon=True)
        self.consumers[subscription] = Consuming(queue, thread)
        thread.start()
        while thread.is_alive() and not queue.consuming:
            time.sleep(LOOK_EVERY_S)

    def consume(self, channel: int, subscription: str, messages: Iterator[Any]) -> None:
        """In a thread of its own: what rabbitpy has for a consumer."""
        connection = self.connection
        try:
            for message in messages:
                say(event="message", subscription=subscription, message=self.message(message))
        except RemoteCancellationException as error:
            say(event="ended", subscription=subscription, text=str(error))
        except MessageReturnedException as error:
            say(event="returned", **returned(error))
            say(event="ended", subscription=subscription, text=str(error))
        except ERRORS as error:
            if self.consumers.pop(subscription, None) is None or connection is not self.connection:
                return  # closed by a command meanwhile
            if is_of_connection(error):
                self.connection = None  # to close it would wait for ever
                say(event="disconnected", **described(error))
            else:
                say(event="channel-closed", channel=channel, **described(error))

    def do_cancel(self, command: dict[str, Any]) -> None:
        queue, thread = self.consumers.pop(command["subscription"])
        if queue.consuming:
            # As stop_consuming, which does not say nowait and sends basic.cancel again every 10 ms until the
            # answer has come.
            queue.consuming = False
            queue.channel.cancel_consumer(queue, nowait=True)
            thread.join(CANCELLED_WITHIN_S)

    def do_get(self, command: dict[str, Any]) -> dict[str, Any]:
        queue = rabbitpy.Queue(self.channels[command["channel"]], command["queue"])
        message = queue.get(acknowledge=not command.get("no_ack", False))
        return {"message": None if message is None else self.message(message)}

    def do_ack(self, command: dict[str, Any]) -> None:
        self.messages[command["ref"]].ack(all_previous=command.get("multiple", False))

    def do_nack(self, command: dict[str, Any]) -> None:
        multiple, requeue = command.get("multiple", False), command.get("requeue", True)
        self.messages[command["ref"]].nack(requeue=requeue, all_previous=multiple)

    def do_reject(self, command: dict[str, Any]) -> None:
        self.messages[command["ref"]].reject(requeue=command.get("requeue", True))

    def do_qos(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        channel.prefetch_count(command["prefetch_count"], all_channels=command.get("global", False))

    def do_tx_select(self, command: dict[str, Any]) -> None:
        transaction = rabbitpy.Tx(self.channels[command["channel"]])
        self.transactions[command["channel"]] = transaction
        transaction.select()

    def do_tx_commit(self, command: dict[str, Any]) -> None:
        self.transactions[command["channel"]].commit()

    def do_tx_rollback(self, command: dict[str, Any]) -> None:
        self.transactions[command["channel"]].rollback()

    # What rabbitpy hands over

    def message(self, message: Any) -> dict[str, Any]:
        return {
            "ref": self.messages.keep(message),
            "data": message.body.decode("latin-1"),
            "headers": header_lists(message.properties.get("headers")),
            "exchange": message.exchange,
            "routing_key": message.routing_key,
            "delivery_tag": message.delivery_tag,
            "redelivered": message.redelivered,
        }


def returned(error: MessageReturnedException) -> dict[str, Any]:
    """What a MessageReturnedException has of basic.return."""
    code, text, _, routing_key = error.args
    return {"code": code, "text": text, "routing_key": routing_key}


def is_of_connection(error: BaseException) -> bool:
    """Whether the connection is lost: rabbitpy has the same errors for both, with the frame for a channel."""
    if isinstance(error, AMQPException):
        return not hasattr(error.args[0], "reply_code")
    return isinstance(error, (ConnectionException, RemoteClosedException, OSError))


def described(error: BaseException) -> dict[str, Any]:
    """As rabbitpy has it: the arguments are channel.close, or the number and the text of connection.close."""
    found: dict[str, Any] = describe(error)
    if isinstance(error, AMQPException):
        close = error.args[0]
        if hasattr(close, "reply_code"):
            return {**found, "code": close.reply_code, "text": close.reply_text}
        return {**found, "code": close}
    return found


if __name__ == "__main__":
    say_hello("amqp", "rabbitpy", FEATURES)
    serve(Adapter(), ERRORS, described)
