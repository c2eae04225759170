"""Scenarios of connections and channels: handshake, terms, errors and their scope."""

from __future__ import annotations

import struct
from typing import Any

from plumbline.wire.amqp import PROTOCOL_HEADER, FrameType, encode_entries, frame, header_payload
from tests.reference_broker.amqp.player import Player, Scenario


def wrong_headers(p: Player) -> None:
    for name, header in (("x", b"AMQP\0\0\x09\x02"), ("y", b"AMQP\x03\1\0\0"), ("z", b"GET / HT")):
        p.dial(name)
        p.raw(header, name)
        p.end(name)


def older_headers(p: Player) -> None:
    for name, header in (("x", b"AMQP\1\1\0\x09"), ("y", b"AMQP\1\1\x08\0")):
        p.dial(name)
        p.raw(header, name)
        p.expect(1, name)


def _start(p: Player, link: str, mechanism: str, response: str, **capabilities: bool) -> None:
    p.dial(link)
    p.raw(PROTOCOL_HEADER, link)
    p.expect(1, link)
    p.send(
        "connection.start-ok",
        0,
        link,
        client_properties={"capabilities": capabilities} if capabilities else {},
        mechanism=mechanism,
        response=response,
        locale="en_US",
    )


def logins(p: Player) -> None:
    _start(p, "x", "PLAIN", "\0guest\0guest")
    p.expect(1, "x")
    entries = encode_entries({"LOGIN": "guest", "PASSWORD": "guest"}).decode()
    _start(p, "y", "AMQPLAIN", entries)
    p.expect(1, "y")


def refused_logins(p: Player) -> None:
    _start(p, "x", "PLAIN", "\0guest\0wrong", authentication_failure_close=True)
    p.expect(1, "x")
    _start(p, "y", "PLAIN", "\0guest\0wrong")
    _start(p, "z", "EXTERNAL", "", authentication_failure_close=True)
    _start(p, "w", "PLAIN", "guest", authentication_failure_close=True)
    p.end("x")
    p.end("y")
    p.end("z")
    p.end("w")


def refused_terms(p: Player) -> None:
    terms = {
        "frame_max is more": (2047, 131073),
        "frame_max is too little": (2047, 4095),
        "frame_max is 0": (2047, 0),
        "channel_max is more": (2048, 131072),
        "channel_max is 0": (0, 131072),
    }
    for name, (channel_max, frame_max) in terms.items():
        _start(p, name, "PLAIN", "\0guest\0guest")
        p.expect(1, name)
        p.send("connection.tune-ok", 0, name, channel_max=channel_max, frame_max=frame_max)
        p.send("connection.open", 0, name, virtual_host="/")
    for name in terms:
        p.end(name)


def out_of_order(p: Player) -> None:
    _start(p, "x", "PLAIN", "\0guest\0guest")
    p.expect(1, "x")
    p.send("connection.open", 0, "x", virtual_host="/")
    p.dial("y")
    p.raw(PROTOCOL_HEADER, "y")
    p.expect(1, "y")
    p.send("channel.open", 1, "y")
    p.end("x")
    p.end("y")


def unknown_vhost(p: Player) -> None:
    _start(p, "x", "PLAIN", "\0guest\0guest")
    p.expect(1, "x")
    p.send("connection.tune-ok", 0, "x", channel_max=2047, frame_max=131072)
    p.ask("connection.open", 0, "x", virtual_host="nope")
    p.send("connection.close-ok", 0, "x")
    p.end("x")


def hard_errors_of_methods(p: Player) -> None:
    wrong: list[tuple[str, int, dict[str, Any]]] = [
        ("connection.open", 0, {"virtual_host": "/"}),
        ("connection.start-ok", 0, {}),
        ("channel.open", 0, {}),
        ("basic.qos", 0, {}),
        ("connection.close", 1, {}),
        ("channel.open", 1, {}),
        ("basic.qos", 7, {}),
        ("channel.close", 7, {}),
        ("channel.close-ok", 1, {}),
        ("channel.flow", 1, {"active": False}),
        ("queue.declare-ok", 1, {}),
        ("basic.deliver", 1, {}),
        ("basic.publish", 1, {"immediate": True}),
        ("basic.qos", 1, {"prefetch_size": 1024}),
        ("basic.recover", 1, {"requeue": False}),
        ("basic.recover-async", 1, {"requeue": False}),
        ("exchange.declare", 1, {"exchange": "x", "type": "bogus"}),
    ]
    for place, (method, channel, arguments) in enumerate(wrong):
        link = f"{place}"
        p.connect(link)
        p.ask(method, channel, link, **arguments)
        p.send("connection.close-ok", 0, link)
        p.end(link)


