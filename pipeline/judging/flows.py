"""Bundled packets of a flow, in their order, to operations and what its own connections broke: reassembled,
decoded, read into facts, judged by the monitors of connections and channels.

A flow is all that passed between two ends, in whichever files. What goes across connections leaves as facts,
each with the key under which ``streams`` judges it. A connection's id is provisional: the place of its first
packet, so that ids are in the order of the capture and can be numbered later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from plumbline.captures.judging import CaptureJudge
from plumbline.captures.observation import CaptureObservation
from plumbline.captures.operations import OperationReader, OperationRow
from plumbline.captures.reassembly import recorder_identity
from plumbline.captures.segments import Segment
from plumbline.monitors import MonitorRunner, Violation
from plumbline.monitors.facts import Fact
from plumbline.monitors.nats.pulls import BatchIsTheLimit
from plumbline.pipeline.input.bundles import unpack, unpack_problem
from plumbline.pipeline.input.files import CaptureProblem
from plumbline.pipeline.judging.answer_links import AnswerLinks
from plumbline.pipeline.judging.cells import Cells, WithoutPayload, add_fact, cells_of, library_of
from plumbline.pipeline.judging.cross_connection import (
    LOCAL,
    FactCollector,
    OperationFacts,
    packed,
    stream_key,
)
from plumbline.pipeline.judging.states import dumped, restored
from plumbline.pipeline.rows import ROW_KIND, STATE, Collector, RowKind, rows_of
from plumbline.pipeline.tables import BYTES, INT, LONG, OPERATIONS, TEXT, VIOLATIONS, Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

_READ = ("flow", "file", "capture", "row_kind", "content", "state")  # of bundles
FRAME_BITS = 40  # of a provisional id; the file's place stands before them

STAGED = Table(
    "staged",
    "Operations as they are decoded, before connections have their numbers.",
    (
        ROW_KIND,
        *OPERATIONS.without("day").columns,
        Column("file", INT, "place of the file"),
        Column("recorded", LONG, "of an opening: the number that the recorder gave, 0 if none"),
        Column("key", TEXT, "whose facts these are: a stream's or a queue's"),
        Column("facts", BYTES, "what goes across connections, in rows of its own: see crossing"),
        Column("broken", BYTES, "violations found on the connection: see crossing.packed"),
        Column("flow", LONG, "of a state: as bundles have it"),
        STATE,
    ),
    ("capture",),
)

# The columns of it that violations need: see ``decode``.
FOR_VIOLATIONS = STAGED.without(*(name for name in OPERATIONS.names if name not in (*VIOLATIONS.names, "op")))


LINGER_S = 60.0  # after its end, late packets of a connection are still expected


class Ending(StrEnum):
    """What the end of the packets is."""

    FINAL = "final"
    TO_BE_CONTINUED = "to be continued"


class FlowMonitors(MonitorRunner):
    """The monitors of connections; also keeps the facts of the operation at hand, and what it answers.

    ``links`` false: what it answers is not asked for.
    """

    def __init__(self, *, links: bool = True) -> None:
        super().__init__(LOCAL)
        self._wants_links = links
        self._facts: list[Fact] = []
        self._answers: list[int] = []
        self._links: dict[str, AnswerLinks] = {}

    def judge(self, fact: Fact) -> Iterator[Violation]:
        self._facts.append(fact)
        if self._wants_links:
            connection = fact.place.connection
            links = self._links.get(connection)
            if links is None:
                links = self._links[connection] = AnswerLinks()
            pulls: Any = self.monitors.get((BatchIsTheLimit, connection))
            self._answers += links.answers(fact, pulls)
        yield from super().judge(fact)

    def close(self, connection: str) -> None:
        super().close(connection)
        self._links.pop(connection, None)

    def take(self) -> tuple[list[Fact], list[int]]:
        """Facts and answers since the last call."""
        taken = self._facts, self._answers
        self._facts, self._answers = [], []
        return taken


def provisional_number(file: int, frame: int, recorded: int) -> int:
    """The id of a connection that begins in this packet, until connections are numbered."""
    return file << FRAME_BITS | frame


class FlowJudge:
    """One flow. ``keeps_payloads``: payloads stand in rows and texts, not only their sizes and hashes.

    ``whole`` false: rows have what ``FOR_VIOLATIONS`` needs, and an operation without that has none.
    ``number_of`` numbers a connection by file, frame and the number that its recorder gave, 0 if none.
    """

    def __init__(
        self,
        *,
        keeps_payloads: bool,
        whole: bool = True,
        number_of: Callable[[int, int, int], int] = provisional_number,
    ) -> None:
        self._keeps_payloads = keeps_payloads
        self._number_of = number_of
        self._complete_table = whole
        self._reader = OperationReader()
        self._watch = FlowMonitors(links=whole)
        self._judge = CaptureJudge(self._watch, CaptureObservation if keeps_payloads else WithoutPayload)
        self._protocols: dict[int, str] = {}
        self._libraries: dict[int, str] = {}
        self._at: Cells = {}
        self._across = FactCollector()
        self._open: dict[int, int] = {}  # connection -> directions that have not ended
        self._latest = 0  # time of the last packet, ns

    def feed(self, carried: Segment, file: int, frame: int, capture: str) -> Iterator[Cells]:
        """The rows that this packet completes."""
        self._at = {"file": file, "frame": frame, "capture": capture}
        self._latest = carried.time
        for row in self._reader.feed(carried):
            if row.remark[0] == "opened":
                recorded = self._at["recorded"] = recorder_identity(carried.comments)[0]
                row.connection.number = self._number_of(file, frame, recorded)
            yield from self._rows(row)
            self._at.pop("recorded", None)

    @property
    def is_closed(self) -> bool:
        """Whether all its connections have ended."""
        return not self._open

    @property
    def is_over(self) -> bool:
        """Whether all its connections have ended, a while ago."""
        return self.is_closed and time.time() - self._latest / 1e9 > LINGER_S

    def finish(self) -> Iterator[Cells]:
        """The captures are over."""
        for row in self._reader.finish():
            yield from self._rows(row)
        yield from self.put_aside()

    def put_aside(self) -> Iterator[Cells]:
        """The rows that are not full yet."""
        return self._across.take()

    def _rows(self, row: OperationRow) -> Iterator[Cells]:
        connection = row.connection
        number = connection.number
        if not row.number:
            self._count(row)
        violations = list(self._judge.observe(row))
        facts, answers = self._watch.take()
        if row.dialect is not None:
            self._protocols[number] = row.dialect.name
        if row.number and (library := library_of(row.operation)):
            self._libraries[number] = library
        across: list[Any] = [(key, fact) for fact in facts if (key := stream_key(fact)) is not None]
        wants_row = self._complete_table or violations or row.remark[0]
        if not (wants_row or across):
            return
        about: Cells = {
            "connection": number, "protocol": self._protocols.get(number, connection.protocol),
            "client": connection.addresses[0], "server": connection.addresses[1],
            "library": self._libraries.get(number), "file": self._at["file"], "capture": self._at["capture"],
        }  # fmt: skip
        if across:
            operation_facts = OperationFacts(
                self._at["frame"], row.number, row.time, [fact for _, fact in across]
            )
            yield from self._across.add(across[0][0], about, operation_facts)
        if not wants_row:
            return
        cells = self._own_cells(row, facts) | self._at | about
        cells |= {
            "row_kind": RowKind.OPERATION, "number": row.number, "time": row.time // 1000,
            "time_ns": row.time, "sender": row.sender,
        }  # fmt: skip
        if answers:
            cells["answers"] = answers
        if violations:
            cells["broken"] = packed(violations)
        yield cells

    def _count(self, row: OperationRow) -> None:
        number = row.connection.number
        match row.remark[0]:
            case "opened":
                self._open[number] = 2
            case "closed" if number in self._open:
                self._open[number] -= 1
                if not self._open[number]:
                    del self._open[number]
            case "reset":
                self._open.pop(number, None)

    def _own_cells(self, row: OperationRow, facts: list[Fact]) -> Cells:
        if row.operation is None:
            return {"op": row.remark[0], "text": row.remark[1] or None}
        if not self._complete_table:
            return {}
        cells = cells_of(row.operation)
        if not self._keeps_payloads:
            cells.pop("payload", None)
        for fact in facts:
            add_fact(cells, fact)
        return cells


def decode(
    batches: Iterable[pa.RecordBatch],
    *,
    keeps_payloads: bool,
    table: Table = STAGED,
    ending: Ending = Ending.FINAL,
    state_key: bytes = b"",
) -> Iterator[pa.RecordBatch]:
    """Bundles, grouped by flow and in order inside, to rows of ``table``. Holds one flow at a time.

    What goes across connections has rows of its own, of kind ``FACTS``. ``FOR_VIOLATIONS``: besides them only
    rows that violate something, and remarks. With ``Ending.TO_BE_CONTINUED`` what is remembered of each flow
    leaves as a row of kind ``STATE``, signed with ``state_key``; as a bundle of that kind, before all others
    of its flow, it comes back.
    """
    collected = Collector(table)

    def begin() -> FlowJudge:
        return FlowJudge(keeps_payloads=keeps_payloads, whole="payload_hash" in table.names)

    def end(flow: int | None, judge: FlowJudge) -> Iterator[Cells]:
        if ending is Ending.FINAL:
            yield from judge.finish()
            return
        yield from judge.put_aside()
        if flow is not None and not judge.is_over:
            yield {"row_kind": RowKind.STATE, "flow": flow, "state": dumped(judge, state_key)}

    current, judge = None, begin()
    for flow, file, capture, kind, content, state in rows_of(batches, _READ):
        if kind == RowKind.PROBLEM:
            yield from collected.all(_problem(unpack_problem(content), file))
            continue
        if flow != current:
            yield from collected.all(end(current, judge))
            current, judge = flow, begin()
        if kind == RowKind.STATE:
            judge = restored(state, state_key)
            continue
        for frame, carried in unpack(content):
            yield from collected.all(judge.feed(carried, file, frame, capture))
    yield from collected.all(end(current, judge))
    yield from collected.take()


def _problem(problem: CaptureProblem, file: int) -> Iterator[Cells]:
    """A row of what is wrong with a file."""
    yield {
        "row_kind": RowKind.PROBLEM, "description": problem.kind, "text": problem.text, "size": problem.bytes,
        "file": file, "capture": problem.capture,
    }  # fmt: skip
