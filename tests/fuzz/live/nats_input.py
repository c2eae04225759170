"""What a fuzzing client sends to a NATS server: a session with JetStream, and mutations of it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from plumbline.wire.nats import Connect, HPub, Ping, Pub, Sub, Unsub
from tests.fuzz.broker_nats import (
    ACKS,
    CONSUMERS,
    HEADERS,
    LITERALS,
    PATTERNS,
    PAYLOADS,
    PULLS,
    PURGES,
    REPLIES,
    STREAMS,
    Requests,
)
from tests.fuzz.choices import Choices
from tests.fuzz.live.pieces import changed
from tests.wire.strategies import FRAGMENTS

DECISIONS = 4000  # bytes of them for one session
LENGTHS = (1, 5, 20, 60)
LARGEST = 900_000  # bytes of a payload
MANY = 200  # subscriptions, or streams and consumers
CONNECTS: tuple[dict[str, Any], ...] = (
    {"verbose": False, "headers": True, "no_responders": True},
    {"verbose": True, "pedantic": True},
    {"verbose": False, "echo": False, "headers": True},
    {},
)


class Written:
    """A client whose operations are kept."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.pieces.append(data)


def nats_input(random: Random) -> bytes:
    """The bytes of one connection."""
    client = Written()
    client.send(Connect.make(random.choice(CONNECTS)).raw)
    client.send(Sub.make("_I.*", 1).raw)
    requests = Requests(Choices(random.randbytes(DECISIONS)))
    for _ in range(random.choice(LENGTHS)):
        _step(client, requests)
    if not random.randrange(8):
        _many(client, requests, random)
    return changed(random, client.pieces, FRAGMENTS)


def _step(client: Written, requests: Requests) -> None:
    choices = requests.choices
    subject, stream, consumer = (choices.one_of(names) for names in (LITERALS, STREAMS, CONSUMERS))
    match choices.number(14):
        case 0 | 1:
            client.send(Pub.make(subject or "x", choices.one_of(PAYLOADS), choices.one_of(REPLIES)).raw)
        case 2 | 3:
            headers = choices.one_of(HEADERS)
            payload, reply = choices.one_of(PAYLOADS), choices.one_of(REPLIES)
            client.send(HPub.make(subject or "x", headers, payload, reply).raw)
        case 4 | 5:
            requests.stream(client, choices.one_of(("CREATE", "CREATE", "UPDATE")))
        case 6:
            requests.consumer(client)
        case 7:
            requests.api(client, f"CONSUMER.MSG.NEXT.{stream}.{consumer}", choices.one_of(PULLS))
        case 8:
            number, other = choices.number(12), choices.number(12)
            reply = f"$JS.ACK.{stream}.{consumer}.1.{number}.{other}.1700000000000000000.0"
            client.send(Pub.make(reply, choices.one_of(ACKS), choices.one_of(REPLIES)).raw)
        case 9:
            requests.api(client, f"STREAM.MSG.DELETE.{stream}", {"seq": choices.number(12)})
        case 10:
            requests.api(client, f"STREAM.PURGE.{stream}", choices.one_of(PURGES))
        case 11:
            requests.other(client)
        case 12:
            queue = choices.one_of((None, None, "q", "r"))
            client.send(Sub.make(choices.one_of(PATTERNS) or "x", choices.number(8), queue).raw)
        case _:
            client.send(Ping.make().raw)
            client.send(Unsub.make(choices.number(8), choices.one_of((None, 0, 1, 2))).raw)


def _many(client: Written, requests: Requests, random: Random) -> None:
    """Much of one kind."""
    match random.randrange(4):
        case 0:
            for number in range(10, MANY):
                client.send(Sub.make(f"many.{number}.>", number).raw)
        case 1:
            for number in range(random.randrange(MANY) // 5):
                name = f"X{random.randrange(1000)}_{number}"
                config = {"name": name, "subjects": [f"x.{name}.>"], "max_msgs": 100}
                requests.api(client, f"STREAM.CREATE.{name}", config)
                requests.api(client, f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": {}})
                client.send(Pub.make(f"x.{name}.a", b"x" * 100, "_I.1").raw)
                if random.randrange(3):
                    requests.api(client, f"STREAM.DELETE.{name}", None)
        case 2:
            client.send(Pub.make("s.a", random.randbytes(random.randrange(LARGEST)), "_I.1").raw)
        case _:
            body = json.dumps({"batch": 10, "expires": 5_000_000_000}).encode()
            for number in range(MANY):
                client.send(Pub.make(f"$JS.API.CONSUMER.MSG.NEXT.S.{number % 2}", body, f"_I.{number}").raw)
