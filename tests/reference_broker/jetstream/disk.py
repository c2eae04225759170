"""A disk without a disk: carries out the changes of a write queue on a dict, byte by byte if need be.

``Kept`` is a virtual broker whose streams are in files on such a disk. It knows every change since it began,
so a crash can be put between any two bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from plumbline.reference_broker.nats.assembly import build
from plumbline.reference_broker.nats.config import Config
from plumbline.reference_broker.nats.core import Output
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.write_queue import Append, Change, Files, WriteQueue, apply
from tests.reference_broker.virtual import START, Virtual

__all__ = ["Files", "Kept", "apply", "steps"]


def steps(changes: Iterable[Change]) -> Iterator[Change]:
    """The same, in pieces that an operating system does at once: a byte of an append is one."""
    for change in changes:
        if isinstance(change, Append):
            for byte in b"".join(change.chunks):
                yield Append(change.path, [bytes((byte,))])
        else:
            yield change


class Kept(Virtual):
    """A virtual broker with streams in ``files``."""

    def __init__(self, files: Files | None = None, *, now: int = START, **options: Any) -> None:
        super().__init__(jetstream=True, **options)
        self.write_queue = WriteQueue()
        self.now = now
        self.broker = build(Config.of(jetstream=True, **options), Random(1), write_queue=self.write_queue)
        self.written: list[Change] = []
        assert isinstance(self.broker.service, JetStream)
        self.service = self.broker.service
        self.warnings = self.service.recover(dict(files or {}), now)
        self.files = dict(files or {})
        self.commit()

    def commit(self) -> None:
        changes = self.write_queue.take()
        self.written += changes
        apply(self.files, changes)

    def carry_out(self, outputs: list[Output]) -> None:
        if hasattr(self, "written"):  # the first outputs come while it is being made
            self.commit()
        super().carry_out(outputs)
