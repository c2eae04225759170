"""NATS servers that do harm, each in one way. A server is a function of the socket of one connection.

Most of them answer the probe as a healthy server does, and begin when a check subscribes or asks.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator, Mapping

from tests.hostile.sockets import drained, flood

Script = Callable[[socket.socket], None]
MIB = 1024 * 1024
LEAVES_WITHIN_MS = 60_000
HEALTHY = {
    "server_id": "HOSTILE",
    "server_name": "hostile",
    "version": "2.10.14",
    "proto": 1,
    "headers": True,
    "max_payload": MIB,
    "jetstream": True,
}


def info(**fields: object) -> bytes:
    """An INFO line, healthy but for these fields."""
    return b"INFO " + json.dumps({**HEALTHY, **fields}).encode() + b"\r\n"


def operations(link: socket.socket) -> Iterator[tuple[bytes, list[bytes], bytes]]:
    """What a client sends: verb, fields, payload."""
    file = link.makefile("rb")
    while line := file.readline():
        verb, *fields = line.split()[:5] or [b""]
        size = int(fields[-1]) if verb in (b"PUB", b"HPUB") else 0
        yield verb, fields, file.read(size + 2)[:size] if size else b""


def polite(link: socket.socket) -> Iterator[tuple[bytes, list[bytes], bytes]]:
    """Greets, answers PING, and gives everything else."""
    link.sendall(info())
    for verb, fields, payload in operations(link):
        if verb == b"PING":
            link.sendall(b"PONG\r\n")
        else:
            yield verb, fields, payload


def on_subscription(begin: Callable[[socket.socket, bytes, bytes], None]) -> Script:
    """Healthy until a check subscribes; then ``begin`` gets subject and sid."""

    def script(link: socket.socket) -> None:
        for verb, fields, _ in polite(link):
            if verb == b"SUB":
                begin(link, fields[0], fields[-1])

    return script


def flooding(chunk: bytes) -> Script:
    """Endless copies of ``chunk``, where @SUBJECT and @SID are those of the subscription."""

    def begin(link: socket.socket, subject: bytes, sid: bytes) -> None:
        with drained(link):
            flood(link, chunk.replace(b"@SUBJECT", subject).replace(b"@SID", sid))

    return on_subscription(begin)


def answering(answer: Callable[[bytes, bytes], bytes | None]) -> Script:
    """Healthy, and answers requests with what ``answer`` makes of subject and payload; None closes."""

    def script(link: socket.socket) -> None:
        sid = b"1"
        for verb, fields, payload in polite(link):
            if verb == b"SUB":
                sid = fields[-1]
            elif verb in (b"PUB", b"HPUB") and len(fields) >= (3 if verb == b"PUB" else 4):
                body = answer(fields[0], payload)
                if body is None:
                    return
                link.sendall(b"MSG %b %b %d\r\n%b\r\n" % (fields[1], sid, len(body), body))

    return script


# -- before the probe has ended ----------------------------------------------------------------


def endless_info(link: socket.socket) -> None:
    """An INFO line without an end."""
    link.sendall(b'INFO {"a":"')
    flood(link, b"a" * 65536)


def nested_info(link: socket.socket) -> None:
    """INFO nested 10 000 deep."""
    link.sendall(b"INFO " + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"\r\n")
    drained(link).wait()


def long_number(link: socket.socket) -> None:
    """INFO with a number of 50 000 digits."""
    link.sendall(info()[:-3] + b',"max_payload":' + b"9" * 50_000 + b"}\r\n")
    drained(link).wait()


def noise(link: socket.socket) -> None:
    """Random bytes."""
    flood(link, b"\x00" + os.urandom(65536))


def reset(link: socket.socket) -> None:
    """INFO, then a reset of the connection."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.sendall(info())


def ok_without_end(link: socket.socket) -> None:
    """Takes every connection, and sends +OK for ever where it should send PONG."""
    link.sendall(info())
    with drained(link):
        flood(link, b"+OK\r\n" * 5000)


# -- afterwards --------------------------------------------------------------------------------


def stored_for_ever(subject: bytes, payload: bytes) -> bytes:
    """STREAM.NAMES lists page after page of streams of this run, and no end is near."""
    if not subject.startswith(b"$JS.API.STREAM.NAMES"):
        return b"{}"
    offset = json.loads(payload or b"{}").get("offset", 0)
    names = [f"{_run_prefix}{offset + number}" for number in range(1000)]
    return json.dumps({"total": 10**15, "offset": offset, "limit": 1000, "streams": names}).encode()


