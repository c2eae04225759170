"""What a fuzzing client sends to an AMQP server: a session, mutated; and what it may have left."""

from __future__ import annotations

from random import Random
from typing import Any

from plumbline.wire.amqp import (
    PROTOCOL_HEADER,
    SHAPES,
    AmqpError,
    Decoder,
    Heartbeat,
    Method,
    Operation,
    Sender,
    frame,
    header_payload,
)
from tests.fuzz.broker_amqp import KEYS, QUEUES, SENDABLE, Requests
from tests.fuzz.choices import Choices
from tests.fuzz.live.pieces import changed
from tests.fuzz.wire_amqp import WORDS

VIRTUAL_HOST = "fuzz"  # where the honest client is not
DECISIONS = 4000  # bytes of them for one session
LENGTHS = (1, 5, 20, 60)
CHANNELS = range(1, 13)  # what is refused closes one of them, and the session goes on
LARGEST = 900_000  # bytes of a message
MANY = 200  # channels, queues or consumers


class Written:
    """A client whose frames are kept."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def send(self, method: str, channel: int = 1, **arguments: Any) -> None:
        self.pieces.append(Method.make(method, channel, **arguments).raw)


def amqp_input(random: Random) -> bytes:
    """The bytes of one connection."""
    client = Written()
    client.pieces.append(PROTOCOL_HEADER)
    client.send("connection.start-ok", 0, mechanism="PLAIN", response="\0guest\0guest", locale="en_US")
    client.send("connection.tune-ok", 0, channel_max=300, frame_max=131072, heartbeat=0)
    client.send("connection.open", 0, virtual_host=VIRTUAL_HOST)
    for channel in CHANNELS:
        client.send("channel.open", channel)
    if random.randrange(4):
        for queue in QUEUES:
            client.send("queue.declare", queue=queue)
    requests = Requests(Choices(random.randbytes(DECISIONS)))
    for _ in range(random.choice(LENGTHS)):
        _step(client, requests)
    if not random.randrange(8):
        _many(client, random)
    return changed(random, client.pieces, WORDS)


def _step(client: Written, requests: Requests) -> None:
    choices = requests.choices
    channel = choices.one_of(CHANNELS)
    match choices.number(50) % 17:  # the last of them less often than the others
        case 0 | 1 | 2:
            requests.declare(client, channel)
        case 3 | 4 | 5:
            requests.publish(client, channel)
        case 6:
            client.send("basic.get", channel, queue=choices.one_of(QUEUES), no_ack=choices.flag())
        case 7:
            client.send(
                "basic.ack", channel, delivery_tag=choices.number(9) + 1, multiple=not choices.number(4)
            )
        case 8:
            tag, requeue = choices.number(9) + 1, choices.flag()
            client.send("basic.nack", channel, delivery_tag=tag, requeue=requeue)
        case 9:
            client.send("basic.recover", channel, requeue=True)
        case 10:
            requests.consume(client, channel)
        case 11:
            requests.transaction(client, channel)
        case 12:
            requests.remove(client, channel)
        case 13:
            client.send("channel.close", channel, reply_code=200)
            client.send("channel.open", channel)
        case 14:
            client.pieces.append(Heartbeat.make().raw)
        case 15:
            client.send("confirm.select", channel)
        case _:
            name = choices.one_of(SENDABLE)
            client.pieces.append(frame(1, channel, SHAPES[name].ids + choices.data(60)))


def _many(client: Written, random: Random) -> None:
    """Much of one kind."""
    match random.randrange(5):
        case 0:
            for number in range(3, MANY):
                client.send("channel.open", number)
        case 1:
            for _ in range(MANY):
                name = f"many{random.randrange(1000)}"
                client.send("queue.declare", queue=name, durable=bool(random.randrange(2)))
                client.send("queue.bind", queue=name, exchange="amq.topic", routing_key=f"{name}.#")
                client.send("basic.publish", routing_key=name, body=b"x" * 100)
                if random.randrange(3):
                    client.send("queue.delete", queue=name)
        case 2:
            client.send("queue.declare", queue="q")
            for number in range(MANY):
                client.send("basic.consume", queue="q", consumer_tag=f"many{number}")
        case 3:
            body = random.randbytes(random.randrange(LARGEST))
            client.send("basic.publish", routing_key=random.choice(KEYS), body=body)
        case _:  # a message that does not end
            client.pieces.append(frame(1, 1, SHAPES["basic.publish"].encode({"routing_key": "q"})))
            client.pieces.append(frame(2, 1, header_payload(b"\0\0", 1 << random.randrange(40))))
            client.pieces += [frame(3, 1, random.randbytes(100_000)) for _ in range(random.randrange(9))]


def left_behind(sent: bytes, received: bytes) -> set[tuple[str, str]]:
    """Queues and exchanges that a connection may have declared: what, and its name."""
    found = set()
    for one in (*_methods(sent, Sender.CLIENT), *_methods(received, Sender.SERVER)):
        if one.method in ("queue.declare", "queue.declare-ok"):
            found.add(("queue", str(one.arguments["queue"])))
        elif one.method == "exchange.declare" and not str(one.arguments["exchange"]).startswith("amq."):
            found.add(("exchange", str(one.arguments["exchange"])))
    return {(kind, name) for kind, name in found if name}


def _methods(data: bytes, sender: Sender) -> list[Method]:
    operations: list[Operation]
    try:
        operations = Decoder(sender).feed(data)
    except AmqpError as error:
        operations = list(error.operations)
    return [one for one in operations if isinstance(one, Method)]
