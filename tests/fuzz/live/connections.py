"""One fuzzing connection: its bytes, cut and ended in one of several ways."""

from __future__ import annotations

import asyncio
import socket
import struct
from enum import Enum
from random import Random

from tests.wire.segments import cut

KEPT_BYTES = 1 << 20  # of what came
WRITTEN_S = 10.0  # a server that reads no more is left
ANSWER_S = (0.05, 0.2, 1.0)
HOLDS_S = (1.0, 3.0, 8.0)


class Manner(Enum):
    """How a connection is used."""

    WHOLE = "whole"
    SEGMENTS = "in random segments"
    CLOSED = "closed in the middle"
    RESET = "reset in the middle"
    HALF_OPEN = "silent in the middle"
    UNREAD = "whole, and answers are not read"


class Traffic:
    """What all connections together did."""

    def __init__(self) -> None:
        self.connections = 0
        self.refused = 0
        self.sent = 0
        self.received = 0


class Received:
    """Reads what comes, and keeps the first of it."""

    def __init__(self, reader: asyncio.StreamReader, traffic: Traffic) -> None:
        self.data = bytearray()
        self._reader = reader
        self._traffic = traffic

    async def read(self) -> None:
        try:
            while data := await self._reader.read(1 << 16):
                self._traffic.received += len(data)
                self.data += data[: KEPT_BYTES - len(self.data)]
        except OSError:
            pass  # the server may reset it


async def play(address: tuple[str, int], data: bytes, random: Random, traffic: Traffic) -> bytes:
    """Sends ``data`` in a manner that ``random`` chooses; what came back."""
    manner = random.choice(list(Manner))
    in_the_middle = manner in (Manner.CLOSED, Manner.RESET, Manner.HALF_OPEN)
    sent = data[: random.randrange(len(data) + 1)] if in_the_middle else data
    pieces = cut(random, sent) if manner is Manner.SEGMENTS or not random.randrange(3) else [sent]
    answer_s, hold_s, resets = random.choice(ANSWER_S), random.choice(HOLDS_S), bool(random.randrange(2))
    try:
        reader, writer = await asyncio.open_connection(*address)
    except OSError:
        traffic.refused += 1
        return b""
    traffic.connections += 1
    received = Received(reader, traffic)
    if manner is Manner.UNREAD:
        _reading_side(writer).pause_reading()
    reading = asyncio.create_task(received.read())
    try:
        await _write(writer, pieces, traffic)
        match manner:
            case Manner.CLOSED:
                pass
            case Manner.RESET:
                _reset(writer)
            case Manner.HALF_OPEN:
                await asyncio.wait([reading], timeout=hold_s)
                if resets:
                    _reset(writer)
            case Manner.UNREAD:
                await asyncio.sleep(hold_s)
                _reading_side(writer).resume_reading()
                await asyncio.wait([reading], timeout=answer_s)
            case _:
                await asyncio.wait([reading], timeout=answer_s)
                if resets:
                    _reset(writer)
    except (OSError, TimeoutError):
        pass  # refused, or not read any more
    finally:
        writer.transport.abort() if resets else writer.close()
        reading.cancel()
        await asyncio.wait([reading])
    return bytes(received.data)


async def _write(writer: asyncio.StreamWriter, pieces: list[bytes], traffic: Traffic) -> None:
    async with asyncio.timeout(WRITTEN_S):
        for piece in pieces:
            writer.write(piece)
            traffic.sent += len(piece)
            await writer.drain()
            if len(pieces) > 1:
                await asyncio.sleep(0)


def _reset(writer: asyncio.StreamWriter) -> None:
    """RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _reading_side(writer: asyncio.StreamWriter) -> asyncio.ReadTransport:
    """The same transport."""
    assert isinstance(writer.transport, asyncio.ReadTransport)
    return writer.transport
