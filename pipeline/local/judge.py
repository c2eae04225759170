"""``plumbline judge`` in one process: the same monitors, tables and page as with Spark.

Captures are read once, packet by packet in their order. Packets and operations are written as they come;
what is remembered of a capture are the facts that several connections share. Everything else is read from
the tables, column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from plumbline import bounds
from plumbline.captures.reassembly import ConnectionNumbers
from plumbline.captures.segments import Address, Segment, segment
from plumbline.pipeline import answered, problems
from plumbline.pipeline.compliance import compliance
from plumbline.pipeline.input.files import CaptureFile, CaptureProblem, Section, capture_files, packets
from plumbline.pipeline.input.packets import PacketRows
from plumbline.pipeline.judging.cells import Cells
from plumbline.pipeline.judging.flows import FlowJudge
from plumbline.pipeline.judging.streams import FACT_COLUMNS, FOUND, judged_rows
from plumbline.pipeline.local.frame import ArrowFrame
from plumbline.pipeline.local.tables import TableWriter, read_frame, write_frame
from plumbline.pipeline.results import JudgeOptions, Manifest, new_run, publish
from plumbline.pipeline.rows import Collector, RowKind, without_surrogates
from plumbline.pipeline.spark.storage import LocalFolder
from plumbline.pipeline.tables import (
    COMPLIANCE,
    DELIVERIES,
    OPERATIONS,
    PACKETS,
    PROBLEMS,
    PUBLISHES,
    PULLS,
    TABLES,
    VIOLATIONS,
    Table,
)

_KEY, _FILE, _FRAME, _NUMBER = map(FACT_COLUMNS.index, ("key", "file", "frame", "number"))


class LocalRun:
    """One run over captures as they are.

    ``on_step`` gets each step as it begins, ``on_bytes`` how many more bytes of the captures were read.
    """

    def __init__(
        self,
        options: JudgeOptions,
        on_step: Callable[[str], None] = lambda step: None,
        on_bytes: Callable[[int], None] = lambda read: None,
    ) -> None:
        self._options, self._on_step, self._on_bytes = options, on_step, on_bytes
        self._folder = LocalFolder(Path(options.output))
        self._run = new_run()

    def run(self) -> Manifest:
        """Judges everything and makes it the result. Raises ``CaptureError`` for places that do not exist."""
        files, of_places = capture_files(self._options.paths)
        try:
            manifest = self._tables(files, of_places)
        except BaseException:
            self._folder.delete(self._run)
            raise
        publish(self._folder, manifest)
        return manifest

    def _tables(self, files: Sequence[CaptureFile], of_places: Sequence[CaptureProblem]) -> Manifest:
        self._on_step(f"decoding {len(files)} {'capture' if len(files) == 1 else 'captures'}")
        decoded = _Decoded(keeps_payloads=self._options.keeps_payloads)
        with (
            TableWriter(self._at(PACKETS), PACKETS) as packet_rows,
            self._writer(OPERATIONS) as operation_rows,
        ):
            for rows in decoded.batches(files, packet_rows, self._on_bytes):
                operation_rows.add(rows)
        self._on_step("judging streams and queues across connections")
        found = self._found(decoded.fact_rows)
        self._on_step("writing tables")
        operations = read_frame(self._at(OPERATIONS), OPERATIONS)
        write_frame(answered.deliveries(operations), self._at(DELIVERIES), DELIVERIES)
        write_frame(answered.pulls(operations), self._at(PULLS), PULLS)
        write_frame(answered.publishes(operations), self._at(PUBLISHES), PUBLISHES)
        violations = read_frame(self._at(VIOLATIONS), VIOLATIONS)
        of_files = problems.rows_of_problems([*of_places, *decoded.problems])
        problem_rows = ArrowFrame.of_rows(PROBLEMS, of_files).unionByName(
            problems.problems_of_connections(operations)
        )
        wrong = write_frame(problem_rows.orderBy("capture", "frame"), self._at(PROBLEMS), PROBLEMS)
        write_frame(compliance(operations, violations), self._at(COMPLIANCE), COMPLIANCE)
        return Manifest(
            run=self._run,
            tables=tuple(TABLES),
            captures=tuple(without_surrogates(file.name) for file in files),
            payloads=self._options.keeps_payloads,
            operations=decoded.operations,
            violations=found,
            possible=violations.column("certain").false_count if found else 0,
            problems=wrong,
        )

    def _found(self, fact_rows: list[tuple[Any, ...]]) -> int:
        """Writes the violations; how many there are."""
        fact_rows.sort(key=_place_of_facts)
        collected = Collector(FOUND)
        with self._writer(VIOLATIONS) as writer:
            for batch in collected.all(judged_rows(fact_rows)):
                writer.add(pa.Table.from_batches([batch]))
            for batch in collected.take():
                writer.add(pa.Table.from_batches([batch]))
        return writer.rows

    def _writer(self, table: Table) -> TableWriter:
        return TableWriter(self._at(table), table)

    def _at(self, table: Table) -> str:
        return self._folder.at(self._run, table.name)


def _place_of_facts(row: tuple[Any, ...]) -> tuple[str, int, int, int]:
    return row[_KEY] or "", row[_FILE], row[_FRAME], row[_NUMBER]


class _Decoded:
    """Captures as they are read: operations leave in batches, the rest is collected."""

    def __init__(self, *, keeps_payloads: bool) -> None:
        self._keeps_payloads = keeps_payloads
        self.fact_rows: list[tuple[Any, ...]] = []  # by FACT_COLUMNS
        self.problems: list[CaptureProblem] = []
        self.operations = 0
        self._numbers = ConnectionNumbers()
        self._flows: dict[tuple[Address, Address], FlowJudge] = {}
        self._closed: dict[int, tuple[Address, Address]] = {}  # whose connections have ended, the first first
        self._collected = Collector(OPERATIONS.without("day"))

    def batches(
        self,
        files: Sequence[CaptureFile],
        packet_rows: TableWriter,
        on_bytes: Callable[[int], None],
    ) -> Iterator[pa.Table]:
        """The rows of ``OPERATIONS``, without ``day``. Packets go to ``packet_rows``."""
        columns = PACKETS.names if self._keeps_payloads else PACKETS.without("payload").names
        for file in files:
            named = CaptureFile(file.path, without_surrogates(file.name), file.number)
            rows = PacketRows(named, columns)
            for found in packets(Section(file), on_bytes=on_bytes):
                if isinstance(found, CaptureProblem):
                    self.problems.append(found)
                    continue
                frame, packet = found
                carried = segment(packet)
                if carried is None:
                    continue
                if rows.add(frame, carried):
                    _write_packets(packet_rows, rows)
                yield from self._taken(self._judged(carried, named, frame))
            _write_packets(packet_rows, rows)
        for flow in {id(flow): flow for flow in self._flows.values()}.values():
            yield from self._taken(flow.finish())
        for batch in self._collected.take():
            yield pa.Table.from_batches([batch])

    def _judged(self, carried: Segment, file: CaptureFile, frame: int) -> Iterator[Cells]:
        ends = carried.source, carried.target
        flow = self._flows.get(ends)
        if flow is None:
            flow = FlowJudge(keeps_payloads=self._keeps_payloads, number_of=self._number_of)
            self._flows[ends] = self._flows[ends[::-1]] = flow
        yield from flow.feed(carried, file.number, frame, file.name)
        self._closed.pop(id(flow), None)
        if flow.is_closed:
            self._closed[id(flow)] = ends
            if len(self._closed) > bounds.LOCAL_CLOSED_FLOWS:
                yield from self._forgotten()

    def _forgotten(self) -> Iterator[Cells]:
        """The last rows of the flow whose connections ended first; there may be very many short ones."""
        ends = self._closed.pop(next(iter(self._closed)))
        flow = self._flows.pop(ends)
        self._flows.pop(ends[::-1], None)
        yield from flow.finish()

    def _number_of(self, _: int, __: int, recorded: int) -> int:
        return self._numbers.give(recorded)

    def _taken(self, rows: Iterator[Cells]) -> Iterator[pa.Table]:
        for row in rows:
            is_operation = row["row_kind"] is RowKind.OPERATION
            if not is_operation or "broken" in row:
                self.fact_rows.append(tuple(row.get(name) for name in FACT_COLUMNS))
            if is_operation:
                self.operations += row["number"] > 0
                if self._collected.add(row):
                    for batch in self._collected.take():
                        yield pa.Table.from_batches([batch])


def _write_packets(writer: TableWriter, rows: PacketRows) -> None:
    for batch in rows.take():
        table = pa.Table.from_batches([batch])
        if "payload" not in batch.schema.names:
            table = table.append_column("payload", pa.nulls(table.num_rows, pa.binary()))
        writer.add(table)
