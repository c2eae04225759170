"""A second decoder for comparison: what nats-py's own parser reads in the bytes of a server.

``as_event`` gives an operation of ours in the same form.
"""

from __future__ import annotations

import asyncio
from typing import Any

from nats.protocol.parser import Parser

from plumbline.wire.nats import Err, HMsg, Info, Msg, Operation

Event = tuple[Any, ...]


class Listener:
    """What nats-py's parser calls instead of a client: it records the calls."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, payload: bytes, headers: bytes | None
    ) -> None:
        self.events.append(("message", sid, subject, reply, payload, headers or b""))

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.events.append(("INFO", info))

    async def _process_err(self, message: str) -> None:
        self.events.append(("-ERR", message))

    async def _process_ping(self) -> None:
        self.events.append(("PING",))

    async def _process_pong(self) -> None:
        self.events.append(("PONG",))


def heard_by_nats_py(chunks: list[bytes]) -> list[Event]:
    """What nats-py makes of the bytes of a server. It reports no +OK."""
    listener = Listener()
    parser = Parser(listener)

    async def parse() -> None:
        for chunk in chunks:
            await parser.parse(chunk)

    asyncio.run(parse())
    return listener.events


def as_event(operation: Operation) -> Event:
    """An operation in the words of ``Listener``."""
    match operation:
        case Msg() | HMsg():
            reply = (operation.reply or "").encode()
            names = (int(operation.sid), operation.subject.encode(), reply)
            return ("message", *names, operation.payload, operation.header_block)
        case Info():
            return ("INFO", operation.fields)
        case Err():
            return ("-ERR", f"'{operation.message}'".lower())
        case _:
            return (operation.verb,)
