"""The write queue: the order of changes, one append for many, and what is written once per commit."""

from __future__ import annotations

from plumbline.reference_broker.write_queue import Append, Remove, Replace, WriteQueue


class Counter:
    """Enters how often it was asked to."""

    def __init__(self, queue: WriteQueue) -> None:
        self.queue = queue
        self.entered = 0

    def enter_changes(self) -> None:
        self.entered += 1
        self.queue.append("counter", b"%d" % self.entered)


def test_appends_to_same_file_are_merged() -> None:
    queue = WriteQueue()
    for path, data in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        queue.append(path, data)
    assert queue.take() == [Append("a", [b"1", b"3"]), Append("b", [b"2"])]


def test_nothing_is_appended_before_what_was_entered_in_between() -> None:
    queue = WriteQueue()
    queue.append("a", b"1")
    queue.enter(Replace("a", b"2"))
    queue.append("a", b"3")
    queue.enter(Remove("b"))
    assert queue.take() == [Append("a", [b"1"]), Replace("a", b"2"), Append("a", [b"3"]), Remove("b")]


def test_take_empties_queue() -> None:
    queue = WriteQueue()
    queue.append("a", b"1")
    assert queue
    queue.take()
    assert not queue
    queue.append("a", b"2")
    assert queue.take() == [Append("a", [b"2"])]


def test_deferred_writes_go_last() -> None:
    queue = WriteQueue()
    counter = Counter(queue)
    for _ in range(3):
        queue.defer(counter)
    queue.append("a", b"1")
    assert queue.take() == [Append("a", [b"1"]), Append("counter", [b"1"])]
    queue.defer(counter)
    queue.cancel_deferred(counter)
    assert queue.take() == []


def test_in_silence_nothing_is_entered() -> None:
    queue = WriteQueue()
    with queue.suppressed():
        queue.append("a", b"1")
        queue.enter(Remove("a"))
        queue.defer(Counter(queue))
    assert not queue