_run_prefix = "PLaaaaa"


def wrong_types(subject: bytes, payload: bytes) -> bytes:
    """Every field is there, and none has its type."""
    wrong = {"error": 7, "type": [], "config": "x", "state": [1], "streams": {"a": 1}, "total": "many"}
    wrong |= {"seq": "1", "stream": 5, "name": None, "cluster": 0, "delivered": 1, "ack_floor": "0"}
    del wrong["error"]
    return json.dumps(wrong).encode()


def wrong_error(subject: bytes, payload: bytes) -> bytes:
    """Errors that are no errors."""
    return b'{"error":{"code":"x","err_code":[1],"description":{"a":2}}}'


def nested_answer(subject: bytes, payload: bytes) -> bytes:
    """JSON nested 100 000 deep."""
    return b'{"a":' * 100_000 + b"1" + b"}" * 100_000


def long_answer(subject: bytes, payload: bytes) -> bytes:
    """A number of 400 000 digits in an answer."""
    return b'{"seq":' + b"7" * 400_000 + b"}"


def closes(subject: bytes, payload: bytes) -> None:
    """Every request ends the connection."""


def half_a_message(link: socket.socket, subject: bytes, sid: bytes) -> None:
    """A message that comes byte by byte, and never whole."""
    with drained(link) as peer:
        link.sendall(b"MSG %b %b 100000\r\n" % (subject, sid))
        while not peer.has_closed:
            link.sendall(b"x")
            peer.wait(0.05)


def pong_storm(link: socket.socket) -> None:
    """20 000 PONGs for each PING."""
    link.sendall(info())
    for verb, _, _ in operations(link):
        if verb == b"PING":
            link.sendall(b"PONG\r\n" * 20_000)


def does_not_read(link: socket.socket) -> None:
    """Answers the probe, then never reads again, and pings."""
    for verb, _, _ in polite(link):
        if verb == b"SUB":
            link.sendall(b"PING\r\n" * 100)
            left = select.poll()
            left.register(link, select.POLLRDHUP)
            left.poll(LEAVES_WITHIN_MS)  # the peer gives up before; what it sends is never read
            return


def other_identity() -> Script:
    """Another server id on every connection."""
    numbers = iter(range(1_000_000))

    def script(link: socket.socket) -> None:
        link.sendall(info(server_id=str(next(numbers))))
        for verb, _, _ in operations(link):
            if verb == b"PING":
                link.sendall(b"PONG\r\n")

    return script


def silent(link: socket.socket) -> None:
    """Answers PING and nothing else."""
    for _ in polite(link):
        pass


_LINES = b"".join(b"k%d: v\r\n" % number for number in range(60_000))
_HEADERS = b"NATS/1.0\r\n" + _LINES + b"\r\n"

SERVERS: Mapping[str, Script] = {
    "endless-info": endless_info,
    "nested-info": nested_info,
    "long-number": long_number,
    "noise": noise,
    "reset": reset,
    "ok-without-end": ok_without_end,
    "info-flood": flooding(info(pad="z" * 60_000) * 4),
    "ping-flood": flooding(b"PING\r\n" * 5000),
    "err-flood": flooding(b"-ERR 'no'\r\n" * 5000),
    "small-messages": flooding(b"MSG @SUBJECT @SID 1\r\nx\r\n" * 2000),
    "large-messages": flooding(b"MSG @SUBJECT @SID 1000000\r\n" + b"y" * 1_000_000 + b"\r\n"),
    "long-subjects": flooding(b"MSG " + b"s" * 60_000 + b" @SID 1\r\nx\r\n"),
    "many-headers": flooding(
        b"HMSG @SUBJECT @SID %d %d\r\n" % (len(_HEADERS), len(_HEADERS)) + _HEADERS + b"\r\n"
    ),
    "endless-message": flooding(b"MSG @SUBJECT @SID 1000000000000\r\n" + b"x" * 100_000),
    "message-of-64-mib": flooding(b"MSG @SUBJECT @SID %d\r\n" % (64 * MIB) + b"x" * 64 * MIB + b"\r\n"),
    "half-a-message": on_subscription(half_a_message),
    "pong-storm": pong_storm,
    "does-not-read": does_not_read,
    "other-identity": other_identity(),
    "silent": silent,
    "stored-for-ever": answering(stored_for_ever),
    "wrong-types": answering(wrong_types),
    "wrong-error": answering(wrong_error),
    "nested-answer": answering(nested_answer),
    "long-answer": answering(long_answer),
    "closes": answering(closes),
}
