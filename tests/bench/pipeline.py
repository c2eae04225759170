"""How fast and how large: ``python -m tests.bench.pipeline``. Nothing here decides whether tests pass.

    rates     decode and monitors: a Python loop, Spark on one core (pinned to it, and free), Spark on two
    tshark    a capture of AMQP through tshark, through the plain loop, and through Spark
    memory    the largest memory of plumbline judge, by program, over captures of --size and of ten times that

Rounds go through all ways in turn; shares are of one round, and medians over the rounds are what is printed
last. Every run is a process of its own. Spark's is warm: its session is there, its workers run, and a smaller
capture went through. Rates are of wall time; processor time of all processes, Java's compilers too, stands
beside them, for it says more on a machine that does other work. ``planted`` has a bench of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from plumbline.pipeline.results import MANIFEST
from tests.bench.command_line import parser_of
from tests.bench.processes import MEGABYTE, cpu_below, size_of, take

WARMING = 20 * MEGABYTE  # bytes of the capture that goes through Spark first: Java has compiled by then
_MODULE = "tests.bench.pipeline"
PLAIN, ONE_CORE, ONE, TWO = "plain loop", "local[1] on one core", "local[1]", "local[2]"
# What tshark is asked for. The columns are those of Plumbline's operations that tshark has.
_COLUMNS = (
    "frame.number", "frame.time_epoch", "ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "amqp.channel",
    "amqp.length", "amqp.method.class", "amqp.method.method", "amqp.method.arguments.queue",
    "amqp.method.arguments.exchange", "amqp.method.arguments.routing_key",
    "amqp.method.arguments.consumer_tag", "amqp.method.arguments.delivery_tag",
    "amqp.method.arguments.multiple", "amqp.method.arguments.redelivered",
    "amqp.method.arguments.reply_code", "amqp.method.arguments.reply_text",
    "amqp.method.properties.reply_to", "amqp.method.properties.message_id", "amqp.header.body-size",
)  # fmt: skip
TSHARK: dict[str, tuple[str, ...]] = {
    "tshark, one line each": (),
    "tshark, method numbers": ("-T", "fields", "-e", "amqp.method.method"),
    "tshark, our columns": ("-T", "fields", *(word for name in _COLUMNS for word in ("-e", name))),
    "tshark, all it decodes": ("-T", "json"),
}


class Run(Struct, frozen=True):
    """What one run took; memory in MB, by program."""

    what: str
    operations: int
    violations: int
    wall_s: float
    cpu_s: float
    memory: str = ""

    @property
    def rate(self) -> float:
        return self.operations / self.wall_s

    @property
    def cpu_rate(self) -> float:
        return self.operations / self.cpu_s

    def __str__(self) -> str:
        return (
            f"{self.what:24} {self.operations:8} operations {self.violations:4} violations "
            f"{self.wall_s:6.1f} s {self.rate:7.0f}/s  "
            f"cpu {self.cpu_s:6.1f} s {self.cpu_rate:7.0f}/s  {self.memory}"
        )


# -- what is measured, each in a process of its own ------------------------------------------


def plain(folder: Path) -> tuple[int, int]:
    """Operations and violations: one loop over the same readers and monitors."""
    from plumbline.captures.files import read
    from plumbline.captures.judging import CaptureJudge

    judge = CaptureJudge()
    operations = violations = 0
    for row in read([folder]):
        operations += row.number > 0
        violations += sum(1 for _ in judge.observe(row))
    return operations, violations


def _plain(folder: Path) -> Run:
    began, cpu = time.monotonic(), time.process_time()
    operations, violations = plain(folder)
    return Run(PLAIN, operations, violations, time.monotonic() - began, time.process_time() - cpu)


def _spark(what: str, master: str, folder: Path) -> Run:
    """The operations are not counted: only what violates a rule, or matters across connections, is a row."""
    from plumbline.pipeline import transforms
    from plumbline.pipeline.input.frames import bundled, find
    from plumbline.pipeline.judge import PARTS_PER_CORE
    from plumbline.pipeline.spark.session import session
    from tests.pipeline.support.planted import write

    spark = session(master, {"spark.driver.memory": "1g"})
    parts = PARTS_PER_CORE * spark.sparkContext.defaultParallelism

    def judged(place: str) -> int:
        source = bundled(spark, find(spark, [place]), section_bytes=16 * MEGABYTE)
        return transforms.found_violations(transforms.staged_for_violations(source, parts), parts).count()

    with tempfile.TemporaryDirectory() as warming:
        write(Path(warming), size=WARMING)
        judged(warming)
    began, cpu = time.monotonic(), cpu_below()
    violations = judged(str(folder))
    run = Run(what, 0, violations, time.monotonic() - began, cpu_below() - cpu)
    spark.stop()
    return run


def _on_one_core(folder: Path) -> Run:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    return _spark(ONE_CORE, "local[1]", folder)


_ONE: dict[str, Callable[[Path], Run]] = {
    PLAIN: _plain,
    ONE_CORE: _on_one_core,
    ONE: lambda folder: _spark(ONE, "local[1]", folder),
    TWO: lambda folder: _spark(TWO, "local[2]", folder),
}


def _measured(what: str, folder: Path, operations: int = 0) -> Run:
    """``what`` in a process of its own; ``operations`` as counted before, if it does not count."""
    taken = take([sys.executable, "-m", _MODULE, "one", what, str(folder)])
    if taken.code:
        raise SystemExit(f"{what} ended with {taken.code}")
    measured: dict[str, Any] = json.loads(taken.output.splitlines()[-1])
    return Run(**measured | {"operations": measured["operations"] or operations, "memory": taken.memory})


def _tshark(what: str, folder: Path, operations: int) -> Run:
    program = shutil.which("tshark")
    if program is None:
        raise SystemExit("tshark is not there: apt-get install tshark")
    wall = cpu = 0.0
    for path in sorted(folder.iterdir()):
        command = [program, "-n", "-r", str(path), "-Y", "amqp", *TSHARK[what]]
        began, before = time.monotonic(), os.times()
        # Its output is written, and is not read: what a reader takes is not tshark's.
        taken = take([*command], to=os.devnull)
        after = os.times()
        wall += time.monotonic() - began
        cpu += after.children_user + after.children_system - before.children_user - before.children_system
        if taken.code:
            raise SystemExit(f"tshark ended with {taken.code}")
    return Run(what, operations, 0, wall, cpu)


# -- the commands ----------------------------------------------------------------------------


def _rounds(
    number: int, ways: Mapping[str, Callable[[], Run]], shares: Mapping[tuple[str, str], str]
) -> None:
    """Goes through ``ways`` so often; then medians, and of each round's shares the median."""
    rounds: list[dict[str, Run]] = []
    for _ in range(number):
        rounds.append({})
        for name, way in ways.items():
            rounds[-1][name] = way()
            print(rounds[-1][name], flush=True)
    print(f"medians of {number} rounds")
    for name in ways:
        rate = statistics.median(done[name].rate for done in rounds)
        own = statistics.median(done[name].cpu_rate for done in rounds)
        print(f"  {name:24} {rate:8.0f} operations/s, {own:8.0f} per second of processors")
    for (name, other), target in shares.items():
        wall = statistics.median(done[name].rate / done[other].rate for done in rounds)
        cpu = statistics.median(done[name].cpu_rate / done[other].cpu_rate for done in rounds)
        print(f"  {name} is {wall:.2f} times {other} by wall, {cpu:.2f} by processor time{target}")


