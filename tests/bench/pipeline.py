"""How fast and how large: ``python -m tests.bench.pipeline``. Nothing here decides whether tests pass.

    rates       operations per second: a plain Python loop, Spark on one core and on two, decode and monitors
    tshark      the same captures of AMQP through tshark and through Spark on one core
    memory      the largest memory of a judge run, over captures that grow tenfold
    planted     a capture of --size bytes with 100 violations planted: all are found, and nothing else

Every run is a process of its own. Rates are of wall time; beside them stands the processor time of all
processes together, which says more on a machine that does other work.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

MEGABYTE = 1_000_000
_POLL_S = 0.2


class Run(Struct):
    """What one run took."""

    what: str
    operations: int
    violations: int
    wall_s: float
    cpu_s: float
    peak_mb: float = 0.0

    def __str__(self) -> str:
        rate, own = self.operations / self.wall_s, self.operations / self.cpu_s
        return (
            f"{self.what:28} {self.operations:9} operations {self.violations:4} violations "
            f"{self.wall_s:7.1f} s wall {rate:8.0f}/s   {self.cpu_s:7.1f} s cpu {own:8.0f}/s  "
            f"{self.peak_mb:6.0f} MB"
        )


# -- what is measured, each in a process of its own ------------------------------------------


def plain(folder: Path) -> tuple[int, int]:
    """One loop over the same readers and monitors."""
    from proxy.captures import read
    from proxy.judging import Judge

    judge = Judge()
    operations = violations = 0
    for row in read([folder]):
        operations += row.number > 0
        violations += sum(1 for _ in judge.observe(row))
    return operations, violations


def spark(folder: Path, master: str) -> tuple[int, int, float, float]:
    """Decode and monitors, without tables; with the wall and processor time from the session on."""
    from pipeline import transforms
    from pipeline.inputs import find, packets
    from pipeline.session import session

    running = session(master, {"spark.driver.memory": "1g"})
    found = find(running, [str(folder)])
    parts = 4 * running.sparkContext.defaultParallelism
    running.conf.set("spark.sql.shuffle.partitions", str(parts))
    running.range(10).mapInArrow(lambda batches: batches, "id bigint").count()  # workers are there
    began, cpu = time.monotonic(), _cpu_of_children()
    source = packets(running, found, section_bytes=16 * MEGABYTE)
    staged = transforms.staged_for_violations(source, parts)
    place = tempfile.mkdtemp(prefix="plumbline-bench-")
    try:
        staged.write.mode("overwrite").parquet(place)
        again = running.read.schema(staged.schema).parquet(place)
        violations = transforms.found(again, parts).count()
    finally:
        shutil.rmtree(place)
    wall, used = time.monotonic() - began, _cpu_of_children() - cpu
    running.stop()
    return 0, violations, wall, used


def judged(folder: Path, master: str) -> tuple[int, int]:
    """The whole command, tables and all."""
    from pipeline.judge import Asked, Judging
    from pipeline.session import session

    running = session(master, {"spark.driver.memory": "1g"})
    with tempfile.TemporaryDirectory() as output:
        manifest = Judging(running, Asked(places=(str(folder),), output=output)).run()
    running.stop()
    return manifest.operations, manifest.violations


def _cpu_of_children() -> float:
    """Processor seconds of all processes below this one, those that still run too."""
    ticks = 0
    for stat in _descendants():
        fields = stat.rpartition(") ")[2].split()
        ticks += sum(map(int, fields[11:15]))
    mine = resource.getrusage(resource.RUSAGE_SELF)
    return ticks / 100 + mine.ru_utime + mine.ru_stime


def _descendants() -> list[str]:
    """/proc/PID/stat of all processes below this one."""
    stats: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        stats[int(path.parent.name)] = (int(text.rpartition(") ")[2].split()[1]), text)
    below, wave = [], {_pid()}
    while wave := {pid for pid, (parent, _) in stats.items() if parent in wave}:
        below += [stats[pid][1] for pid in wave]
    return below


def _pid() -> int:
    import os

    return os.getpid()


class _Peak:
    """The largest resident memory of all processes below this one, in MB; shared pages count once each."""

    def __init__(self) -> None:
        self.mb = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_POLL_S):
            pages = sum(int(stat.rpartition(") ")[2].split()[21]) for stat in _descendants())
            self.mb = max(self.mb, pages * 4096 / MEGABYTE)


def _measured(what: str, folder: Path, operations: int = 0) -> Run:
    """``what`` in a process of its own; the operations as counted before, if it does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    asked = [sys.executable, "-m", "tests.bench.pipeline", "one", what, str(folder)]
    with _Peak() as peak:
        done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = json.loads(done.stdout.splitlines()[-1])
    if len(found) == 4:
        wall, cpu = found[2:]
    return Run(what, found[0] or operations, found[1], wall, cpu, peak.mb)


