"""The work for a packet does not grow with the number of packets, and memory is bounded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import pytest

from plumbline import bounds
from plumbline.captures.dialects import CaptureDialect
from plumbline.captures.operations import UNKNOWN, OperationReader, OperationRow
from plumbline.captures.reassembly import ConnectionNumbers
from plumbline.captures.segments import ACK, SYN, Address, Segment
from plumbline.wire.sender import Direction
from tests.captures.shapes import ANNOUNCED, HELLO, SHAPES, sent

FEW, MANY = 300, 2000
SLACK = 1.25  # of the work per packet
SUBSCRIBES = b"SUB a 1\r\n"


class CountedDecoder:
    """A decoder; counts the bytes that it gets."""

    def __init__(self, decoder: Any, work: CountedDialect) -> None:
        self._decoder, self._work = decoder, work

    @property
    def held(self) -> int:
        return int(self._decoder.held)

    def feed(self, data: bytes) -> Any:
        self._work.bytes += len(data)
        return self._decoder.feed(data)


class CountedDialect:
    """A dialect; counts the bytes that are looked at for it."""

    def __init__(self, dialect: CaptureDialect) -> None:
        self._dialect = dialect
        self.name, self.ports = dialect.name, dialect.ports
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def sent_by_server(self, data: bytes) -> bool | None:
        self.bytes += len(data)
        return self._dialect.sent_by_server(data)

    def decoder(self, direction: Direction) -> CountedDecoder:
        return CountedDecoder(self._dialect.decoder(direction), self)

    def decoder_from(self, direction: Direction) -> CountedDecoder:
        return CountedDecoder(self._dialect.decoder_from(direction), self)

    def starts(self, data: bytes, direction: Direction) -> Any:
        self.bytes += len(data)
        return self._dialect.starts(data, direction)


def work_per_packet(segments: Iterable[Segment]) -> tuple[float, float]:
    """Calls of functions, and bytes that a dialect looked at: of one packet, on average."""
    given = list(segments)
    reader = OperationReader()
    counted = {name: CountedDialect(dialect) for name, dialect in reader._dialects.items()}
    reader._dialects = dict(counted)
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for segment in given:
            for _ in reader.feed(segment):
                pass
        for _ in reader.finish():
            pass
    finally:
        sys.setprofile(before)
    return calls / len(given), sum(one.bytes for one in counted.values()) / len(given)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_for_a_packet_is_the_same_for_many(shape: str) -> None:
    few, many = (work_per_packet(SHAPES[shape](count)) for count in (FEW, MANY))
    assert many[0] <= few[0] * SLACK
    assert many[1] <= few[1] * SLACK + 1


@pytest.mark.parametrize("starts", [FEW, MANY])
def test_the_work_for_one_large_packet_is_bounded_by_its_size(starts: int) -> None:
    """In which an operation could begin at very many places."""
    data = b"NONSENSE\r\n" + ANNOUNCED * starts
    _, looked_at = work_per_packet([sent(0, data)])
    assert looked_at <= 3 * bounds.CAPTURE_START_WORK * (len(data) + bounds.CAPTURE_ENTRY_BYTES)


def rows(segments: Iterable[Segment]) -> list[OperationRow]:
    reader = OperationReader()
    found = [row for segment in segments for row in reader.feed(segment)]
    return found + list(reader.finish())


def test_segments_that_wait_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CAPTURE_HELD_BYTES", 100 * bounds.CAPTURE_ENTRY_BYTES)
    reader = OperationReader()
    for segment in SHAPES["holes"](500):
        list(reader.feed(segment))
    (flow,) = {flow for flow, _ in reader._reassembler._flows.values()}
    assert reader.lost > 0
    assert len(flow.halves[Direction.TO_SERVER].waiting) <= 100


def test_segments_that_wait_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CAPTURE_HELD_TOTAL_BYTES", 10 * bounds.CAPTURE_ENTRY_BYTES)
    reader = OperationReader()
    for port in range(1000, 1100):
        client = Address("127.0.0.1", port)
        for seq, flags, data in ((0, SYN, b""), (5, ACK, b"x")):
            list(reader.feed(Segment(client, Address("127.0.0.2", 4222), seq, 0, flags, data, 0, 0, ())))
    waiting = {flow for flow, _ in reader._reassembler._flows.values() if flow.halves[0].waiting}
    waiting |= {flow for flow, _ in reader._reassembler._flows.values() if flow.halves[1].waiting}
    assert 0 < len(waiting) <= 10
    assert reader.lost == 4 * (100 - len(waiting))


def connections(first: int, last: int, data: bytes = SUBSCRIBES) -> Iterator[Segment]:
    for number in range(first, last):
        client = Address("127.0.0.1", 1000 + number)
        for seq, flags, payload in ((0, SYN, b""), (1, ACK, data)):
            yield Segment(client, Address("127.0.0.2", 4222), seq, 0, flags, payload, 0, 0, ())


def test_connections_are_bounded_in_number_and_the_idle_one_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "CAPTURE_CONNECTIONS", 10)
    reader = OperationReader()
    found: list[OperationRow] = []
    busy = next(connections(0, 1))
    at = 1
    for segment in (busy, *list(connections(1, 30))[::2]):
        found += reader.feed(segment)
        found += reader.feed(Segment(busy.source, busy.target, at, 0, ACK, SUBSCRIBES, 0, 0, ()))
        at += len(SUBSCRIBES)
    given_up = [row for row in found if row.remark[0] == "undecodable"]
    assert len(given_up) == 20
    assert {row.remark[1] for row in given_up} == {"not followed any more: 10 other connections are"}
    assert 1 not in {row.connection.number for row in given_up}
    assert len(reader._connections) <= 10
    assert len(reader._reassembler._flows) <= 20


def test_connections_of_unknown_protocols_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CAPTURE_UNKNOWN_TOTAL_BYTES", 10 * bounds.CAPTURE_ENTRY_BYTES)
    reader = OperationReader()
    found = [row for segment in connections(0, 50, b"\0") for row in reader.feed(segment)]
    numbers = [row.connection.number for row in found if row.remark == ("undecodable", UNKNOWN)]
    assert len(numbers) >= 40  # the oldest first, before the capture is over
    assert numbers == list(range(1, len(numbers) + 1))


def test_unfinished_operations_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CAPTURE_UNFINISHED_BYTES", 1_000_000)
    pieces = [b"PUB a 60000000\r\n", *([b"x" * 10_000] * 150), b"\r\n"]
    segments = [sent(-1, flags=SYN), sent(0, HELLO)]
    at = len(HELLO)
    for piece in pieces:
        segments.append(sent(at, piece))
        at += len(piece)
    segments.append(sent(at, b"\r\nPING\r\n"))
    found = rows(segments)
    remarks = [row.remark for row in found if row.remark[0] == "undecodable"]
    assert remarks == [("undecodable", "more than 1000000 bytes of unfinished operations")]
    assert str(found[-1]) == "PING"


def test_an_operation_is_found_behind_false_starts() -> None:
    """The newest places are tried even where the oldest ones use up all the work."""
    segments = list(SHAPES["false starts"](50))
    at = segments[-1].seq - 1 + len(segments[-1].data)
    found = rows([*segments, sent(at, b"\r\nPUB b 5\r\nhello\r\n")])
    assert str(found[-1]) == "PUB b 5 | hello"


def test_numbers_of_connections_are_remembered_for_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CAPTURE_CONNECTIONS", 3)
    numbers = ConnectionNumbers()
    assert [numbers.give(recorded) for recorded in (5, 5, 2, 2, 2, 0, 9, 9)] == [5, 6, 2, 7, 8, 9, 10, 11]
