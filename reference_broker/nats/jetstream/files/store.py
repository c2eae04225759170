"""A store whose messages are also in block files: every change is a record at the end of the last block.

Reading is from memory. A block is deleted when it and all before it hold no message that is still there, and
rewritten when more than half of it is of no use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from plumbline.reference_broker.nats.jetstream.files import layout
from plumbline.reference_broker.nats.jetstream.files.records import (
    CONTINUES,
    ERASED,
    MESSAGE,
    REMOVED,
    RESTARTS,
    SMALLEST,
    TOGETHER,
    DamagedRecordError,
    Record,
    RecordCodec,
)
from plumbline.reference_broker.nats.jetstream.streams.store import (
    MemoryStore,
    StoredMessage,
    file_record_size,
)
from plumbline.reference_broker.write_queue import Remove, Replace, Truncate, WriteQueue

T = TypeVar("T")

BLOCK_SIZE = 8 * 1024 * 1024  # as nats-server's largest


class BlockFile(Struct):
    """One file: its messages have sequences from ``first`` on, up to the next block's."""

    number: int
    path: str
    first: int
    size: int = 0
    live_messages: int = 0  # messages that are still there,
    live_bytes: int = 0  # and their records
    removed_elsewhere: list[int] = []  # what was removed from earlier blocks

    @property
    def is_mostly_waste(self) -> bool:
        return (self.size - self.live_bytes - SMALLEST * len(self.removed_elsewhere)) * 2 > self.size


class LostTail(Struct, frozen=True):
    """The end of a file that is lost: where it began, how many bytes, why, and the sequence from which on
    something may be missed."""

    path: str
    offset: int
    lost: int
    why: str
    seq: int


