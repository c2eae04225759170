"""Which worker runs which checks: ``conformance.runner.schedule``, and the order it is given."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from plumbline.conformance.runner.items import in_order
from plumbline.conformance.runner.schedule import AHEAD, Schedule
from plumbline.conformance.runner.verify import MAX_WORKERS, default_workers
from plumbline.conformance.suite import all_checks


class _Worker:
    """What a schedule uses of an xdist WorkerController."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, places: Sequence[int]) -> None:
        assert not self.shutting_down
        self.given += places

    def shutdown(self) -> None:
        self.shutting_down = True


def _started(schedule: Schedule) -> _Worker:
    worker = _Worker()
    schedule.add_node(worker)
    return worker


def _ready(schedule: Schedule, worker: _Worker, names: Sequence[str]) -> None:
    """As xdist does when a worker has collected."""
    schedule.add_node_collection(worker, names)
    if schedule.collection_is_completed:
        schedule.schedule()


def _finish(schedule: Schedule, worker: _Worker, place: int) -> None:
    schedule.mark_test_complete(worker, place)


def _state(schedule: Schedule) -> dict[str, bool]:
    return {"tests_finished": schedule.tests_finished, "has_pending": schedule.has_pending}


def test_first_worker_that_is_ready_begins_and_others_join() -> None:
    schedule = Schedule([])
    first, second = _started(schedule), _started(schedule)
    schedule.schedule()
    assert first.given == []
    _ready(schedule, first, "abcdef")
    assert schedule.collection_is_completed
    assert (first.given, second.given) == ([0, 1], [])
    _ready(schedule, second, "abcdef")
    assert second.given == [2, 3]


def test_next_check_goes_to_the_worker_that_has_finished_one() -> None:
    schedule = Schedule([])
    first, second = _started(schedule), _started(schedule)
    for worker in (first, second):
        _ready(schedule, worker, "abcdef")
    _finish(schedule, second, 2)
    _finish(schedule, first, 0)
    assert (first.given, second.given) == ([0, 1, 5], [2, 3, 4])


def test_workers_end_when_no_check_is_left() -> None:
    schedule = Schedule([])
    first, second = _started(schedule), _started(schedule)
    for worker in (first, second):
        _ready(schedule, worker, "abc")
    assert (first.given, second.given) == ([0, 1], [2])
    assert second.shutting_down
    assert _state(schedule) == {"tests_finished": False, "has_pending": True}
    _finish(schedule, first, 0)
    assert first.shutting_down
    assert _state(schedule) == {"tests_finished": True, "has_pending": True}
    for worker, place in ((first, 1), (second, 2)):
        _finish(schedule, worker, place)
    assert _state(schedule) == {"tests_finished": True, "has_pending": False}


def test_worker_that_starts_when_all_is_given_ends() -> None:
    schedule = Schedule([])
    first, late = _started(schedule), _started(schedule)
    _ready(schedule, first, "ab")
    _ready(schedule, late, "ab")
    assert (late.given, late.shutting_down) == ([], True)


def test_workers_that_have_collected_nothing_end() -> None:
    schedule = Schedule([])
    only = _started(schedule)
    _ready(schedule, only, "")
    assert only.shutting_down
    assert _state(schedule) == {"tests_finished": True, "has_pending": False}


def test_checks_of_a_group_go_to_one_worker() -> None:
    shared = [check for check in all_checks("amqp") if check.group == "amqp-tls"]
    schedule = Schedule(shared)
    first, second = _started(schedule), _started(schedule)
    file = shared[0].where.rpartition(":")[0]
    names = [f"{file}::{check.id.rpartition('::')[2]}" for check in shared]
    for worker in (first, second):
        _ready(schedule, worker, [*names, "amqp/other.trace::amqp/other", f"{file}::another", "f.py::c"])
    together = list(range(len(names)))
    assert len(together) > AHEAD
    assert (first.given, second.given) == (together, [len(names), len(names) + 1])


def test_one_process_runs_all_checks_of_a_variant(tmp_path: Path) -> None:
    """As ``plumbline verify`` runs them: a start of its broker takes seconds."""
    result = tmp_path / "result.json"
    arguments = ["amqp", "--workers=3", "--select=AMQP-PERM-*", "--select=AMQP-ACK-*", f"--json={result}"]
    subprocess.run([sys.executable, "-m", "plumbline", "verify", *arguments], check=True, capture_output=True)
    checks = json.loads(result.read_bytes())["checks"]
    names = [line["text"] for check in checks if check["variant"] for line in check["wire"]]
    workers = {found[1] for text in names for found in re.finditer(r"PL[0-9a-z]+?w([0-9]+)x[0-9]+", text)}
    assert len(workers) == 1


def test_check_in_which_a_worker_died_is_not_run_again_and_others_get_the_rest() -> None:
    schedule = Schedule([])
    first, second = _started(schedule), _started(schedule)
    for worker in (first, second):
        _ready(schedule, worker, "abcdef")
    _finish(schedule, first, 0)
    assert schedule.remove_node(first) == "b"
    for place in (2, 3):
        _finish(schedule, second, place)
    assert second.given == [2, 3, 4, 5]


def test_worker_in_place_of_one_that_died_gets_what_that_left() -> None:
    schedule = Schedule([])
    only = _started(schedule)
    _ready(schedule, only, "abc")
    assert schedule.remove_node(only) == "a"
    assert not schedule.tests_finished
    other = _started(schedule)
    _ready(schedule, other, "abc")
    assert other.given == [1, 2]


def test_worker_that_ends_in_order_has_died_in_no_check() -> None:
    schedule = Schedule([])
    only = _started(schedule)
    _ready(schedule, only, "a")
    _finish(schedule, only, 0)
    assert schedule.remove_node(only) is None
    assert schedule.nodes == []


def test_workers_must_collect_the_same() -> None:
    schedule = Schedule([])
    first, second = _started(schedule), _started(schedule)
    _ready(schedule, first, "ab")
    with pytest.raises(AssertionError, match="different checks"):
        _ready(schedule, second, "ba")


class _Card:
    """What the order uses of an item."""

    def __init__(self, name: str, group: str = "", *, is_long: bool = False, alone: bool = False) -> None:
        self.name = name
        self.check = self
        self.group = group
        self.is_long = is_long
        self.alone = alone


def test_groups_come_first_then_what_takes_long_and_last_what_runs_alone() -> None:
    cards = [
        _Card("a"),
        _Card("c", alone=True),
        _Card("r1", "restarts"),
        _Card("long", is_long=True),
        _Card("t1", "tls", is_long=True),
        _Card("b"),
        _Card("r2", "restarts"),
    ]
    names = [card.name for card in in_order(cards)]  # type: ignore[arg-type]
    assert names == ["r1", "r2", "t1", "long", "a", "b", "c"]


def test_more_workers_run_where_the_network_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    here, near, far = (default_workers(800, rtt_s) for rtt_s in (0.0001, 0.005, 0.05))
    assert here < near < far == MAX_WORKERS


def test_few_checks_are_run_by_few_workers() -> None:
    assert default_workers(800, 10.0) == MAX_WORKERS
    assert default_workers(100, 10.0) == 5
    assert default_workers(39, 10.0) == 0
