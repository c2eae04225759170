"""Small captures as seeds of the fuzzer: both protocols, each kind of file, traffic in different states."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from plumbline.captures import pcapng
from plumbline.captures.packets import ACK, FIN, SYN, PacketFlow
from plumbline.wire import nats
from plumbline.wire.amqp import PROTOCOL_HEADER, Method
from plumbline.wire.sender import Direction

BEGUN_NS = 1_790_000_000_000_000_000
STEP_NS = 1_000_000
ASKS, ANSWERS = Direction.TO_SERVER, Direction.TO_CLIENT

Spoken = tuple[Direction, bytes]
Frame = tuple[int, bytes]  # time in ns, packet from its IP header on


def _nats_opening() -> Iterable[Spoken]:
    yield ANSWERS, b'INFO {"server_id":"X","version":"2.10.0","headers":true,"max_payload":1048576}\r\n'
    yield ASKS, b'CONNECT {"verbose":false,"name":"sample","lang":"go","version":"1"}\r\nPING\r\n'
    yield ANSWERS, b"PONG\r\n"


def _nats() -> Iterable[Spoken]:
    yield from _nats_opening()
    yield ASKS, b"SUB ORDERS.* 1\r\nSUB q.> group 2\r\n"
    yield ASKS, nats.Pub.make("ORDERS.new", b"hello", "_INBOX.abc.1").raw
    yield ANSWERS, nats.Msg.make("ORDERS.new", 1, b"hello", "_INBOX.abc.1").raw
    yield ASKS, nats.HPub.make("ORDERS.h", b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n", b"\xff\xfe").raw
    yield ANSWERS, nats.HMsg.make("ORDERS.h", 1, b"NATS/1.0 503\r\n\r\n", b"").raw
    yield ASKS, b"UNSUB 1 3\r\nUNSUB 2\r\n"
    yield ANSWERS, b"-ERR 'Stale Connection'\r\n"


def _jetstream() -> Iterable[Spoken]:
    def api(name: str, number: int, /, **asked: object) -> Iterable[Spoken]:
        reply = f"_INBOX.js.{number}"
        yield ASKS, nats.Pub.make(f"$JS.API.{name}", json.dumps(asked).encode(), reply).raw

    yield from _nats_opening()
    yield ASKS, b"SUB _INBOX.js.* 9\r\nSUB deliver 3\r\n"
    yield from api("STREAM.CREATE.S", 1, name="S", subjects=["o.>"])
    yield ANSWERS, nats.Msg.make("_INBOX.js.1", 9, b'{"type":"x","config":{"name":"S"}}').raw
    yield from api("CONSUMER.CREATE.S.C", 2, stream_name="S", config={"durable_name": "C", "max_deliver": 3})
    yield ANSWERS, nats.Msg.make("_INBOX.js.2", 9, b'{"stream_name":"S","name":"C","config":{}}').raw
    for number in range(1, 4):
        yield ASKS, nats.Pub.make("o.x", b"message %d" % number, f"_INBOX.js.{number + 2}").raw
        yield ANSWERS, nats.Msg.make(f"_INBOX.js.{number + 2}", 9, b'{"stream":"S","seq":%d}' % number).raw
    yield from api("CONSUMER.MSG.NEXT.S.C", 6, batch=2, expires=5_000_000_000)
    for number in (1, 2):
        reply = f"$JS.ACK.S.C.1.{number}.{number}.1700000000000000000.{3 - number}"
        yield ANSWERS, nats.Msg.make("o.x", 9, b"message %d" % number, reply).raw
        yield ASKS, nats.Pub.make(reply, b"+ACK").raw
    yield ANSWERS, nats.HMsg.make("_INBOX.js.6", 9, b"NATS/1.0 408 Request Timeout\r\n\r\n", b"").raw


def _method(name: str, channel: int = 1, **arguments: Any) -> bytes:
    return Method.make(name, channel, **arguments).raw


def _amqp() -> Iterable[Spoken]:
    table = {"product": "sample", "version": "1", "deep": {"a": [1, {"b": None}]}}
    yield ASKS, PROTOCOL_HEADER
    yield (
        ANSWERS,
        _method(
            "connection.start", 0, version_major=0, version_minor=9, server_properties=table,
            mechanisms=b"PLAIN", locales=b"en_US",
        ),
    )  # fmt: skip
    yield (
        ASKS,
        _method(
            "connection.start-ok", 0, client_properties=table, mechanism="PLAIN", response=b"\0guest\0guest",
            locale="en_US",
        ),
    )  # fmt: skip
    yield ANSWERS, _method("connection.tune", 0, channel_max=2047, frame_max=131072, heartbeat=60)
    yield ASKS, _method("connection.tune-ok", 0, channel_max=2047, frame_max=131072, heartbeat=60)
    yield ASKS, _method("connection.open", 0, virtual_host="/")
    yield ANSWERS, _method("connection.open-ok", 0)
    yield ASKS, _method("channel.open")
    yield ANSWERS, _method("channel.open-ok")
    yield ASKS, _method("queue.declare", queue="q")
    yield ANSWERS, _method("queue.declare-ok", queue="q", message_count=0, consumer_count=0)
    yield ASKS, _method("confirm.select")
    yield ANSWERS, _method("confirm.select-ok")
    yield ASKS, _method("basic.qos", prefetch_count=2)
    yield ANSWERS, _method("basic.qos-ok")
    yield ASKS, _method("basic.consume", queue="q", consumer_tag="c")
    yield ANSWERS, _method("basic.consume-ok", consumer_tag="c")
    for number in (1, 2, 3):
        body = b"message %d" % number
        properties = {"message_id": str(number), "headers": {"x": number}}
        yield ASKS, _method("basic.publish", routing_key="q", body=body, properties=properties)
        yield ANSWERS, _method("basic.ack", delivery_tag=number)
        delivery: dict[str, Any] = {"consumer_tag": "c", "delivery_tag": number, "routing_key": "q"}
        yield ANSWERS, _method("basic.deliver", **delivery, body=body, properties=properties)
        yield ASKS, _method("basic.ack", delivery_tag=number, multiple=number == 3)


def _strange() -> Iterable[Spoken]:
    yield ASKS, b"\x16\x03\x01\x00\x05hello" + bytes(40)
    yield ANSWERS, b"\x16\x03\x03\x00\x05world" + bytes(40)


def _packets(spoken: Iterable[Spoken], number: int = 1, *, port: int = 4222, cut: int = 1400) -> list[Frame]:
    """One connection with its handshake and its ends."""
    host = "2001:db8::" if number % 2 == 0 else "10.0.0."
    flow = PacketFlow(number, (f"{host}1", 40_000 + number), (f"{host}2", port))
    frames: list[bytes] = [flow.head(ASKS, 0, SYN), flow.head(ANSWERS, 0, SYN | ACK)]
    for direction, data in spoken:
        for at in range(0, len(data), cut):
            piece = data[at : at + cut]
            frames.append(flow.head(direction, len(piece)) + piece)
    frames += [flow.head(direction, 0, FIN | ACK) for direction in Direction]
    return [(BEGUN_NS + place * STEP_NS, frame) for place, frame in enumerate(frames)]


def _pcapng(frames: Sequence[Frame], *, order: str = "<", comments: Sequence[bytes] = ()) -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = struct.pack(order + "I", len(body) + 12)
        return struct.pack(order + "I", kind) + size + body + size

    def options(*given: tuple[int, bytes]) -> bytes:
        parts = [
            struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)
            for code, value in given
        ]
        return b"".join(parts) + bytes(4)

    parts = [
        block(
            pcapng.SECTION_HEADER,
            struct.pack(order + "IHHq", pcapng.BYTE_ORDER_MAGIC, 1, 0, -1) + options((4, b"sample")),
        ),
        block(
            pcapng.INTERFACE, struct.pack(order + "HHI", 101, 0, 0) + options((9, b"\x09"), (14, bytes(8)))
        ),
    ]
    for place, (time, frame) in enumerate(frames):
        size = len(frame)
        body = struct.pack(order + "5I", 0, time >> 32, time & 0xFFFFFFFF, size, size) + frame
        body += bytes(-len(body) % 4)
        if place < len(comments):
            body += options((1, comments[place]))
        parts.append(block(pcapng.ENHANCED_PACKET, body))
    statistics = struct.pack(order + "3I", 0, 0, 0) + options((1, b"plumbline: ended"))
    parts.append(block(pcapng.INTERFACE_STATISTICS, statistics))
    return b"".join(parts)


def _other_blocks(frames: Sequence[Frame]) -> bytes:
    """Simple and obsolete packet blocks, and one that no reader knows."""
    parts = [pcapng.section_header("sample"), pcapng.interface("i", "d")]
    for place, (time, frame) in enumerate(frames):
        padded = frame + bytes(-len(frame) % 4)
        if place % 2:
            body = struct.pack("<I", len(frame)) + padded
            parts.append(pcapng.block(pcapng.SIMPLE_PACKET, body))
        else:
            size = len(frame)
            body = struct.pack("<HHIIII", 0, 0, time >> 32, time & 0xFFFFFFFF, size, size) + padded
            parts.append(pcapng.block(pcapng.OBSOLETE_PACKET, body))
        parts.append(pcapng.block(10, b"TLSK" + bytes(8)))
    return b"".join(parts)


def _pcap(frames: Sequence[Frame], *, order: str = "<", magic: int = 0xA1B2C3D4, link: int = 101) -> bytes:
    headers = {101: b"", 1: bytes(12), 113: bytes(14), 276: b"", 0: b"\x02\0\0\0"}
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link)]
    unit = 1 if magic == 0xA1B23C4D else 1000
    for time, frame in frames:
        kind = b"\x86\xdd" if frame[0] >> 4 == 6 else b"\x08\0"
        whole = headers[link] + frame
        if link in (1, 113):
            whole = headers[link] + (b"\x81\0\0\x05" if link == 1 else b"") + kind + frame
        elif link == 276:
            whole = kind + bytes(18) + frame
        seconds, rest = divmod(time, 1_000_000_000)
        parts.append(struct.pack(order + "IIII", seconds, rest // unit, len(whole), len(whole)) + whole)
    return b"".join(parts)


def _mixed(frames: list[Frame]) -> list[Frame]:
    """The same with neighbours exchanged, some twice, and one missing."""
    mixed = list(frames)
    for at in range(4, len(mixed) - 2, 3):
        mixed[at], mixed[at + 1] = mixed[at + 1], mixed[at]
    return [*mixed[:7], *mixed[5:11], *mixed[12:]]


def _both() -> list[Frame]:
    return sorted(
        _packets(_jetstream(), 3) + _packets(_amqp(), 4, port=5672) + _packets(_strange(), 5, port=7)
    )


OURS = [b"plumbline: connection 7: nats", b"a note of somebody", b"plumbline: fault 1: drop PUB"]

SAMPLES: dict[str, Callable[[], bytes]] = {
    "nats.pcapng": lambda: _pcapng(_packets(_nats()), comments=OURS),
    "nats-cut.pcapng": lambda: _pcapng(_packets(_nats(), cut=9)),
    "nats-middle.pcapng": lambda: _pcapng(_packets(_nats(), cut=50)[12:]),
    "nats-mixed.pcapng": lambda: _pcapng(_mixed(_packets(_nats(), 2, cut=60))),
    "nats-big-endian.pcapng": lambda: _pcapng(_packets(_nats(), 2), order=">", comments=OURS),
    "jetstream.pcapng": lambda: _pcapng(_packets(_jetstream())),
    "jetstream-mixed.pcapng": lambda: _pcapng(_mixed(_packets(_jetstream()))),
    "jetstream.pcap": lambda: _pcap(_packets(_jetstream(), 2), link=1),
    "jetstream.pcapng.gz": lambda: gzip.compress(_pcapng(_packets(_jetstream())), mtime=0),
    "amqp.pcapng": lambda: _pcapng(_packets(_amqp(), port=5672)),
    "amqp-cut.pcapng": lambda: _pcapng(_packets(_amqp(), port=5672, cut=33)),
    "amqp-middle.pcapng": lambda: _pcapng(_packets(_amqp(), port=5672)[20:]),
    "amqp-mixed.pcapng": lambda: _pcapng(_mixed(_packets(_amqp(), 2, port=5672))),
    "amqp.pcap": lambda: _pcap(_packets(_amqp(), port=5672), magic=0xA1B23C4D, link=113),
    "amqp-big-endian.pcap": lambda: _pcap(_packets(_amqp(), 2, port=5672), order=">", link=276),
    "amqp.pcap.gz": lambda: gzip.compress(_pcap(_packets(_amqp(), port=5672), link=0), mtime=0),
    "blocks.pcapng": lambda: _other_blocks(_packets(_nats())),
    "sections.pcapng": lambda: _pcapng(_packets(_nats())) + _pcapng(_packets(_amqp(), 2), order=">"),
    "both.pcapng": lambda: _pcapng(_both(), comments=OURS),
    "tls.pcapng": lambda: _pcapng(_packets(_strange(), port=4443)) + pcapng.block(10, b"TLSK" + bytes(12)),
}