_ONE: dict[str, Callable[[Path], Sequence[Any]]] = {
    "plain loop": plain,
    "spark local[1]": lambda folder: spark(folder, "local[1]"),
    "spark local[2]": lambda folder: spark(folder, "local[2]"),
    "judge local[2]": lambda folder: judged(folder, "local[2]"),
}


# -- the commands ----------------------------------------------------------------------------


def rates(size: int, times: int) -> None:
    with _generated(size) as folder:
        for _ in range(times):
            first = _measured("plain loop", folder)
            print(first, flush=True)
            runs = [
                _measured(what, folder, first.operations) for what in ("spark local[1]", "spark local[2]")
            ]
            for run in runs:
                print(run, flush=True)
            one, two = runs
            print(
                f"  local[1] is {first.wall_s / one.wall_s:.2f} of the loop by wall, "
                f"{first.cpu_s / one.cpu_s:.2f} by processor time; local[2] is {one.wall_s / two.wall_s:.2f} "
                f"times local[1] by wall",
                flush=True,
            )
        print(_measured("judge local[2]", folder), flush=True)


def tshark(size: int, times: int) -> None:
    program = shutil.which("tshark")
    if program is None:
        raise SystemExit("tshark is not there: apt-get install tshark")
    with _generated(size, protocols=("amqp",)) as folder:
        operations, _ = plain(folder)
        for _ in range(times):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.monotonic()
            for path in sorted(folder.iterdir()):
                asked = [
                    program,
                    "-n",
                    "-r",
                    str(path),
                    "-Y",
                    "amqp",
                    "-T",
                    "fields",
                    "-e",
                    "amqp.method.method",
                ]
                subprocess.run(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            wall = time.monotonic() - began
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(Run("tshark", operations, 0, wall, cpu), flush=True)
            print(_measured("spark local[1]", folder, operations), flush=True)
            print(_measured("plain loop", folder), flush=True)


def memory(size: int) -> None:
    for bytes_of in (size, 10 * size):
        with _generated(bytes_of) as folder:
            print(f"{bytes_of // MEGABYTE} MB of captures: {_measured('judge local[2]', folder)}", flush=True)


def planted(size: int, payload_bytes: int) -> None:
    from pipeline.judge import Asked, Judging
    from pipeline.results import Results
    from pipeline.session import session
    from tests.pipeline.planted import Planted, write

    with tempfile.TemporaryDirectory() as place:
        folder, output = Path(place) / "captures", str(Path(place) / "judged")
        folder.mkdir()
        wanted = write(folder, size=size, payload_bytes=payload_bytes)
        stored = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{len(wanted)} violations planted in {stored / MEGABYTE:.0f} MB", flush=True)
        running = session("local[2]", {"spark.driver.memory": "1g"})
        began = time.monotonic()
        manifest = Judging(running, Asked(places=(str(folder),), output=output), print).run()
        rows = Results(running, output).table("violations").select("rule", "connection", "number").collect()
        found = sorted(Planted(*row) for row in rows)
        print(f"{manifest.operations} operations in {time.monotonic() - began:.0f} s; found {len(found)}")
        print(f"missing: {sorted(set(wanted) - set(found))}; else: {sorted(set(found) - set(wanted))}")
        running.stop()
    if found != wanted:
        raise SystemExit(1)


class _generated:  # noqa: N801  # a context manager that reads like a function
    """Captures with violations planted in them, in a folder that is gone afterwards."""

    def __init__(self, size: int, protocols: Sequence[str] = ("nats", "amqp")) -> None:
        self._size, self._protocols = size, protocols

    def __enter__(self) -> Path:
        from tests.pipeline.planted import write

        self._folder = Path(tempfile.mkdtemp(prefix="plumbline-bench-"))
        write(self._folder, size=self._size, connections=16, protocols=self._protocols)
        return self._folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pipeline", description=__doc__)
    parser.add_argument("what", choices=("rates", "tshark", "memory", "planted", "one"))
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--size", type=int, default=50 * MEGABYTE, help="bytes of captures")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--payload", type=int, default=1000, help="bytes of a payload, for planted")
    asked = parser.parse_args()
    match asked.what:
        case "one":
            print(json.dumps(_ONE[asked.rest[0]](Path(asked.rest[1]))))
        case "rates":
            rates(asked.size, asked.times)
        case "tshark":
            tshark(asked.size, asked.times)
        case "memory":
            memory(asked.size)
        case "planted":
            planted(asked.size, asked.payload)


if __name__ == "__main__":
    main()
