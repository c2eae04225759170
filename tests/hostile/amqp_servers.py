"""AMQP brokers that do harm, each in one way. A broker is a function of the socket of one connection.

Most of them open connections and channels as RabbitMQ does, and begin at the first method after that.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Mapping

from tests.hostile.sockets import Script, drained, flood

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
MIB = 1024 * 1024
SetsHarm = Callable[[socket.socket, int, tuple[int, int]], None]  # of channel, and class and method


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(name: tuple[int, int], arguments: bytes = b"", channel: int = 0) -> bytes:
    """A method frame: its class and method, and its arguments as they are."""
    return frame(METHOD, channel, struct.pack(">HH", *name) + arguments)


def short(text: bytes) -> bytes:
    """A short string."""
    return bytes([len(text)]) + text


def long(data: bytes) -> bytes:
    """A long string."""
    return struct.pack(">I", len(data)) + data


def table(**fields: bytes) -> bytes:
    """A field table; each value begins with its type."""
    return long(b"".join(short(name.encode()) + value for name, value in fields.items()))


CAPABILITIES = b"F" + table(**{"publisher_confirms": b"t\x01", "basic.nack": b"t\x01"})
PRODUCT, VERSION = b"S" + long(b"RabbitMQ"), b"S" + long(b"3.10.8")


def start(**more: bytes) -> bytes:
    """connection.start, with these server properties added."""
    properties = table(product=PRODUCT, version=VERSION, capabilities=CAPABILITIES, **more)
    return method((10, 10), b"\x00\x09" + properties + long(b"PLAIN") + long(b"en_US"))


def tune(channel_max: int = 2047, frame_max: int = 131072, heartbeat: int = 60) -> bytes:
    """connection.tune."""
    return method((10, 30), struct.pack(">HIH", channel_max, frame_max, heartbeat))


def delivery(channel: int, size: int) -> bytes:
    """basic.deliver and a content header that announces so many bytes."""
    arguments = short(b"tag") + struct.pack(">QB", 1, 0) + short(b"") + short(b"q")
    return method((60, 60), arguments, channel) + frame(HEADER, channel, struct.pack(">HHQH", 60, 0, size, 0))


def methods(link: socket.socket) -> Iterator[tuple[int, tuple[int, int], bytes]]:
    """What a client sends after its protocol header: channel, class and method, arguments."""
    file = link.makefile("rb")
    file.read(8)
    while len(head := file.read(7)) == 7:  # a client may leave in the middle of a frame
        kind, channel, size = struct.unpack(">BHI", head)
        payload = file.read(size + 1)[:size]
        if len(payload) < size:
            return
        if kind == METHOD:
            yield channel, struct.unpack(">HH", payload[:4]), payload[4:]


def opening(harm: SetsHarm, greeting: bytes = b"", tuning: bytes = b"") -> Script:
    """Opens connections and channels, closes them, and leaves everything else to ``harm``."""

    def script(link: socket.socket) -> None:
        link.sendall(greeting or start())
        for channel, name, _ in methods(link):
            match name:
                case (10, 11):
                    link.sendall(tuning or tune())
                case (10, 40):
                    link.sendall(method((10, 41), short(b"")))
                case (20, 10):
                    link.sendall(method((20, 11), long(b""), channel))
                case (20, 40):
                    link.sendall(method((20, 41), b"", channel))
                case (10, 50):
                    link.sendall(method((10, 51)))
                    return
                case (40 | 50 | 60 | 85 | 90, _):
                    harm(link, channel, name)

    return script


def flooding(chunk: bytes, *, first: Callable[[int], bytes] = lambda channel: b"") -> SetsHarm:
    """``first``, made for the channel, then ``chunk`` for ever; its channel is 1, which all checks use."""

    def harm(link: socket.socket, channel: int, name: tuple[int, int]) -> None:
        with drained(link):
            link.sendall(first(channel))
            flood(link, chunk)

    return harm


def nothing(link: socket.socket, channel: int, name: tuple[int, int]) -> None:
    """No answer."""


def closes(link: socket.socket, channel: int, name: tuple[int, int]) -> None:
    """Ends the connection without a word."""
    link.shutdown(socket.SHUT_RDWR)


def closes_channels(link: socket.socket, channel: int, name: tuple[int, int]) -> None:
    """channel.close, a thousand times, for each method."""
    text = short(b"\x1b[31m<script>\xff]]>")
    close = method((20, 40), struct.pack(">H", 404) + text + struct.pack(">HH", *name), channel)
    link.sendall(close * 1000)


def absurd_counts(link: socket.socket, channel: int, name: tuple[int, int]) -> None:
    """Declares everything with 2**32 - 1 messages, and answers nothing else."""
    if name == (50, 10):
        link.sendall(method((50, 11), short(b"q" * 255) + b"\xff" * 8, channel))


def on_many_channels(link: socket.socket, channel: int, name: tuple[int, int]) -> None:
    """The beginning of a content of 16 MiB on each of 65 535 channels, again and again."""
    with drained(link):
        while True:
            for number in range(1, 65536):
                link.sendall(delivery(number, 16 * MIB) + frame(BODY, number, b"x" * 4000))


def large_table(link: socket.socket, channel: int, name: tuple[int, int]) -> None:
    """A method whose table has two million fields."""
    field = short(b"k") + b"t\x01"
    link.sendall(method((60, 50), short(b"x" * 255) + long(field * 2_000_000), channel))


def nested_table(link: socket.socket) -> None:
    """connection.start with tables nested 20 000 deep."""
    value = b"V"
    for _ in range(20_000):
        value = b"A" + long(value)
    link.recv(8)
    link.sendall(start(x=value))
    drained(link).wait()


def endless_frame(link: socket.socket) -> None:
    """A first frame of 4 GiB."""
    link.sendall(struct.pack(">BHI", METHOD, 0, 2**32 - 1))
    flood(link, b"x" * 65536)


def challenges(link: socket.socket) -> None:
    """connection.secure for ever."""
    link.sendall(start())
    with drained(link):
        flood(link, method((10, 20), long(b"challenge")) * 100)


SERVERS: Mapping[str, Script] = {
    "endless-frame": endless_frame,
    "nested-table": nested_table,
    "challenges": challenges,
    "silent": opening(nothing),
    "tune-of-0": opening(nothing, tuning=tune(0, 0, 0)),
    "tune-of-1": opening(nothing, tuning=tune(1, 1, 1)),
    "closes": opening(closes),
    "closes-channels": opening(closes_channels),
    "absurd-counts": opening(absurd_counts),
    "heartbeat-flood": opening(flooding(frame(HEARTBEAT, 0, b"") * 8000)),
    "empty-body-frames": opening(
        flooding(frame(BODY, 1, b"") * 8000, first=lambda channel: delivery(channel, 16 * MIB))
    ),
    "small-body-frames": opening(
        flooding(frame(BODY, 1, b"x") * 8000, first=lambda channel: delivery(channel, 16 * MIB))
    ),
    "endless-body": opening(
        flooding(frame(BODY, 1, b"x" * 100_000), first=lambda channel: delivery(channel, 2**40))
    ),
    "empty-deliveries": opening(flooding(delivery(1, 0) * 2000)),
    "on-many-channels": opening(on_many_channels),
    "large-table": opening(large_table),
    "noise": opening(flooding(b"\x01\x00\x01\x00\x00\x00\x04noise" * 1000)),
}
