"""Fuzzes the readers of captures: mutants of small samples go through show, diff, audit, trace and judge.

Both engines of judge: each mutant alone as the workers of Spark read it, and many of them in one run of the
local engine.

A mutant may be refused with the errors that the commands document, and nothing else; it may take no more than
5 s for each MB, and the process no more than 300 MB. ``python -m tests.fuzz.captures --seconds 60 --seed 1``.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from plumbline.captures import diff_reports, trace_writer
from plumbline.captures.diff import compare
from plumbline.captures.files import read
from plumbline.captures.judging import CaptureJudge, violation_json, violation_text
from plumbline.captures.operations import OperationRow
from plumbline.captures.show import as_json, as_text
from plumbline.captures.trace_text import TraceHeader
from plumbline.errors import PlumblineError
from plumbline.pipeline.audit import reports as audit_reports
from plumbline.pipeline.audit.captures import AuditReader
from plumbline.pipeline.input.bundles import bundles
from plumbline.pipeline.input.files import capture_files, sections
from plumbline.pipeline.judging.flows import STAGED, decode
from plumbline.pipeline.judging.streams import judge_streams
from plumbline.pipeline.local.judge import LocalRun
from plumbline.pipeline.local.start import keep_pandas_out
from plumbline.pipeline.results import JudgeOptions
from plumbline.pipeline.rows import RowKind
from plumbline.pipeline.tables import arrow_schema
from tests.fuzz.capture_samples import SAMPLES

SECONDS_PER_MB, LEAST_SECONDS = 5.0, 2.0
TABLES_SECONDS = 0.2  # of each capture, however small: the local engine writes files for each day in it
MOST_MB = 300
SECTION_BYTES = 4096  # small, so that mutants are cut
MOST_PACKET = 65_000  # its length is a field of two octets
TOGETHER = 250  # mutants of one run of the local engine, whose tables take most of its time
SHOWN_EACH_S = 30.0
HOSTILE = (
    b"\xff\xfe", b"\xed\xa0\x80", b"\x1b]0;title\x07", b"\0", "\u202e".encode(), b"9" * 5000, b"-1",
    b"\xc2\xb2", b"[" * 20_000, b'{"a":' * 8000, b"1e999", b"NaN", b"\r\n", b" ",
    b"$JS.ACK.S.C.1.2.3.4.5", b"$JS.API.", b"_INBOX.", b"NATS/1.0", b"PUB a 1048577\r\n", b"INFO {}\r\n",
    b"plumbline: connection 99999999999999999999: nats", b"plumbline: connection 0: amqp",
    b"MSG a 1 99999999999999999999\r\n", b"HPUB a 0 0\r\n",
)  # fmt: skip
NUMBERS = (0, 1, 3, 4, 7, 8, 12, 20, 28, 255, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)


class Figures(Struct):
    """What a run has tried."""

    mutants: int = 0
    bytes: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    most_mb: int = 0

    def __str__(self) -> str:
        return (
            f"{self.mutants} mutants, {self.bytes} bytes, {self.refused} refusals; "
            f"slowest {self.slowest_s:.2f} s, {self.most_mb} MB"
        )


class RuleBrokenError(Exception):
    """A mutant for which a rule does not hold. The text says which one, and where."""


# -- mutations ---------------------------------------------------------------------------------


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to four changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        data = rng.choice(_MUTATIONS)(data, rng)
    return data


def _blocks(data: bytes) -> list[bytes]:
    """The pieces of a capture: blocks or records, as far as they can be found."""
    pieces, at = [], 0
    is_pcap = data[:4] in (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d")
    order = "<" if data[4:8] < data[7:3:-1] else ">"
    if is_pcap:
        order = "<" if data[:1] in (b"\xd4", b"\x4d") else ">"
        pieces.append(data[:24])
        at = 24
    while len(data) - at >= 12:
        if is_pcap:
            total = 16 + int(struct.unpack_from(order + "I", data, at + 8)[0])
        else:
            if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
                order = "<" if data[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            total = int(struct.unpack_from(order + "I", data, at + 4)[0])
        if not 12 <= total <= len(data) - at:
            break
        pieces.append(data[at : at + total])
        at += total
    return [*pieces, data[at:]]


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _cut_out(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.randrange(1, 64) :]


def _insert_hostile(data: bytes, rng: random.Random) -> bytes:
    """In a packet, whose lengths follow: text that readers must not choke on."""
    pieces = _blocks(data)
    if len(pieces) < 4:
        at = rng.randrange(len(data) + 1)
        return data[:at] + rng.choice(HOSTILE) + data[at:]
    place = rng.randrange(1, len(pieces) - 1)
    pieces[place] = _with_payload(pieces[place], rng)
    return b"".join(pieces)


def _with_payload(block: bytes, rng: random.Random) -> bytes:
    """An enhanced packet block with something hostile in its payload, such that all lengths are right."""
    if len(block) < 80 or block[:4] not in (b"\x06\0\0\0", b"\0\0\0\x06"):
        return block
    order = "<" if block[0] else ">"
    kept, _ = struct.unpack_from(order + "II", block, 20)
    packet, rest = bytearray(block[28 : 28 + kept]), block[28 + kept + (-kept & 3) : -4]
    head = 60 if packet and packet[0] >> 4 == 6 else 40
    if not head <= len(packet) <= MOST_PACKET:  # an earlier change may have made one without a right length
        return block
    text = rng.choice(HOSTILE)[: MOST_PACKET - len(packet)]
    at = rng.randrange(head, len(packet) + 1)
    end = at + (len(text) if rng.random() < 0.5 else 0)  # in the place of what is there, or between
    packet[at:end] = text
    length = len(packet) - 40 if head == 60 else len(packet)
    struct.pack_into("!H", packet, 4 if head == 60 else 2, length)
    body = (
        block[8:20] + struct.pack(order + "II", len(packet), len(packet)) + packet + bytes(-len(packet) & 3)
    )
    body += rest
    total = struct.pack(order + "I", len(body) + 12)
    return block[:4] + total + body + total


def _replace_number(data: bytes, rng: random.Random) -> bytes:
    """A number of a header, at a place where there is one: lengths, options, link types, times."""
    pieces = _blocks(data)
    place = rng.randrange(len(pieces))
    piece = bytearray(pieces[place])
    if len(piece) >= 8:
        at = rng.randrange(0, min(len(piece) - 4, 100) + 1, 2)
        number = rng.choice(NUMBERS)
        if rng.random() < 0.5:
            struct.pack_into(rng.choice("<>") + "I", piece, at, number)
        else:
            struct.pack_into(rng.choice("<>") + "H", piece, at, number & 0xFFFF)
    pieces[place] = bytes(piece)
    return b"".join(pieces)


def _change_tcp(data: bytes, rng: random.Random) -> bytes:
    """Sequence numbers, acknowledgements, offsets and flags."""
    pieces = _blocks(data)
    place = rng.randrange(len(pieces))
    piece = bytearray(pieces[place])
    start = 28 if bytes(piece[:4]) in (b"\x06\0\0\0", b"\0\0\0\x06") else 16
    if len(piece) < start + 60:
        return data
    tcp = start + (40 if piece[start] >> 4 == 6 else 20)
    at, form = rng.choice(((4, "!I"), (4, "!I"), (8, "!I"), (12, "!B"), (13, "!B"), (0, "!H"), (2, "!H")))
    (number,) = struct.unpack_from(form, piece, tcp + at)
    changed = rng.choice((number + rng.randrange(-70, 70), rng.choice(NUMBERS), number ^ 1))
    struct.pack_into(form, piece, tcp + at, changed % (1 << 8 * struct.calcsize(form)))
    pieces[place] = bytes(piece)
    return b"".join(pieces)


def _swap(data: bytes, rng: random.Random) -> bytes:
    pieces = _blocks(data)
    one, other = (rng.randrange(len(pieces)) for _ in range(2))
    pieces[one], pieces[other] = pieces[other], pieces[one]
    return b"".join(pieces)


def _repeat(data: bytes, rng: random.Random) -> bytes:
    pieces = _blocks(data)
    place = rng.randrange(len(pieces))
    times = rng.choice((2, 3, 40)) if len(data) < 100_000 else 2
    return b"".join([*pieces[:place], *[pieces[place]] * times, *pieces[place + 1 :]])


def _drop(data: bytes, rng: random.Random) -> bytes:
    pieces = _blocks(data)
    del pieces[rng.randrange(len(pieces))]
    return b"".join(pieces)


_MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip, _flip, _flip, _truncate, _cut_out, _insert_hostile, _insert_hostile, _insert_hostile,
    _replace_number, _replace_number, _change_tcp, _change_tcp, _swap, _repeat, _drop,
)  # fmt: skip


def mutant(sample: str, rng: random.Random) -> bytes:
    """A mutant of that sample; of a compressed one, before or after compression."""
    data = SAMPLES[sample]()
    if sample.endswith(".gz") and rng.random() < 0.7:
        return gzip.compress(mutated(gzip.decompress(data), rng), 1, mtime=0)
    return mutated(data, rng)


# -- commands ----------------------------------------------------------------------------------


def _show(path: Path, _: Path) -> None:
    judge = CaptureJudge()
    for row in read([path]):
        as_text(row).encode()
        as_json(row).encode()
        for violation in judge.observe(row):
            f"{violation_text(violation)}{violation_json(violation)}".encode()


@cache
def _rows_of(original: Path) -> list[OperationRow]:
    return list(read([original]))


def _diff(path: Path, other: Path) -> None:
    pairs = compare(_rows_of(other), read([path]))
    for line in diff_reports.as_text(pairs):
        line.encode()
    diff_reports.as_json(pairs).encode()
    diff_reports.as_html(pairs, "one", "other").encode()


def _audit(path: Path, _: Path) -> None:
    found = AuditReader([path])
    audited = found.audit()
    for line in audit_reports.as_text(audited, found.attempts, 10):
        line.encode()
    audit_reports.as_json(audited)


def _trace(path: Path, _: Path) -> None:
    connections: dict[int, list[OperationRow]] = {}
    for row in read([path]):
        connections.setdefault(row.connection.number, []).append(row)
    for number in sorted(connections)[:3]:
        rows = connections[number]
        about = TraceHeader("fuzzed", trace_writer.source_of("fuzzed", rows), ())
        try:
            trace_writer.write(rows, about).encode()
        except ValueError as error:  # as the command does
            if isinstance(error, UnicodeError):
                raise


def _judge_as_workers(path: Path, _: Path) -> None:
    """What the workers of Spark do."""
    files, _problems = capture_files([str(path)])
    given = [
        batch for file in files for section in sections(file, SECTION_BYTES) for batch in bundles(section)
    ]
    if not given:
        return
    ordered = pa.Table.from_batches(given).sort_by(
        [(name, "ascending") for name in ("flow", "file", "frame")]
    )
    staged = pa.Table.from_batches(
        list(decode(ordered.to_batches(), keeps_payloads=True)), arrow_schema(STAGED)
    )
    is_fact = pc.equal(staged["row_kind"], str(RowKind.FACTS))
    facts = staged.filter(pc.or_(is_fact, pc.is_valid(staged["broken"])))
    facts = facts.sort_by([(name, "ascending") for name in ("key", "file", "frame", "number")])
    list(judge_streams(facts.to_batches()))


COMMANDS: dict[str, Callable[[Path, Path], None]] = {
    "show": _show,
    "diff": _diff,
    "audit": _audit,
    "trace": _trace,
    "judge": _judge_as_workers,
}


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {seconds:.1f} s")

    before = signal.signal(signal.SIGPROF, stop)  # of CPU time: the machine may be busy
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def attempt(path: Path, original: Path) -> int:
    """Runs every command; the number that refused the file. Raises ``RuleBrokenError``."""
    refused = 0
    seconds = max(path.stat().st_size / 1e6 * SECONDS_PER_MB, LEAST_SECONDS)
    for name, command in COMMANDS.items():
        try:
            with _at_most(seconds):
                command(path, original)
        except PlumblineError:
            refused += 1
        except Exception as error:
            where = "".join(traceback.format_exception(error)[-9:])
            raise RuleBrokenError(f"{name}: {type(error).__name__}: {str(error)[:200]}\n{where}") from error
    peak = _peak_mb()
    if peak > MOST_MB:
        raise RuleBrokenError(f"the process has had {peak} MB")
    return refused


def attempt_together(paths: Sequence[Path], output: Path) -> None:
    """One run of ``judge --engine local`` over many. Raises ``RuleBrokenError``, which names the mutant."""
    try:
        _judge_locally(paths, output)
    except RuleBrokenError:
        for path in paths:
            _judge_locally([path], output)
        raise


def _judge_locally(paths: Sequence[Path], output: Path) -> None:
    size = sum(path.stat().st_size for path in paths)
    seconds = size / 1e6 * SECONDS_PER_MB + len(paths) * TABLES_SECONDS + 5 * LEAST_SECONDS
    try:
        with _at_most(seconds):
            LocalRun(JudgeOptions(paths=tuple(map(str, paths)), output=str(output))).run()
    except Exception as error:
        where = "".join(traceback.format_exception(error)[-9:])
        names = paths[0].name if len(paths) == 1 else f"{len(paths)} mutants from {paths[0].name} on"
        raise RuleBrokenError(
            f"judge --engine local, {names}: {type(error).__name__}: {str(error)[:200]}\n{where}"
        ) from error
    finally:
        shutil.rmtree(output, ignore_errors=True)


def _peak_mb() -> int:
    """The most memory that this process has had. Where Linux shows it, without that of the process which
    started it: ``ru_maxrss`` counts both."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) // 1024 if found else 0


