"""A broker without sockets: clients are numbers, time is moved by hand, answers are read as text.

``Virtual().client()`` has sent CONNECT and PING already; what a client ``takes`` is what came since.
"""

from __future__ import annotations

from random import Random
from typing import Any

from plumbline.reference_broker.nats.assembly import build
from plumbline.reference_broker.nats.config import NS, Config
from plumbline.reference_broker.nats.core import Broker, Output, SendOutput
from plumbline.wire.nats import Connect, Decoder, Info, Operation, Sender

START = 1_795_245_184_000_000_000  # nanoseconds since the epoch
CLOSED = "<closed>"
QUIET = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}


class Virtual:
    """One broker and its clients."""

    def __init__(self, *, defect: str | None = None, seed: int = 1, **options: Any) -> None:
        self.now = START
        self.broker: Broker = build(Config.of(**options), Random(seed), [defect] if defect else [])
        self.sent: dict[int, bytes] = {}
        self.ended: set[int] = set()

    def client(self, **connect: Any) -> Client:
        """A client that is in: INFO, CONNECT and PING are behind it."""
        client = self.stranger()
        client.send(Connect.make({**QUIET, **connect}).raw + b"PING\r\n")
        client.info = Info.make(client.infos[-1])
        client.take_bytes()
        return client

    def stranger(self) -> Client:
        """A client that has sent nothing yet, and has not read INFO."""
        number = len(self.sent) + 1
        self.sent[number] = b""
        self.carry_out(self.broker.on_connected(number, self.now, "127.0.0.1"))
        return Client(self, number)

    def pass_time(self, seconds: float) -> None:
        """Move the clock, waking the broker whenever it asked to be."""
        end = self.now + round(seconds * NS)
        while (when := self.broker.next_wake()) is not None and when <= end:
            self.now = max(when, self.now)
            self.carry_out(self.broker.wake(self.now))
        self.now = end

    def carry_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            assert output.connection not in self.ended, "something was sent after the end"
            if isinstance(output, SendOutput):
                assert output.data, "an empty write"
                self.sent[output.connection] += output.data
            else:
                self.ended.add(output.connection)


class Client:
    """One connection."""

    def __init__(self, virtual: Virtual, number: int) -> None:
        self.virtual = virtual
        self.number = number
        self.info: Info | None = None

    def send(self, data: bytes | str) -> Client:
        """Send bytes; in text, each line ends with CRLF."""
        raw = (
            data if isinstance(data, bytes) else "".join(f"{line}\r\n" for line in data.split("\n")).encode()
        )
        virtual = self.virtual
        virtual.carry_out(virtual.broker.on_data(self.number, raw, virtual.now))
        return self

    def leave(self) -> None:
        virtual = self.virtual
        virtual.carry_out(virtual.broker.on_disconnected(self.number, virtual.now))

    @property
    def infos(self) -> list[dict[str, Any]]:
        """Every INFO among what came since."""
        operations = Decoder(Sender.SERVER).feed(self.virtual.sent[self.number])
        return [operation.fields for operation in operations if isinstance(operation, Info)]

    def take_bytes(self) -> bytes:
        data, self.virtual.sent[self.number] = self.virtual.sent[self.number], b""
        return data

    def take(self) -> list[str]:
        """What came since, one text per operation; INFO is left out, the end is ``<closed>``."""
        operations: list[Operation] = Decoder(Sender.SERVER).feed(self.take_bytes())
        texts = [str(operation) for operation in operations if not isinstance(operation, Info)]
        return texts + [CLOSED] * (self.number in self.virtual.ended)

    def ask(self, data: bytes | str) -> list[str]:
        """Send, and take what comes back."""
        return self.send(data).take()
