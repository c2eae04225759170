"""What the broker remembers, and how it speaks: what one event has sent or closed leaves in one batch.

No rule of the protocol stands here. ``core`` puts together what the other modules rule.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from plumbline.reference_broker.amqp.config import Config
from plumbline.reference_broker.amqp.connection import Channel, Connection
from plumbline.reference_broker.amqp.exchanges import VirtualHost
from plumbline.reference_broker.amqp.queues import Queue
from plumbline.reference_broker.amqp.storage.store import Store
from plumbline.reference_broker.ledger import Ledger
from plumbline.reference_broker.outputs import Close, Send
from plumbline.reference_broker.timers import Timers
from plumbline.wire.amqp import SHAPES, FrameType, frame

__all__ = ["Alarm", "Close", "Output", "Send", "State"]


Output = Send | Close


class Alarm(Enum):
    """What a timer is for. Its key is the alarm and a connection's id or a queue."""

    HANDSHAKE = "handshake"
    END = "end"  # close the socket
    BEAT = "beat"  # send a heartbeat, unless something was sent
    SILENCE = "silence"  # the client should have been heard
    HEAD = "head"  # the first message of a queue expires
    UNUSED = "unused"  # a queue expires


class State:
    """One broker's memory."""

    def __init__(self, config: Config, choose: Callable[[int], int], ledger: Ledger | None = None) -> None:
        self.config = config
        self.choose = choose  # a number below the one it is given
        self.vhosts = {name: VirtualHost(name) for name in config.vhosts}
        self.connections: dict[int, Connection] = {}
        self.timers: Timers[tuple[Alarm, int | Queue]] = Timers()
        self.store = Store(ledger)
        self.dirty: list[Connection] = []  # those with something to be sent or closed
        self.confirming: list[Channel] = []  # those with something to confirm
        self.blocked: str | None = None  # why publishers may not publish

    def write(self, connection: Connection, data: bytes) -> None:
        """Send bytes at the end of this event."""
        if connection.ending:
            return
        if not connection.out:
            self.dirty.append(connection)
        connection.out.append(data)

    def send(self, connection: Connection, number: int, method: str, *values: Any) -> None:
        """Send a method without content; ``values`` are all its arguments in their order."""
        self.write(connection, frame(FrameType.METHOD, number, SHAPES[method].encode_values(values)))

    def answer(self, channel: Channel, method: str, *values: Any) -> None:
        """Send a method without content on ``channel``."""
        self.send(channel.connection, channel.number, method, *values)

    def end(self, connection: Connection) -> None:
        """Close the socket once all is written."""
        if not connection.ending:
            connection.ending = True
            if not connection.out:
                self.dirty.append(connection)

    def flush(self, now: int) -> list[Output]:
        """What this event has to be sent and closed; what has to survive is entered in the ledger first."""
        outputs: list[Output] = []
        if self.store.records:
            self.store.commit(self.vhosts.values())
        for connection in self.dirty:
            if connection.out:
                outputs.append(Send(connection.id, b"".join(connection.out)))
                connection.out.clear()
                connection.spoke = now
            if connection.ending:
                outputs.append(Close(connection.id))
        self.dirty.clear()
        return outputs

    def unique(self, prefix: str) -> str:
        """``amq.gen-`` and 22 characters."""
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        return prefix + "".join(letters[self.choose(len(letters))] for _ in range(22))
