"""Parts with a contract of their own: timers, the store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plumbline.reference_broker.nats.jetstream.streams.store import MemoryStore, memory_record_size
from plumbline.reference_broker.nats.jetstream.timers import Timers


def test_timers_run_in_order_and_only_their_latest_setting_counts() -> None:
    timers, ran = Timers(), []
    first = timers.timer(lambda now: ran.append(("first", now)))
    second = timers.timer(lambda now: ran.append(("second", now)))
    first.set(10)
    second.set(20)
    first.set(30)
    assert timers.next() == 20
    timers.run(25)
    assert ran == [("second", 25)]
    first.clear()
    assert timers.next() is None
    first.set(5)
    first.set_earliest(9)
    assert timers.next() == 5


def test_a_timer_that_sets_itself_again_runs_until_it_is_late() -> None:
    timers, ran = Timers(), list[int]()

    def again(now: int) -> None:
        ran.append(now)
        timer.set(len(ran) * 10)

    timer = timers.timer(again)
    timer.set(0)
    timers.run(25)
    assert len(ran) == 3
    assert timers.next() == 30


GAPS = st.sampled_from([0, 0, 0, 1, 150, 2**58])  # a file may say that two messages have any sequences
STEPS = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.booleans(), st.integers(1, 30), GAPS))


@given(STEPS)
def test_a_store_finds_what_a_plain_list_would(steps: list[tuple[bytes, bool, int, int]]) -> None:
    store, held = MemoryStore(memory_record_size), dict[int, bytes]()
    for subject, appends, number, gap in steps:
        if appends:
            store.last_seq += gap
            held[store.append(subject, b"", b"x", 0).seq] = subject
        else:
            seq = [*held, number][number % (len(held) + 1)]
            removed = store.remove(seq)
            assert (removed.subject if removed else None) == held.pop(seq, None)
    assert [message.seq for message in store.messages()] == sorted(held)
    assert store.size == 18 * len(held) == 18 * len(store)
    assert store.first_seq == (min(held) if held else store.last_seq + 1 if store.last_seq else 0)
    for subject in (b"a", b"b", b"c"):
        own = sorted(seq for seq, other in held.items() if other == subject)
        first, last = store.first_of(subject), store.last_of(subject)
        assert store.count_of(subject) == len(own)
        assert (first.seq if first else None, last.seq if last else None) == (
            (own[0], own[-1]) if own else (None, None)
        )
        found = store.next(5, lambda other, subject=subject: other == subject)  # type: ignore[misc]
        assert (found.seq if found else None) == next((seq for seq in own if seq >= 5), None)
