"""Facts on their way to the monitors of streams and queues: none is lost, and they keep their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from plumbline.monitors import Place
from plumbline.monitors.nats.facts import AssetChanged, PullRequested
from plumbline.pipeline.judging import cross_connection
from plumbline.pipeline.judging.cells import Cells
from plumbline.pipeline.judging.cross_connection import FactCollector, FactMerge, OperationFacts

ABOUT: Cells = {"connection": 1, "protocol": "nats", "client": "c", "server": "s", "file": 0, "capture": "a"}


def noted(frame: int, number: int = 1, text: str = "PUB") -> OperationFacts:
    place = Place("1", number, 1000 * frame, text)
    return OperationFacts(
        frame, number, 1000 * frame, [AssetChanged(place=place, stream="S", verb="CONSUMER.DELETE")]
    )


def rows_for(
    collected: FactCollector, given: Sequence[tuple[str, Cells, OperationFacts]], *, rest: bool = True
) -> list[Cells]:
    found = [row for one in given for row in collected.add(*one)]
    return found + (list(collected.take()) if rest else [])


def merged(rows: Sequence[Cells]) -> Iterator[tuple[int, int, int]]:
    merge = FactMerge()
    for row in sorted(rows, key=lambda row: (row["file"], row["frame"], row["number"])):
        for whose, one in merge.add(row, row["facts"]):
            yield whose["connection"], one.frame, one.number
    for whose, one in merge.until():
        yield whose["connection"], one.frame, one.number


def test_facts_of_two_connections_are_merged_in_order() -> None:
    first = rows_for(FactCollector(), [("k", ABOUT, noted(frame)) for frame in (1, 4, 5, 9)])
    other = rows_for(
        FactCollector(),
        [("k", ABOUT | {"connection": 2}, noted(*at)) for at in ((2, 1), (2, 2), (6, 1), (7, 1))],
    )
    assert len(first) == len(other) == 1
    assert list(merged(first + other)) == [
        (1, 1, 1), (2, 2, 1), (2, 2, 2), (1, 4, 1), (1, 5, 1), (2, 6, 1), (2, 7, 1), (1, 9, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", ["ROW_OPERATIONS", "HELD_OPERATIONS"])
def test_a_row_that_has_enough_leaves(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_connection, limit, 4)
    collected = FactCollector()
    given = [(key, ABOUT, noted(frame)) for frame in range(6) for key in "ab"]
    early = rows_for(collected, given, rest=False)
    assert early
    rows = [*early, *collected.take()]
    assert list(collected.take()) == []
    for key in "ab":
        assert [frame for _, frame, _ in merged([row for row in rows if row["key"] == key])] == list(range(6))


def test_row_has_one_file_and_connection() -> None:
    changed: list[dict[str, Any]] = [{}, {"file": 1, "capture": "b"}, {"library": "late"}, {"connection": 2}]
    about, given = ABOUT, []
    for frame, change in enumerate(changed, 1):
        about = about | change
        given.append(("k", about, noted(frame)))
    rows = rows_for(FactCollector(), given)
    assert len(rows) == len(changed)
    for row, (_, cells, one) in zip(rows, given, strict=True):
        assert row | cells == row
        assert (row["frame"], row["number"], row["time_ns"], row["time"]) == (
            one.frame,
            1,
            one.time_ns,
            one.frame,
        )


def test_facts_with_text_that_is_no_utf8_arrive() -> None:
    place = Place("1", 1, 1, "PUB \udcff")
    pulled = PullRequested(place=place, stream="S", consumer="C", inbox="r", sid="1", batch=1)
    (row,) = rows_for(FactCollector(), [("k", ABOUT, OperationFacts(1, 1, 1, [pulled]))])
    merge = FactMerge()
    assert list(merge.add(row, row["facts"])) == []
    assert [one.facts for _, one in merge.until()] == [[pulled]]
