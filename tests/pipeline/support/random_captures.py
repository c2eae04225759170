"""Captures of random histories: what clients and servers say need make no sense, and packets get lost.

The seed fixes everything. Few names and few numbers, so that operations meet: the same message is delivered
and acknowledged again and again, by several connections. Files have odd names, are compressed or not, and lie
on both sides of midnight.
"""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

from plumbline.captures.packets import ACK, FIN, MAX_DATA, SYN, PacketFlow
from plumbline.captures.pcapng import MARK, interface, packet, section_header
from plumbline.wire import nats
from plumbline.wire.amqp import Method
from plumbline.wire.sender import Direction
from tests.pipeline.support.amqp_episodes import amqp_opening
from tests.pipeline.support.episodes import Step, client_sends, server_sends
from tests.pipeline.support.nats_episodes import nats_opening

MIDNIGHT_NS = 1_790_035_200_000_000_000  # 2026-09-22, UTC
FILES = ("a.pcapng", "b c=d%.pcapng.gz", "e.pcapng")
_LOST, _AGAIN, _CUT = 0.004, 0.02, 0.05  # shares of packets, and of operations in small pieces


def write_random(folder: Path, seed: int, operations: int = 500) -> None:
    """Writes a folder of captures."""
    chance = random.Random(seed)
    connections = [_Connection(number, chance) for number in range(1, 7)]
    now = MIDNIGHT_NS - operations * 1_000_000
    share = operations // len(FILES)
    for name in FILES:
        parts = [section_header("tests") + interface("i", "d")]
        for _ in range(share):
            now += chance.choice((1_000, 300_000, 5_000_000))
            one = chance.choice(connections)
            for head, data, comments in one.packets(chance):
                packet(parts, now, head, data, comments)
        content = b"".join(parts)
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


class _Connection:
    """Says something random each time it is asked."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.is_amqp = number % 3 == 0
        self._number = number
        self._flow = PacketFlow(
            number, ("10.9.1.1", 20_000 + number), ("10.9.0.1", 5672 if self.is_amqp else 4222)
        )
        self._waiting = list(amqp_opening() if self.is_amqp else nats_opening())
        self._is_begun = chance.random() < 0.3  # the capture begins later: no SYN, no opening

    def packets(self, chance: random.Random) -> list[tuple[bytes, bytes, tuple[str, ...]]]:
        """The packets of the next step, some of them lost or sent again."""
        made: list[tuple[bytes, bytes, tuple[str, ...]]] = []
        if not self._is_begun:
            self._is_begun = True
            about = f"{MARK}connection {self._number}: {'amqp' if self.is_amqp else 'nats'}"
            comments = (about,) if chance.random() < 0.5 else ()
            made.append((self._flow.head(Direction.TO_SERVER, 0, SYN), b"", comments))
            made.append((self._flow.head(Direction.TO_CLIENT, 0, SYN | ACK), b"", ()))
        step = self._waiting.pop(0) if self._waiting else random_step(chance, is_amqp=self.is_amqp)
        direction = Direction.TO_SERVER if step.by_client else Direction.TO_CLIENT
        cut = 5 if chance.random() < _CUT else MAX_DATA
        for at in range(0, len(step.data), cut):
            piece = step.data[at : at + cut]
            head = self._flow.head(direction, len(piece))
            made += [] if chance.random() < _LOST else [(head, piece, ())]
            made += [(head, piece, ())] if chance.random() < _AGAIN else []
        if chance.random() < 0.002:
            made += [(self._flow.head(direction, 0, FIN | ACK), b"", ()) for direction in Direction]
        return made


def random_step(chance: random.Random, *, is_amqp: bool) -> Step:
    """One operation of either side."""
    return _amqp(chance) if is_amqp else _nats(chance)


def _nats(chance: random.Random) -> Step:
    sequence, delivered = chance.randrange(1, 6), chance.choice((1, 1, 2))
    stream, sid, request = chance.choice("ST"), str(chance.randrange(1, 4)), chance.randrange(4)
    ack = f"$JS.ACK.{stream}.C.{delivered}.{sequence}.{sequence}.{MIDNIGHT_NS - sequence}.{request}"
    inbox = f"_INBOX.{sid}.{request}"
    pull = b'{"batch":%d,"expires":%d,"no_wait":%s}' % (request, request, chance.choice((b"true", b"false")))
    kind = chance.choice((b"+ACK", b"", b"-NAK", b"+TERM", b"+WPI", b'+NXT {"batch":2}'))
    status = chance.choice((b"404 No Messages", b"408 Request Timeout", b"100 Idle Heartbeat"))
    answer = b'{"stream":"%s","seq":%d,"duplicate":%s}' % (
        stream.encode(),
        sequence,
        b"true" * (request > 2) or b"false",
    )
    headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % request
    steps = (
        lambda: client_sends(nats.Sub.make(chance.choice((f"_INBOX.{sid}.*", "orders.*")), sid)),
        lambda: client_sends(nats.Unsub.make(sid, request or None)),
        lambda: client_sends(nats.Pub.make(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.C", pull, inbox)),
        lambda: server_sends(nats.Msg.make(f"orders.{request}", sid, b"m" * request, ack)),
        lambda: server_sends(nats.Msg.make(f"orders.{request}", sid, b"m" * request, ack)),
        lambda: client_sends(nats.Pub.make(ack, kind, inbox if request else None)),
        lambda: client_sends(nats.Pub.make(ack, b"+ACK")),
        lambda: server_sends(nats.Msg.make(inbox, sid, chance.choice((b"", answer)))),
        lambda: server_sends(nats.HMsg.make(inbox, sid, b"NATS/1.0 " + status + b"\r\n\r\n")),
        lambda: client_sends(nats.HPub.make("orders.new", headers, b"m", inbox)),
        lambda: client_sends(nats.Pub.make("orders.\udcff", b"\xff\x00", inbox)),
        lambda: client_sends(nats.Ping.make()),
        lambda: server_sends(nats.Pong.make()),
    )
    return chance.choice(steps)()


def _amqp(chance: random.Random) -> Step:
    tag, key = chance.randrange(1, 9), chance.choice(("orders", "q1"))
    is_many, is_again = chance.random() < 0.3, chance.random() < 0.3
    settle = chance.choice(("basic.ack", "basic.nack"))
    message: dict[str, Any] = {"properties": {"message_id": str(tag)} if is_many else {}, "body": b"m" * tag}
    steps = (
        lambda: client_sends(Method.make("confirm.select", 1)),
        lambda: client_sends(Method.make("basic.qos", 1, prefetch_count=tag)),
        lambda: client_sends(Method.make("basic.consume", 1, queue="q1", consumer_tag="c")),
        lambda: server_sends(Method.make("basic.consume-ok", 1, consumer_tag="c")),
        lambda: client_sends(Method.make("basic.publish", 1, routing_key=key, mandatory=is_many, **message)),
        lambda: server_sends(Method.make(settle, 1, delivery_tag=tag, multiple=is_many)),
        lambda: client_sends(Method.make(settle, 1, delivery_tag=tag, multiple=is_many)),
        lambda: server_sends(
            Method.make("basic.return", 1, reply_code=312, reply_text="NO_ROUTE", routing_key=key, **message)
        ),
        lambda: server_sends(
            Method.make(
                "basic.deliver", 1, consumer_tag="c", delivery_tag=tag, redelivered=is_again, routing_key=key,
                **message,
            )
        ),
        lambda: server_sends(Method.make("basic.get-ok", 1, delivery_tag=tag, routing_key=key, **message)),
    )  # fmt: skip
    return chance.choice(steps)()
