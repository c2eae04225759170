"""The broker without sockets, on a clock that is moved by hand: for exploration, and for tests of one's own.

Pure: connections are numbers, streams in files are in a folder that is none, and nothing happens but when
it is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from plumbline.reference_broker.nats.assembly import build
from plumbline.reference_broker.nats.config import NS, Config
from plumbline.reference_broker.nats.core import Broker, Output, SendOutput
from plumbline.reference_broker.write_queue import Files, WriteQueue, apply

START = 1_795_245_184_000_000_000  # nanoseconds since the epoch: any other would do
PEER = "127.0.0.1"


class VirtualBroker:
    """One broker. Give a ``Config``, or the fields of one as keywords; ``seed`` decides what chance decides.

    Raises ``UnknownDefectError`` or ``DefectNotApplicableError``.
    """

    def __init__(
        self, config: Config | None = None, *, defects: Iterable[str] = (), seed: int = 0, **options: Any
    ) -> None:
        self.now = START
        self.closed: set[int] = set()  # connections that the broker has ended
        self._config = config or Config.of(**options)
        self._defects = tuple(defects)
        self._seed = seed
        self._files: Files = {}
        self._waiting: dict[int, list[bytes]] = {}
        self.broker = self._started()

    def restart(self) -> None:
        """The broker ends in order, with every connection; another goes on with what it has stored."""
        apply(self._files, self._write_queue.take())
        self.closed.update(self._waiting)
        self.broker = self._started()

    def _started(self) -> Broker:
        self._write_queue = WriteQueue()
        broker = build(self._config, Random(self._seed), self._defects, write_queue=self._write_queue)
        if self._config.jetstream is not None:
            from plumbline.reference_broker.nats.jetstream.service import JetStream

            assert isinstance(broker.service, JetStream)
            broker.service.recover(self._files, self.now)
        return broker

    def open(self) -> int:
        """A new connection; INFO waits on it."""
        number = len(self._waiting) + 1
        self._waiting[number] = []
        self._carry_out(self.broker.on_connected(number, self.now, PEER))
        return number

    def send(self, connection: int, data: bytes) -> None:
        """Bytes from the client."""
        self._carry_out(self.broker.on_data(connection, data, self.now))

    def take(self, connection: int) -> bytes:
        """What was sent to the client since the last time."""
        data = b"".join(self._waiting[connection])
        self._waiting[connection].clear()
        return data

    def next_wake(self) -> float | None:
        """In how many seconds the next timer is due; None for never."""
        due = self.broker.next_wake()
        return None if due is None else max(due - self.now, 0) / NS

    def advance(self, seconds: float) -> None:
        """Let time pass, waking the broker whenever it asked to be."""
        end = self.now + round(seconds * NS)
        while (due := self.broker.next_wake()) is not None and due <= end:
            self.now = max(due, self.now)
            self._carry_out(self.broker.wake(self.now))
        self.now = end

    def _carry_out(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            if isinstance(output, SendOutput):
                self._waiting[output.connection].append(output.data)
            else:
                self.closed.add(output.connection)
