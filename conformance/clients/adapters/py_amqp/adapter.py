"""The adapter of py-amqp (``amqp`` on PyPI): reads commands and writes answers and events, as in
``PROTOCOL.md``.

py-amqp has no thread: it reads when ``drain_events`` is called, here as soon as its socket has something.
"""

from __future__ import annotations

import contextlib
import ssl
import sys
from pathlib import Path
from typing import Any

import amqp
from amqp.exceptions import AMQPError, ChannelError, ConsumerCancelled, MessageNacked

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from gate import Messages, Server, bodies, describe, header_lists, say, say_hello, serve_beside

# It has no basic.nack. Confirms are waited for one by one.
FEATURES = (
    "reset tls declare publish publish.mandatory publish.message_id confirm consume get ack ack.multiple "
    "reject qos tx bind blocked"
)
ERRORS = (AMQPError, OSError, ValueError)


class Adapter:
    """Commands in, what the library does and reports out."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.forget()

    def forget(self) -> None:
        """What there was of a connection."""
        self.channels: dict[int, Any] = {}
        self.confirming: set[int] = set()
        self.consumers: dict[str, tuple[Any, str]] = {}  # subscription: channel, consumer tag
        self.messages: Messages[Any] = Messages()

    def waiting(self) -> tuple[Any, float | None]:
        """The socket, and how often py-amqp wants to be asked for heartbeats."""
        if self.connection is None:
            return None, None
        return self.connection.sock, self.connection.heartbeat / 4 or None

    def turn(self) -> None:
        """Let py-amqp read one frame and look after its heartbeats."""
        connection = self.connection
        try:
            with contextlib.suppress(TimeoutError):  # nothing whole was there
                connection.drain_events(timeout=0.001)
            if connection.heartbeat:
                connection.heartbeat_tick()
        except ConsumerCancelled as error:
            say(event="error", **describe(error))
        except ChannelError as error:
            say(event="channel-closed", text=error.reply_text, code=error.reply_code)
        except (AMQPError, OSError) as error:
            self.connection = None
            say(event="disconnected", **describe(error))

    # Commands

    def do_connect(self, command: dict[str, Any]) -> None:
        server = Server(command["url"])
        tls: dict[str, Any] = {}
        if "tls_ca" in command:
            tls = {
                "ca_certs": command["tls_ca"],
                "cert_reqs": ssl.CERT_REQUIRED,
                "server_hostname": server.host,
            }
        connection = amqp.Connection(
            host=f"{server.host}:{server.port}",
            userid=server.user,
            password=server.password,
            virtual_host=server.vhost,
            heartbeat=server.heartbeat,
            ssl=tls,
            on_blocked=lambda reason: say(event="blocked", text=reason),
            on_unblocked=lambda: say(event="unblocked"),
        )
        connection.connect()
        self.connection = connection
        self.channels.clear()
        self.confirming.clear()

    def do_close(self, command: dict[str, Any]) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def do_reset(self, command: dict[str, Any]) -> None:
        self.forget()
        self.do_close(command)

    def do_channel(self, command: dict[str, Any]) -> None:
        channel = self.connection.channel()
        channel.events["basic_return"].add(self.returned)
        self.channels[command["channel"]] = channel

    def do_confirm(self, command: dict[str, Any]) -> None:
        self.confirming.add(command["channel"])  # basic_publish_confirm switches them on

    def do_declare(self, command: dict[str, Any]) -> dict[str, Any]:
        asked = ("queue", "durable", "exclusive", "arguments")
        options = {name: command[name] for name in asked if name in command}
        options["auto_delete"] = command.get("auto_delete", False)  # it is true by default
        return {"queue": self.channels[command["channel"]].queue_declare(**options).queue}

    def do_exchange(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]].exchange_declare(
            command["exchange"], command["type"], auto_delete=command.get("auto_delete", False)
        )

    def do_bind(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        channel.queue_bind(command["queue"], command["exchange"], command["routing_key"])

    def do_publish(self, command: dict[str, Any]) -> None:
        number, channel = command["channel"], self.channels[command["channel"]]
        ((publish, body),) = bodies(command)
        properties = {"message_id": command["message_id"]} if "message_id" in command else {}
        message = amqp.Message(body, application_headers=command.get("headers") or {}, **properties)
        asked = (
            message,
            command.get("exchange", ""),
            command["routing_key"],
            command.get("mandatory", False),
        )
        if number not in self.confirming:
            channel.basic_publish(*asked)
            return
        try:
            channel.basic_publish_confirm(*asked)
        except MessageNacked:
            say(event="confirmed", publish=publish, ack=False)
        except ERRORS:
            say(event="confirmed", publish=publish, ack=False)
            raise
        else:
            say(event="confirmed", publish=publish, ack=True)

    def do_consume(self, command: dict[str, Any]) -> None:
        channel, subscription = self.channels[command["channel"]], command["subscription"]

        def handed_over(message: Any) -> None:
            say(event="message", subscription=subscription, message=self.message(message))

        def cancelled(_: str) -> None:
            say(event="ended", subscription=subscription, text="cancelled by the server")

        asked = channel.basic_consume(
            command["queue"], no_ack=command.get("no_ack", False), callback=handed_over, on_cancel=cancelled
        )
        self.consumers[subscription] = (
            channel,
            asked.consumer_tag if hasattr(asked, "consumer_tag") else asked,
        )

    def do_cancel(self, command: dict[str, Any]) -> None:
        channel, tag = self.consumers.pop(command["subscription"])
        channel.basic_cancel(tag)

    def do_get(self, command: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels[command["channel"]]
        message = channel.basic_get(command["queue"], no_ack=command.get("no_ack", False))
        return {"message": None if message is None else self.message(message)}

    def do_ack(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"]]
        message.channel.basic_ack(message.delivery_tag, multiple=command.get("multiple", False))

    def do_reject(self, command: dict[str, Any]) -> None:
        message = self.messages[command["ref"]]
        message.channel.basic_reject(message.delivery_tag, requeue=command.get("requeue", True))

    def do_qos(self, command: dict[str, Any]) -> None:
        channel = self.channels[command["channel"]]
        channel.basic_qos(0, command["prefetch_count"], command.get("global", False))

    def do_tx_select(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]].tx_select()

    def do_tx_commit(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]].tx_commit()

    def do_tx_rollback(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]].tx_rollback()

    # What py-amqp reports

    def message(self, message: Any) -> dict[str, Any]:
        delivery = message.delivery_info
        body = message.body if isinstance(message.body, bytes) else message.body.encode("latin-1")
        return {
            "ref": self.messages.keep(message),
            "data": body.decode("latin-1"),
            "headers": header_lists(message.headers),
            "exchange": delivery["exchange"],
            "routing_key": delivery["routing_key"],
            "delivery_tag": delivery["delivery_tag"],
            "redelivered": bool(delivery["redelivered"]),
        }

    def returned(self, error: Any, exchange: str, routing_key: str, message: Any) -> None:
        body = message.body if isinstance(message.body, str) else message.body.decode("latin-1")
        text, code = error.reply_text, error.reply_code
        say(event="returned", code=code, text=text, routing_key=routing_key, data=body)


if __name__ == "__main__":
    say_hello("amqp", "amqp", FEATURES)
    adapter = Adapter()
    serve_beside(adapter, ERRORS, adapter.waiting, adapter.turn)
