"""What a command and all processes below it take: wall time, processor time, the largest memory.

Read from /proc, several times a second: a process that lives shorter than that may be missed.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct

MEGABYTE = 1_000_000
_LOOK_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_UNITS = {"KB": 1_000, "MB": MEGABYTE, "GB": 1_000_000_000}


class Process(Struct, frozen=True):
    """One process as /proc shows it: seconds of its own, and those of children that it has waited for."""

    pid: int
    parent: int
    name: str
    cpu_s: float
    waited_s: float
    memory_mb: float  # resident


class Taken(Struct):
    """What it took. ``memory_mb`` is the largest at one time, by the name of the program, and of all."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_mb: dict[str, float] = {}
    output: str = ""
    code: int = 0

    @property
    def memory(self) -> str:
        return ", ".join(f"{name} {mb:.0f} MB" for name, mb in sorted(self.memory_mb.items()))


def size_of(text: str) -> int:
    """Bytes that ``2GB``, ``50MB`` or ``1000`` mean. Raises ``ValueError``."""
    for unit, factor in _UNITS.items():
        if text.upper().endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


def below(pid: int) -> list[Process]:
    """All processes below this one, without it."""
    every: dict[int, list[Process]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue  # it has ended
        head, _, rest = text.rpartition(") ")
        fields = rest.split()
        own, waited = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        process = Process(
            int(path.parent.name), int(fields[1]), head.partition("(")[2], own / _TICKS, waited / _TICKS,
            int(fields[21]) * _PAGE / MEGABYTE,
        )  # fmt: skip
        every.setdefault(process.parent, []).append(process)
    found = list(every.get(pid, ()))
    for process in found:
        found += every.get(process.pid, ())
    return found


def cpu_below() -> float:
    """Processor seconds of this process and of all below it, whether they have ended or not."""
    mine = os.times()
    own = mine.user + mine.system + mine.children_user + mine.children_system
    return own + sum(process.cpu_s + process.waited_s for process in below(os.getpid()))


def take(command: Sequence[str], to: str | None = None) -> Taken:
    """Runs ``command`` to its end. What it writes to its standard output is kept, or goes ``to`` a file."""
    taken = Taken()
    cpu: dict[int, float] = {}
    ended = threading.Event()
    began = time.monotonic()
    with Path(to).open("w") if to else nullcontext(subprocess.PIPE) as out:
        running = subprocess.Popen(command, stdout=out, text=True)

    def look() -> None:
        while not ended.wait(_LOOK_S):
            now: defaultdict[str, float] = defaultdict(float)
            for process in below(os.getpid()):
                cpu[process.pid] = process.cpu_s
                now[process.name] += process.memory_mb
                now["all"] += process.memory_mb
            for name, mb in now.items():
                taken.memory_mb[name] = max(taken.memory_mb.get(name, 0.0), mb)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    with running:
        taken.output = running.communicate()[0] or ""
    ended.set()
    watcher.join()
    taken.wall_s, taken.cpu_s, taken.code = time.monotonic() - began, sum(cpu.values()), running.returncode
    return taken
