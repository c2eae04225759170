"""The adapter of kombu over py-amqp: reads commands and writes answers and events, as in ``PROTOCOL.md``.

kombu has no thread: it reads when ``drain_events`` is called, here as soon as its socket has something.
"""

from __future__ import annotations

import contextlib
import ssl
import sys
from pathlib import Path
from typing import Any

from amqp.exceptions import AMQPError, ChannelError, ConsumerCancelled, MessageNacked
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.exceptions import KombuError
from kombu.message import Message

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from gate import Messages, Server, bodies, describe, header_lists, say, say_hello, serve_beside

# Its messages have no basic.nack. Its user connects again (``Connection.ensure``), it does not.
FEATURES = (
    "reset tls declare publish publish.mandatory publish.message_id confirm consume get ack ack.multiple "
    "reject qos bind"
)
ERRORS = (AMQPError, KombuError, OSError, ValueError)


class Adapter:
    """Commands in, what the library does and reports out."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.forget()

    def forget(self) -> None:
        """What there was of a connection."""
        self.channels: dict[int, Any] = {}
        self.confirming: set[int] = set()
        self.consumers: dict[str, Any] = {}
        self.messages: Messages[Message] = Messages()

    def waiting(self) -> tuple[Any, float | None]:
        """The socket, and how often kombu wants to be asked for heartbeats."""
        if self.connection is None:
            return None, None
        transport = self.connection.connection
        return transport.sock, transport.heartbeat / 4 or None

    def turn(self) -> None:
        """Let kombu read one frame and look after its heartbeats."""
        connection = self.connection
        try:
            with contextlib.suppress(TimeoutError):  # nothing whole was there
                connection.drain_events(timeout=0.001)
            if connection.heartbeat:
                connection.heartbeat_check()
        except ConsumerCancelled as error:
            say(event="error", **describe(error))
        except ChannelError as error:
            say(event="channel-closed", text=error.reply_text, code=error.reply_code)
        except (AMQPError, OSError) as error:
            self.connection = None
            say(event="disconnected", **describe(error))

    # Commands

    def do_connect(self, command: dict[str, Any]) -> None:
        url, heartbeat = command["url"].partition("?")[0], Server(command["url"]).heartbeat
        tls: dict[str, Any] = {}
        if "tls_ca" in command:
            tls["ssl"] = {
                "ca_certs": command["tls_ca"],
                "cert_reqs": ssl.CERT_REQUIRED,
                "server_hostname": None,  # the host of the URL
            }
        connection = Connection(url, heartbeat=heartbeat, **tls)
        connection.connect()
        self.connection = connection
        self.channels.clear()
        self.confirming.clear()

    def do_close(self, command: dict[str, Any]) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.release()

    def do_reset(self, command: dict[str, Any]) -> None:
        self.do_close(command)
        self.forget()

    def do_channel(self, command: dict[str, Any]) -> None:
        self.channels[command["channel"]] = self.connection.channel()

    def do_confirm(self, command: dict[str, Any]) -> None:
        """The transport option ``confirm_publish`` does this to each channel of a connection."""
        channel = self.channels[command["channel"]]
        channel.basic_publish = channel.basic_publish_confirm
        self.confirming.add(command["channel"])

    def do_declare(self, command: dict[str, Any]) -> dict[str, Any]:
        arguments = command.get("arguments")
        options = {name: command.get(name, False) for name in ("durable", "exclusive", "auto_delete")}
        queue = Queue(command["queue"], queue_arguments=arguments, **options)
        declared = queue(self.channels[command["channel"]]).queue_declare()
        return {"queue": declared[0]}

    def do_exchange(self, command: dict[str, Any]) -> None:
        auto_delete = command.get("auto_delete", False)
        exchange = Exchange(command["exchange"], command["type"], durable=False, auto_delete=auto_delete)
        exchange(self.channels[command["channel"]]).declare()

    def do_bind(self, command: dict[str, Any]) -> None:
        queue = Queue(command["queue"])(self.channels[command["channel"]])
        queue.bind_to(command["exchange"], command["routing_key"])

    def do_publish(self, command: dict[str, Any]) -> None:
        number, channel = command["channel"], self.channels[command["channel"]]
        ((publish, body),) = bodies(command)
        properties = {"message_id": command["message_id"]} if "message_id" in command else {}
        producer = Producer(channel, auto_declare=False, on_return=self.returned)
        confirming, ack = number in self.confirming, False
        try:
            producer.publish(
                body,
                command["routing_key"],
                exchange=command.get("exchange", ""),
                mandatory=command.get("mandatory", False),
                headers=command.get("headers"),
                **properties,
            )
            ack = True
        except MessageNacked:
            pass
        finally:
            if confirming:
                say(event="confirmed", publish=publish, ack=ack)

    def do_consume(self, command: dict[str, Any]) -> None:
        subscription = command["subscription"]

        def handed_over(message: Message) -> None:
            say(event="message", subscription=subscription, message=self.message(message))

        consumer = Consumer(
            self.channels[command["channel"]],
            [Queue(command["queue"])],
            no_ack=command.get("no_ack", False),
            auto_declare=False,
            on_message=handed_over,
        )
        consumer.consume()
        self.consumers[subscription] = consumer

    def do_cancel(self, command: dict[str, Any]) -> None:
        self.consumers.pop(command["subscription"]).cancel()

    def do_get(self, command: dict[str, Any]) -> dict[str, Any]:
        queue = Queue(command["queue"])(self.channels[command["channel"]])
        message = queue.get(no_ack=command.get("no_ack", False))
        return {"message": None if message is None else self.message(message)}

    def do_ack(self, command: dict[str, Any]) -> None:
        self.messages[command["ref"]].ack(multiple=command.get("multiple", False))

    def do_reject(self, command: dict[str, Any]) -> None:
        self.messages[command["ref"]].reject(requeue=command.get("requeue", True))

    def do_qos(self, command: dict[str, Any]) -> None:
        consumer = Consumer(self.channels[command["channel"]], auto_declare=False)
        consumer.qos(prefetch_count=command["prefetch_count"], apply_global=command.get("global", False))

    # What kombu reports

    def message(self, message: Message) -> dict[str, Any]:
        found = message.delivery_info
        return {
            "ref": self.messages.keep(message),
            "data": text(message.body),
            "headers": header_lists(message.headers),
            "exchange": found["exchange"],
            "routing_key": found["routing_key"],
            "delivery_tag": message.delivery_tag,
            "redelivered": bool(found["redelivered"]),
        }

    def returned(self, error: Any, exchange: str, routing_key: str, message: Any) -> None:
        reason, code = error.reply_text, error.reply_code
        say(event="returned", code=code, text=reason, routing_key=routing_key, data=text(message.body))


def text(body: bytes | str) -> str:
    """It decodes a body whose headers say how."""
    return body if isinstance(body, str) else bytes(body).decode("latin-1")


if __name__ == "__main__":
    say_hello("amqp", "kombu", FEATURES)
    adapter = Adapter()
    serve_beside(adapter, ERRORS, adapter.waiting, adapter.turn)