class FileStore(MemoryStore):
    """The messages of ``stream``, in ``folder``."""

    def __init__(
        self, stream: str, folder: str, write_queue: WriteQueue, block_size: int = BLOCK_SIZE
    ) -> None:
        super().__init__(file_record_size)
        self.folder = folder
        self.write_queue = write_queue
        self.block_size = block_size
        self.codec = RecordCodec(stream)
        self.blocks: list[BlockFile] = []
        self._group: list[bytes] | None = None

    # Changes

    def append(self, subject: bytes, header_block: bytes, payload: bytes, now: int) -> StoredMessage:
        block = self._last_block()
        message = super().append(subject, header_block, payload, now)
        record = self.codec.message(message.seq, now, subject, header_block, payload)
        block.live_messages += 1
        block.live_bytes += len(record)
        self._write(block, record)
        return message

    def skip(self) -> int:
        block = self._last_block()
        seq = super().skip()
        self._write(block, self.codec.mark(ERASED, seq))
        return seq

    def remove(self, seq: int) -> StoredMessage | None:
        message = super().remove(seq)
        if message is not None:
            last = self._last_block()
            self._write(last, self.codec.mark(REMOVED, seq))
            block = self._remove_from_block(message, last)
            if self._group is None:
                self._delete_unused_blocks()
                if block is not last and block.live_messages and block.is_mostly_waste:
                    self._compact(block)
        return message

    def restart_at(self, seq: int) -> None:
        super().restart_at(seq)
        self._begin_block(RESTARTS)
        for block in self.blocks[:-1]:
            self.write_queue.enter(Remove(block.path))
        del self.blocks[:-1]

    def atomically(self, change: Callable[[], T]) -> T:
        """Run ``change``; after a crash all that it changed is there, or nothing."""
        self._last_block()
        group = self._group = []
        try:
            return change()
        finally:
            self._group = None
            if group:
                data = b"".join(group)
                self._write(self.blocks[-1], self.codec.mark(TOGETHER, len(data)) + data)
                self._delete_unused_blocks()

    def _write(self, block: BlockFile, record: bytes) -> None:
        if self._group is not None:
            self._group.append(record)
            return
        block.size += len(record)
        self.write_queue.append(block.path, record)

    # Blocks

    def _last_block(self) -> BlockFile:
        """Where the next record goes."""
        if not self.blocks or (self.blocks[-1].size >= self.block_size and self._group is None):
            full = self.blocks[-1] if self.blocks else None
            self._begin_block(CONTINUES)
            self._delete_unused_blocks()
            if full is not None and full in self.blocks and full.is_mostly_waste:
                self._compact(full)
        return self.blocks[-1]

    def _begin_block(self, kind: int) -> None:
        number = self.blocks[-1].number + 1 if self.blocks else 1
        block = BlockFile(number, layout.block(self.folder, number), self.last_seq + 1)
        self.blocks.append(block)
        self._write(block, self.codec.mark(kind, block.first, self.last_time or 0))

    def _remove_from_block(self, message: StoredMessage, last: BlockFile) -> BlockFile:
        """Count a message out of its block, which is returned."""
        block = self.blocks[bisect_right(self.blocks, message.seq, key=_first) - 1]
        block.live_messages -= 1
        block.live_bytes -= file_record_size(message.subject, message.header_block, message.payload)
        if block is not last:
            last.removed_elsewhere.append(message.seq)
        return block

    def _delete_unused_blocks(self) -> None:
        """What is removed in later blocks was in earlier ones: only they can go, oldest first."""
        while len(self.blocks) > 1 and not self.blocks[0].live_messages:
            self.write_queue.enter(Remove(self.blocks.pop(0).path))

    def _compact(self, block: BlockFile) -> None:
        """Write ``block`` again, with what still counts."""
        following = self.blocks[self.blocks.index(block) + 1]
        mark, write = self.codec.mark, self.codec.message
        records = [mark(CONTINUES, block.first)]
        for seq in range(block.first, following.first):
            message = self.load(seq)
            if message is not None:
                fields = (message.subject, message.header_block, message.payload)
                records.append(write(seq, message.time, *fields))
        oldest = self.blocks[0].first
        block.removed_elsewhere = [seq for seq in block.removed_elsewhere if seq >= oldest]
        records += [mark(REMOVED, seq) for seq in block.removed_elsewhere]
        data = b"".join(records)
        block.size = len(data)
        self.write_queue.enter(Replace(block.path, data))

    # Recovery

    def empty(self) -> None:
        """Forget everything, as a store that was never written to."""
        super().restart_at(1)
        self.first_seq = self.last_seq = 0
        self.last_time = None
        self.blocks.clear()

    def restore(
        self, blocks: Sequence[tuple[int, bytes]], on_message: Callable[[Record], None] = lambda record: None
    ) -> list[LostTail]:
        """Read the blocks, by number; ``on_message`` gets every message, also of one that was removed
        later.

        Of a damaged block the rest does not count.
        """
        cuts = []
        for number, data in blocks:
            block = BlockFile(number, layout.block(self.folder, number), self.last_seq + 1, len(data))
            self.blocks.append(block)
            end = 0
            try:
                for record in self.codec.read(data):
                    self._apply(record, block, end, on_message)
                    end = record.end
            except DamagedRecordError as damage:
                lost = len(data) - damage.offset
                cuts.append(LostTail(block.path, damage.offset, lost, str(damage), self.last_seq + 1))
                block.size = damage.offset
        return cuts

    def apply_restored(self, blocks: Sequence[tuple[int, bytes]], cuts: Sequence[LostTail]) -> None:
        """After ``restore``: the files become what was read."""
        for cut in cuts:
            self.write_queue.enter(Truncate(cut.path, cut.offset))
        block_numbers = {block.number for block in self.blocks}
        for number, _ in blocks:
            if number not in block_numbers:
                self.write_queue.enter(Remove(layout.block(self.folder, number)))
        self._delete_unused_blocks()

    def _apply(self, record: Record, block: BlockFile, offset: int, found: Callable[[Record], None]) -> None:
        seq = record.seq
        if record.kind == MESSAGE:
            if seq <= self.last_seq:
                raise DamagedRecordError(offset, f"sequence {seq} comes after {self.last_seq}")
            self.last_seq = seq - 1
            super().append(record.subject, record.header_block, record.payload, record.time)
            block.live_messages += 1
            block.live_bytes += file_record_size(record.subject, record.header_block, record.payload)
            found(record)
        elif record.kind == REMOVED:
            message = super().remove(seq)
            if message is not None:
                self._remove_from_block(message, block)
        elif record.kind == RESTARTS:
            super().restart_at(seq)
            self.last_time = record.time or None
            del self.blocks[:-1]
            block.first = seq
        elif record.kind == CONTINUES:
            if not offset:
                block.first = max(block.first, seq)
            self._continue_at(seq)
            self.last_time = record.time or self.last_time
        elif record.kind == ERASED:
            self._continue_at(seq + 1)
        else:
            raise DamagedRecordError(offset, "no kind of record that this version writes")

    def _continue_at(self, seq: int) -> None:
        if seq - 1 > self.last_seq:
            self.last_seq = seq - 1
            if not len(self):
                self.first_seq = seq


def _first(block: BlockFile) -> int:
    return block.first
