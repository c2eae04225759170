"""Captures to an audit. Each place that is named is one recording: with numbers of its own."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path

from plumbline.captures.files import CaptureSource, rows
from plumbline.captures.operations import OperationReader, OperationRow
from plumbline.monitors import Observation
from plumbline.pipeline.audit.amqp import AmqpAuditor
from plumbline.pipeline.audit.delivery_audit import DeliveryAudit, ReceiverAudit, audit
from plumbline.pipeline.audit.nats import NatsAuditor
from plumbline.wire import amqp
from plumbline.wire.sender import Sender

_TORN = ("lost", "undecodable", "entered")


class AuditReader:
    """Reads them once. ``remarks`` says what is wrong with the files themselves."""

    def __init__(self, places: Sequence[Path], protocol: str | None = None) -> None:
        """Raises ``CaptureError`` if a place is none."""
        self._sources = {name: CaptureSource([place]) for name, place in _names(places).items()}
        self._protocol = protocol
        self._auditors: dict[str, NatsAuditor | AmqpAuditor] = {}
        self._incomplete: set[str] = set()
        self._entries = DeliveryAudit()

    @property
    def remarks(self) -> list[str]:
        return [remark for source in self._sources.values() for remark in source.remarks]

    @property
    def attempts(self) -> int:
        """To publish, as far as it was read."""
        return len(self._entries.attempts)

    def audit(self, *, complete: bool = False) -> list[ReceiverAudit]:
        """The outcome of all that was published. ``complete``: every receiver read on until nothing was left.

        Raises ``CaptureError`` for a file that is no capture.
        """
        each = [self._rows(name, source) for name, source in self._sources.items()]
        last = 0
        for name, row in heapq.merge(*each, key=lambda pair: pair[1].time):
            last = row.time
            self._observe(name, row)
        for auditor in self._auditors.values():
            auditor.ended()
        if complete:
            for receiver in self._entries.receivers.values():
                receiver.read_until = last + 1
        return audit(self._entries)

    def _rows(self, name: str, source: CaptureSource) -> Iterator[tuple[str, OperationRow]]:
        for row in rows(source.packets(), OperationReader(self._protocol)):
            if row is not None:
                yield name, row

    def _observe(self, name: str, row: OperationRow) -> None:
        connection = f"{name}{row.connection.number}"
        if row.remark[0] in _TORN or row.connection.mid_stream:
            self._incomplete.add(connection)
        if row.operation is not None and row.sender is not None:
            server = str(row.connection.server)
            sender = Sender(row.sender)
            seen = Observation(row.operation, sender, connection, row.number, row.time, server)
            self._auditor(connection, row.operation).observe(seen)
        if connection in self._incomplete and connection in self._auditors:
            self._auditors[connection].mark_incomplete()

    def _auditor(self, connection: str, operation: object) -> NatsAuditor | AmqpAuditor:
        if connection not in self._auditors:
            kind = AmqpAuditor if isinstance(operation, amqp.Operation) else NatsAuditor
            self._auditors[connection] = kind(connection, self._entries)
        return self._auditors[connection]


def _names(places: Sequence[Path]) -> dict[str, Path]:
    """What stands before the numbers of connections: nothing if there is one recording, else its name."""
    if len(places) == 1:
        return {"": places[0]}
    named: dict[str, Path] = {}
    for place in places:
        name, number = place.stem, 2
        while f"{name}:" in named:
            name, number = f"{place.stem}-{number}", number + 1
        named[f"{name}:"] = place
    return named