def malformed_frames(p: Player) -> None:
    publish = struct.pack(">HHHBBB", 60, 40, 0, 0, 1, ord("q")) + b"\0"
    wrong = {
        "frame end": frame(1, 1, struct.pack(">HH", 60, 10) + b"\0" * 7, end=b"\0"),
        "frame type": frame(9, 1, b"abcd"),
        "frame type 4": frame(4, 0, b""),
        "too large": frame(3, 1, b"x" * 131073),
        "claims 2 GiB": struct.pack(">BHI", 1, 1, 0x7FFFFFFF),
        "heartbeat on a channel": frame(8, 1, b""),
        "heartbeat with a payload": frame(8, 0, b"xx"),
        "arguments cut short": frame(1, 1, struct.pack(">HH", 50, 10) + b"\0\0"),
        "trailing bytes": frame(1, 1, struct.pack(">HH", 90, 10) + b"\0\0"),
        "table overruns": frame(1, 1, struct.pack(">HHHBB", 50, 10, 0, 0, 0) + b"\0\0\0\x09x"),
        "header without method": frame(2, 1, header_payload(b"\0\0", 1)),
        "body without method": frame(3, 1, b"x"),
        "method for header": frame(1, 1, publish) + frame(1, 1, publish),
        "body for header": frame(1, 1, publish) + frame(3, 1, b"x"),
        "header for body": frame(1, 1, publish) + frame(2, 1, header_payload(b"\0\0", 1)) * 2,
        "header of another class": frame(1, 1, publish) + frame(2, 1, header_payload(b"\0\0", 1, 90)),
        "header with weight": frame(1, 1, publish) + frame(2, 1, header_payload(b"\0\0", 1, weight=1)),
        "body too long": frame(1, 1, publish)
        + frame(2, 1, header_payload(b"\0\0", 1))
        + frame(3, 1, b"xy")
        + frame(1, 1, publish),
        "properties cut short": frame(1, 1, publish)
        + frame(2, 1, header_payload(b"\x80\0\x09x", 1))
        + frame(3, 1, b"x"),
    }
    for link, data in wrong.items():
        p.connect(link)
        p.raw(data, link)
        p.expect(1, link)
        p.send("connection.close-ok", 0, link)
        p.end(link)


def contents(p: Player) -> None:
    p.connect(channels=2)
    p.queue("q")
    publish = struct.pack(">HHHBBB", 60, 40, 0, 0, 1, ord("q")) + b"\0"
    head, two = frame(1, 1, publish), frame(2, 1, header_payload(b"\0\0", 2))
    p.raw(head + frame(2, 1, header_payload(b"\0\0", 0)))
    p.raw(head + two + frame(3, 1, b"1") + frame(3, 1, b"") + frame(3, 1, b"2"))
    p.raw(head + two)
    p.ask("basic.qos", 2)
    p.raw(frame(3, 1, b"34"))
    p.count("q", 3)
    p.drain("q")


def large_bodies(p: Player) -> None:
    p.connect(frame_max=4096)
    p.queue("q")
    p.fill("q", "x" * 10_000, "y" * 4088, "z" * 4089)
    p.send("basic.get", queue="q", no_ack=True)
    p.send("basic.get", queue="q", no_ack=True)
    p.send("basic.get", queue="q", no_ack=True)
    for operation in p.expect(3):
        sizes = [len(payload) for kind, payload in operation.frames() if kind == FrameType.BODY]  # type: ignore[attr-defined]
        p.log.append(f"= body frames {sizes}")


def channels(p: Player) -> None:
    p.connect("a", 2, channel_max=5)
    p.ask("channel.close")
    p.ask("channel.open")
    p.ask("channel.flow", active=True)
    p.ask("channel.open", 6)
    p.ask("channel.open", 3)
    p.ask("channel.open", 4)
    p.ask("channel.open", 5)
    p.send("connection.close-ok", 0)
    p.end()


def soft_errors(p: Player) -> None:
    p.connect("a", 2)
    p.ask("queue.declare", queue="nosuch", passive=True)
    p.send("queue.declare", queue="ignored")
    p.ask("basic.qos", 2)
    p.send("channel.close-ok")
    p.ask("channel.open")
    p.ask("queue.declare", queue="ignored", passive=True)
    p.send("channel.close-ok")
    p.ask("basic.qos")
    p.send("connection.close-ok", 0)
    p.end()


def closing(p: Player) -> None:
    p.connect()
    p.ask("connection.close", 0)


def old_extras(p: Player) -> None:
    p.connect()
    p.ask("access.request", realm="/data")
    p.ask("connection.update-secret", 0, new_secret="x", reason="y")


SCENARIOS: list[Scenario] = [
    wrong_headers,
    older_headers,
    logins,
    refused_logins,
    refused_terms,
    out_of_order,
    unknown_vhost,
    hard_errors_of_methods,
    malformed_frames,
    contents,
    large_bodies,
    channels,
    soft_errors,
    closing,
    old_extras,
]
