"""``make large-history``: histories of millions of publishes, judged with Spark. Are all planted violations
found, and no other, and how long does it take?

Exit code 1 if something is missing or is too much.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plumbline.cluster.judging import ClusterRule
from plumbline.cluster.nats.history_files.judging import judge_with_spark, spark_properties
from plumbline.cluster.nats.history_files.layout import (
    ATTEMPTS,
    HEAD,
    LOGS,
    READS,
    SCHEMA,
    HistoryHead,
    ReadNode,
    arrow_schema,
    read_head,
)
from plumbline.pipeline.spark.session import session

PROCESSES, NODES = 5, 3
EVERY_NS = 500_000  # 2000 publishes a second
PLANTED = 25  # of each kind
ROWS_OF_FILE = 1_000_000


class LargeHistory:
    """Made of a seed; ``expected`` counts the findings of each rule."""

    def __init__(self, publishes: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.count = publishes
        number = np.arange(publishes)
        self.process, self.counter = number % PROCESSES, number // PROCESSES
        self.invoked = number * EVERY_NS + random.integers(0, EVERY_NS, publishes)
        latency = random.integers(1_000_000, 50_000_000, publishes)
        self.completed = self.invoked + latency
        self.acknowledged = random.random(publishes) >= 0.01
        self.is_stored = self.acknowledged | (random.random(publishes) < 0.5)
        moment = self.invoked + (latency * random.random(publishes)).astype(np.int64)
        order = np.argsort(np.where(self.is_stored, moment, np.iinfo(np.int64).max), kind="stable")
        self.sequence = np.empty(publishes, np.int64)
        self.sequence[order] = np.arange(1, publishes + 1)
        chosen = random.choice(np.flatnonzero(self.acknowledged[:-1000]), 5 * PLANTED, replace=False)
        self.lost, self.lacking, self.changed, self.stale, swapped = chosen.reshape(5, PLANTED)
        self._swap(swapped)
        self.read = np.sort(
            random.choice(np.flatnonzero(self.acknowledged), publishes // 1000, replace=False)
        )
        self.read = self.read[~np.isin(self.read, chosen)]
        self.expected = {
            ClusterRule.LOST: PLANTED,
            ClusterRule.SAME_LOG: PLANTED,
            ClusterRule.SAME_MESSAGE: PLANTED,
            ClusterRule.STALE_READ: PLANTED,
            ClusterRule.ORDER: self._out_of_order(),
        }

    def _swap(self, messages: np.ndarray[Any, Any]) -> None:
        """Each with one that was sent after its acknowledgement."""
        for one in messages:
            other = int(np.searchsorted(self.invoked, self.completed[one], "right"))
            while not self.acknowledged[other]:
                other += 1
            self.sequence[[one, other]] = self.sequence[[other, one]]

    def _out_of_order(self) -> int:
        """Counted in another way than the judge does."""
        sent, done = self.invoked[self.acknowledged], self.completed[self.acknowledged]
        sequence = self.sequence[self.acknowledged]
        order = np.argsort(done, kind="stable")
        highest = np.concatenate([[0], np.maximum.accumulate(sequence[order])])
        return int(np.count_nonzero(sequence < highest[np.searchsorted(done[order], sent, "left")]))

    def write(self, folder: Path) -> None:
        """As files of a million rows."""
        for at in range(0, self.count, ROWS_OF_FILE):
            part = slice(at, min(at + ROWS_OF_FILE, self.count))
            self._write_attempts(folder / ATTEMPTS, part)
            self._write_logs(folder / LOGS, part)
        found = np.concatenate([self.read, self.stale])
        is_stale = np.concatenate([np.zeros(len(self.read), bool), np.ones(PLANTED, bool)])
        names = pc.if_else(pa.array(is_stale), None, self._names(found))
        invoked = self.completed[found] + 1
        columns = [invoked, invoked + 1000, np.zeros(len(found)), self.sequence[found], names]
        _write(folder / READS, READS, 0, columns)
        head = HistoryHead(schema=SCHEMA, nodes=tuple(ReadNode(node) for node in range(NODES)))
        (folder / HEAD).write_bytes(msgspec.json.encode(head))

    def _names(self, which: Any) -> pa.Array:
        process, counter = pa.array(self.process[which]), pa.array(self.counter[which])
        return pc.binary_join_element_wise(process.cast("string"), counter.cast("string"), "-")

    def _write_attempts(self, folder: Path, part: slice) -> None:
        acknowledged = self.acknowledged[part]
        size = len(acknowledged)
        columns = [
            self.process[part], self.counter[part], np.arange(size) % NODES, self.invoked[part],
            np.where(acknowledged, self.completed[part], 0), np.where(acknowledged, "ok", "indeterminate"),
            np.where(acknowledged, self.sequence[part], 0), np.zeros(size, bool), np.full(size, ""),
            np.ones(size),
        ]  # fmt: skip
        _write(folder, ATTEMPTS, part.start, columns)

    def _write_logs(self, folder: Path, part: slice) -> None:
        number = np.arange(part.start, part.stop)
        stored = self.is_stored[part] & ~np.isin(number, self.lost)
        for node in range(NODES):
            here = number[stored & ~np.isin(number, self.lacking)] if node == 1 else number[stored]
            names = self._names(here)
            if node == 2:
                is_changed = pa.array(np.isin(here, self.changed))
                names = pc.if_else(is_changed, pc.binary_join_element_wise("9", names, ""), names)
            columns = [np.full(len(here), node), self.sequence[here], names]
            _write(folder, LOGS, part.start * NODES + node, columns)


def _write(folder: Path, table: str, number: int, columns: Sequence[Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    schema = arrow_schema(table)
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, schema, strict=True)]
    pq.write_table(pa.table(arrays, schema=schema), folder / f"{number}.parquet", compression="zstd")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make large-history", description=__doc__)
    parser.add_argument("--publishes", type=int, nargs="+", default=[1_000_000, 10_000_000], metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args(arguments)
    wrong = False
    for publishes in options.publishes:
        place = Path(tempfile.mkdtemp(prefix="plumbline-large-"))
        try:
            history = LargeHistory(publishes, options.seed)
            history.write(place)
            wrong |= not _judged(place, history, options.master)
        finally:
            shutil.rmtree(place)
    return int(wrong)


def _judged(place: Path, history: LargeHistory, master: str) -> bool:
    began = time.monotonic()

    def show(step: str) -> None:
        print(f"{time.monotonic() - began:8.1f} s  {step}", flush=True)

    spark = session(master, spark_properties(place), computes=True)
    try:
        judged = judge_with_spark(spark, place, read_head(place), show).judgement
    finally:
        spark.stop()
    took = time.monotonic() - began
    found = Counter(finding.rule for finding in judged.findings)
    is_right = found == Counter(history.expected) and judged.attempts == history.count
    print(
        f"{took:8.1f} s  {history.count} publishes, {1e6 * took / history.count:.1f} us each: "
        f"{'all planted violations found, no other' if is_right else 'WRONG'}; "
        + ", ".join(f"{rule} {found[rule]} of {history.expected.get(rule, 0)}" for rule in sorted(found)),
        flush=True,
    )
    return is_right


if __name__ == "__main__":
    sys.exit(main())