def run(
    seconds: float, seed: int, count: int | None = None, found: Path | None = None, *, goes_on: bool = False
) -> tuple[Figures, list[str]]:
    """Tries mutants for that time or number; the failures. What failed is kept in ``found``."""
    keep_pandas_out()
    with tempfile.TemporaryDirectory(prefix="plumbline-fuzz-") as scratch:
        tried = _Run(Path(scratch), seed, found)
        began = shown = time.monotonic()
        while time.monotonic() - began < seconds and (count is None or tried.figures.mutants < count):
            tried.next()
            if tried.failures and not goes_on:
                break
            if time.monotonic() - shown > SHOWN_EACH_S:
                shown = time.monotonic()
                print(f"{tried.figures}, {len(tried.failures)} failures", file=sys.stderr, flush=True)
        tried.judge_together()
    tried.figures.most_mb = _peak_mb()
    return tried.figures, tried.failures


class _Run:
    """The mutants of one seed, one after the other, as files in ``folder``."""

    def __init__(self, folder: Path, seed: int, found: Path | None) -> None:
        self.figures = Figures()
        self.failures: list[str] = []
        self._folder, self._seed, self._found = folder, seed, found
        self._together: list[Path] = []
        self._originals = {name: folder / f"original-{name}" for name in SAMPLES}
        for name, make in SAMPLES.items():
            plain = gzip.decompress(make()) if name.endswith(".gz") else make()
            self._originals[name].write_bytes(plain)

    def next(self) -> None:
        """One more."""
        number = self.figures.mutants
        rng = random.Random(f"{self._seed} {number}")
        name = rng.choice(list(SAMPLES))
        path = self._folder / f"{self._seed}-{number}-{name}"
        path.write_bytes(mutant(name, rng))
        began = time.process_time()
        try:
            self.figures.refused += attempt(path, self._originals[name])
        except RuleBrokenError as broken:
            self._failed(broken, path)
        self.figures.slowest_s = max(self.figures.slowest_s, time.process_time() - began)
        self.figures.mutants += 1
        self.figures.bytes += path.stat().st_size
        self._together.append(path)
        if len(self._together) == TOGETHER:
            self.judge_together()

    def judge_together(self) -> None:
        """What was not yet judged by the local engine, in one run. The files are deleted."""
        try:
            if self._together:
                attempt_together(self._together, self._folder / "judged")
        except RuleBrokenError as broken:
            self._failed(broken, *self._together)
        for path in self._together:
            path.unlink()
        self._together.clear()

    def _failed(self, broken: RuleBrokenError, *paths: Path) -> None:
        failure = f"{paths[-1].name}: {broken}"
        self.failures.append(failure)
        print(failure, file=sys.stderr, flush=True)  # at once: a run takes up to an hour
        if self._found is not None:
            self._found.mkdir(parents=True, exist_ok=True)
            for path in paths:
                shutil.copy(path, self._found)


def main() -> int:
    """Parse, run, print. 1 if a rule did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.captures", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--count", type=int, help="stop after that many mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--found", type=Path, help="keep failing mutants in this folder")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first failure")
    asked = parser.parse_args()
    figures, failures = run(asked.seconds, asked.seed, asked.count, asked.found, goes_on=asked.go_on)
    print(f"seed {asked.seed}: {figures}, {len(failures)} failures", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
