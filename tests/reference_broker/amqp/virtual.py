"""A broker without sockets: clients are numbers, time is moved by hand, answers are operations.

``Virtual().client()`` has an open connection with one channel; what a client ``takes`` is what came since.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from plumbline.reference_broker.amqp.assembly import build
from plumbline.reference_broker.amqp.config import NS, Config
from plumbline.reference_broker.amqp.core import Broker, Output, SendOutput
from plumbline.reference_broker.write_queue import Append, Replace, WriteQueue
from plumbline.wire.amqp import PROTOCOL_HEADER, Decoder, Method, Operation, Sender

START = 1_795_245_184_000_000_000  # nanoseconds since the epoch


class Virtual:
    """One broker and its clients. ``files`` is what its disk holds, if it has one."""

    def __init__(
        self,
        *,
        defect: str | None = None,
        files: Mapping[str, bytes] | None = None,
        now: int = START,
        **options: Any,
    ) -> None:
        self.now = now
        self.write_queue = None if files is None else WriteQueue()
        self.files = dict(files or {})
        config = Config.of(**options)
        self.broker: Broker = build(
            config, Random(1), [defect] if defect else [], write_queue=self.write_queue
        )
        self.warnings = [] if files is None else self.broker.recover(self.files, self.now)
        self.write()
        self.sent: dict[int, bytes] = {}
        self.ended: set[int] = set()

    def write(self) -> None:
        """Do what the write queue asks for."""
        for change in self.write_queue.take() if self.write_queue is not None else ():
            if isinstance(change, Append):
                self.files[change.path] = self.files.get(change.path, b"") + b"".join(change.chunks)
            else:
                assert isinstance(change, Replace)
                self.files[change.path] = change.data

    def stranger(self) -> Client:
        """A client that has sent nothing yet."""
        number = len(self.sent) + 1
        self.sent[number] = b""
        self.carry_out(self.broker.on_connected(number, self.now, "127.0.0.1"))
        return Client(self, number)

    def client(self, *, heartbeat: int = 0, frame_max: int = 131072, **capabilities: bool) -> Client:
        """A client whose channel 1 is open."""
        client = self.stranger()
        client.raw(PROTOCOL_HEADER)
        client.send(
            "connection.start-ok",
            0,
            client_properties={"capabilities": capabilities},
            mechanism="PLAIN",
            response="\0guest\0guest",
            locale="en_US",
        )
        client.send("connection.tune-ok", 0, channel_max=2047, frame_max=frame_max, heartbeat=heartbeat)
        client.send("connection.open", 0, virtual_host="/")
        client.send("channel.open")
        client.take()
        return client

    def pass_time(self, seconds: float) -> None:
        """Move the clock, waking the broker whenever it asked to be."""
        end = self.now + round(seconds * NS)
        while (when := self.broker.next_wake()) is not None and when <= end:
            self.now = max(when, self.now)
            self.carry_out(self.broker.wake(self.now))
        self.now = end

    def carry_out(self, outputs: list[Output]) -> None:
        self.write()
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
        self.decoder = Decoder(Sender.SERVER)

    def raw(self, data: bytes) -> None:
        virtual = self.virtual
        virtual.carry_out(virtual.broker.on_data(self.number, data, virtual.now))

    def send(self, method: str, channel: int = 1, **arguments: Any) -> None:
        self.raw(Method.make(method, channel, **arguments).raw)

    def leave(self) -> None:
        virtual = self.virtual
        virtual.carry_out(virtual.broker.on_disconnected(self.number, virtual.now))

    @property
    def is_ended(self) -> bool:
        return self.number in self.virtual.ended

    def take(self) -> list[Operation]:
        """What came since."""
        data, self.virtual.sent[self.number] = self.virtual.sent[self.number], b""
        return self.decoder.feed(data)

    def ask(self, method: str, channel: int = 1, **arguments: Any) -> list[Operation]:
        """Send, and take what comes back."""
        self.send(method, channel, **arguments)
        return self.take()

    def names(self) -> list[str]:
        """The methods that came since."""
        return [operation.method for operation in self.take()]

    def publish(self, key: str, *bodies: str, channel: int = 1, **options: Any) -> None:
        for body in bodies:
            self.send("basic.publish", channel, routing_key=key, body=body.encode(), **options)

    def get(self, queue: str, *, no_ack: bool = True) -> tuple[str, bool] | None:
        """Body and redelivered flag of the next message; None if there is none."""
        self.take()
        (answer,) = self.ask("basic.get", queue=queue, no_ack=no_ack)
        assert isinstance(answer, Method)
        if answer.method == "basic.get-empty":
            return None
        return answer.body.decode(), answer.arguments["redelivered"]

    def drain(self, queue: str) -> list[tuple[str, bool]]:
        got = []
        while (one := self.get(queue)) is not None:
            got.append(one)
        return got
