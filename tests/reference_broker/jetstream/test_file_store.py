"""Block files against a model: what is read back is what was there, whatever is cut off or flipped."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from plumbline.reference_broker.nats.jetstream.files import layout
from plumbline.reference_broker.nats.jetstream.files.records import RecordCodec
from plumbline.reference_broker.nats.jetstream.files.store import FileStore, LostTail
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.write_queue import Append, WriteQueue
from tests.reference_broker.jetstream.disk import Files, apply

FOLDER = layout.stream_folder("F")
SUBJECTS = [b"a", b"b.c"]

Operation = tuple[str, int, bytes, bytes]
OPERATIONS = st.tuples(
    st.sampled_from(["append"] * 6 + ["remove"] * 4 + ["skip", "purge", "batch"]),
    st.integers(0, 30),
    st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    st.binary(max_size=40),
)


class State(Struct, frozen=True):
    """All that a store shows."""

    messages: list[StoredMessage]
    first_seq: int
    last_seq: int
    size: int


class Kept:
    """A store, its files, and what it was after every operation."""

    def __init__(self, files: Files | None = None, block_size: int = 1 << 20) -> None:
        self.write_queue = WriteQueue()
        self.files: Files = dict(files or {})
        self.store = FileStore("F", FOLDER, self.write_queue, block_size)
        self.cuts: list[LostTail] = []
        if files is not None:
            blocks = sorted((int(path.split("/")[-1].removesuffix(".blk")), files[path]) for path in files)
            with self.write_queue.suppressed():
                self.cuts = self.store.restore(blocks)
            self.store.apply_restored(blocks, self.cuts)
            self.commit()

    def commit(self) -> None:
        apply(self.files, self.write_queue.take())

    def run(self, operation: Operation) -> None:
        name, number, header_block, payload = operation
        store = self.store
        if name == "append":
            store.append(SUBJECTS[number % 2], header_block, payload, 1000 + number)
        elif name == "remove":
            store.remove(store.first_seq + number // 2)
        elif name == "skip":
            store.skip()
        elif name == "purge":
            store.restart_at(store.last_seq + 1)
        else:
            store.atomically(lambda: [store.append(b"t", b"", payload, 5) for _ in range(number % 4)])
        self.commit()

    @property
    def state(self) -> State:
        store = self.store
        return State(list(store.messages()), store.first_seq, store.last_seq, store.size)


def kept(operations: list[Operation], block_size: int) -> tuple[Kept, list[tuple[int, State]]]:
    """A store after ``operations``, and after each of them the size of its files with the state."""
    one = Kept(block_size=block_size)
    history = [(0, one.state)]
    for operation in operations:
        one.run(operation)
        history.append((sum(map(len, one.files.values())), one.state))
    return one, history


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_hello_on_a_4_byte_subject_takes_39_bytes() -> None:
    assert len(RecordCodec("F").message(1, 2, b"abcd", b"", b"hello")) == 39


def test_many_messages_between_two_commits_are_one_write() -> None:
    one = Kept()
    one.write_queue.take()
    for _ in range(100):
        one.store.append(b"a", b"", b"x", 1)
    changes = one.write_queue.take()
    assert [type(change) for change in changes] == [Append]


@given(st.lists(OPERATIONS, max_size=60), st.sampled_from([60, 200, 1 << 20]))
def test_store_round_trip_keeps_messages(operations: list[Operation], block_size: int) -> None:
    one, _ = kept(operations, block_size)
    again = Kept(one.files, block_size)
    assert again.state == one.state
    assert not again.cuts


@given(st.lists(OPERATIONS, max_size=40), st.lists(OPERATIONS, max_size=40))
def test_restored_store_accepts_same_operations(before: list[Operation], after: list[Operation]) -> None:
    one, _ = kept(before, 150)
    again = Kept(one.files, 150)
    for operation in after:
        one.run(operation)
        again.run(operation)
    assert Kept(again.files, 150).state == one.state


@given(st.lists(OPERATIONS.filter(lambda one: one[0] != "purge"), min_size=1, max_size=30), st.data())
def test_a_cut_end_leaves_all_whole_operations_before_it(
    operations: list[Operation], data: st.DataObject
) -> None:
    _cut_or_flipped(operations, data, lambda block, at: block[:at])


@given(st.lists(OPERATIONS.filter(lambda one: one[0] != "purge"), min_size=1, max_size=30), st.data())
def test_a_flipped_bit_ends_the_block_there(operations: list[Operation], data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 7))
    _cut_or_flipped(operations, data, lambda block, at: flipped(block, at * 8 + bit))


def _cut_or_flipped(
    operations: list[Operation], data: st.DataObject, damage: Callable[[bytes, int], bytes]
) -> None:
    one, history = kept(operations, 1 << 20)
    if not one.files:
        return
    ((path, block),) = one.files.items()
    at = data.draw(st.integers(0, len(block) - 1), label="damaged at byte")
    again = Kept({path: damage(block, at)})
    known = [state for size, state in history if size <= at]
    lost = [state for size, state in history if size > at]
    head = again.state.last_seq + 1 == 1  # the damage is in the block's own head
    assert again.state == known[-1] or (head and not again.state.messages)
    for cut in again.cuts:
        assert cut.offset <= at
        assert cut.seq == again.state.last_seq + 1
    if lost and not again.cuts:
        assert at in {size for size, _ in history} | {30}  # cut exactly between two records
    assert not Kept(again.files).cuts, "once cut, it is whole"


@given(st.lists(OPERATIONS, min_size=5, max_size=60), st.data())
def test_damage_anywhere_serves_nothing_that_was_not_stored(
    operations: list[Operation], data: st.DataObject
) -> None:
    one, history = kept(operations, 100)
    if not one.files:
        return
    stored = {message.seq: message for _, state in history for message in state.messages}
    path = data.draw(st.sampled_from(sorted(one.files)))
    bit = data.draw(st.integers(0, len(one.files[path]) * 8 - 1))
    damaged = {**one.files, path: flipped(one.files[path], bit)}
    again = Kept(damaged, 100)
    assert [cut.path for cut in again.cuts] == [path]
    assert all(stored[message.seq] == message for message in again.store.messages())
    second = Kept(again.files, 100)
    assert not second.cuts
    assert second.state == again.state


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    Kept({layout.block(FOLDER, 1): data})
