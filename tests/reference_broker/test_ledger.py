"""The ledger: the order of changes, one append for many, and what is written once per commit."""

from __future__ import annotations

from plumbline.reference_broker.write_queue import Append, Remove, Replace, WriteQueue


class Counter:
    """Enters how often it was asked to."""

    def __init__(self, ledger: WriteQueue) -> None:
        self.ledger = ledger
        self.entered = 0

    def enter_changes(self) -> None:
        self.entered += 1
        self.ledger.append("counter", b"%d" % self.entered)


def test_appends_to_same_file_are_merged() -> None:
    ledger = WriteQueue()
    for path, data in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        ledger.append(path, data)
    assert ledger.take() == [Append("a", [b"1", b"3"]), Append("b", [b"2"])]


def test_nothing_is_appended_before_what_was_entered_in_between() -> None:
    ledger = WriteQueue()
    ledger.append("a", b"1")
    ledger.enter(Replace("a", b"2"))
    ledger.append("a", b"3")
    ledger.enter(Remove("b"))
    assert ledger.take() == [Append("a", [b"1"]), Replace("a", b"2"), Append("a", [b"3"]), Remove("b")]


def test_take_empties_queue() -> None:
    ledger = WriteQueue()
    ledger.append("a", b"1")
    assert ledger
    ledger.take()
    assert not ledger
    ledger.append("a", b"2")
    assert ledger.take() == [Append("a", [b"2"])]


def test_deferred_writes_go_last() -> None:
    ledger = WriteQueue()
    counter = Counter(ledger)
    for _ in range(3):
        ledger.defer(counter)
    ledger.append("a", b"1")
    assert ledger.take() == [Append("a", [b"1"]), Append("counter", [b"1"])]
    ledger.defer(counter)
    ledger.cancel_deferred(counter)
    assert ledger.take() == []


def test_in_silence_nothing_is_entered() -> None:
    ledger = WriteQueue()
    with ledger.suppressed():
        ledger.append("a", b"1")
        ledger.enter(Remove("a"))
        ledger.defer(Counter(ledger))
    assert not ledger