def rates(size: int, rounds: int) -> None:
    with _generated(size) as folder:
        operations, _ = plain(folder)
        ways = {name: _way(_measured, name, folder, operations) for name in (PLAIN, ONE_CORE, ONE, TWO)}
        wanted = {
            (ONE, PLAIN): " (wanted: 0.6)",
            (ONE_CORE, PLAIN): "",
            (TWO, ONE): " (wanted: 1.7)",
            (TWO, ONE_CORE): " (two cores to one)",
        }
        _rounds(rounds, ways, wanted)


def tshark(size: int, rounds: int) -> None:
    with _generated(size, ("amqp",)) as folder:
        operations, _ = plain(folder)
        ways = {name: _way(_tshark, name, folder, operations) for name in TSHARK}
        ours = (PLAIN, ONE, TWO)
        ways |= {name: _way(_measured, name, folder, operations) for name in ours}
        _rounds(rounds, ways, {(our, name): " (wanted: 2)" for name in TSHARK for our in ours})


def _way(
    measure: Callable[[str, Path, int], Run], name: str, folder: Path, operations: int
) -> Callable[[], Run]:
    return lambda: measure(name, folder, operations)


def memory(size: int, rounds: int) -> None:
    for bytes_of in (size, 10 * size):
        with _generated(bytes_of) as folder, tempfile.TemporaryDirectory() as judged:
            for _ in range(rounds):
                command = [sys.executable, "-m", "plumbline", "judge", str(folder), "-o", judged]
                taken = take(command, to=os.devnull)
                operations = json.loads((Path(judged) / MANIFEST).read_bytes())["operations"]
                print(
                    f"{bytes_of / MEGABYTE:.0f} MB, {operations} operations: judge took "
                    f"{taken.wall_s:.0f} s, {taken.cpu_s:.0f} s of processors; memory: {taken.memory}",
                    flush=True,
                )


@contextmanager
def _generated(size: int, protocols: Sequence[str] = ("nats", "amqp")) -> Iterator[Path]:
    """Captures with violations planted in them, in a folder that is gone afterwards."""
    from tests.pipeline.support.planted import write

    with tempfile.TemporaryDirectory(prefix="plumbline-bench-") as place:
        write(Path(place), size=size, connections=64, protocols=protocols)
        yield Path(place)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=("rates", "tshark", "memory", "one"))
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=size_of, default=size_of("50MB"), help="of the captures: 50MB")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.what == "one":
        what, folder = given.rest
        print(json.dumps(_as_json(_ONE[what](Path(folder)))))
        return
    {"rates": rates, "tshark": tshark, "memory": memory}[given.what](given.size, given.rounds)


def _as_json(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__struct_fields__}


if __name__ == "__main__":
    main()
