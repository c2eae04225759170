"""Runs a target: for a number of inputs (the short form), or guided by coverage with Atheris (``make fuzz``).

An input for which a rule does not hold is made smaller and saved, with the command that repeats it.
"""

from __future__ import annotations

import hashlib
import sys
import time
import traceback
from importlib.util import find_spec
from pathlib import Path
from random import Random

from msgspec import Struct

from tests.fuzz.mutations import damaged, mutated
from tests.fuzz.target import Target

FOUND = Path(__file__).parent / "found"  # inputs that were failures once: tests repeat them
SAVED = Path(".plumbline/fuzz")
SUFFIX = ".input"
MOST_TRIES = 2000  # executions to make one input smaller
SHOWN_EACH_S = 10.0


class Failure(AssertionError):
    """A rule does not hold. The text is the traceback and the command that repeats it."""


class Figures(Struct, frozen=True):
    """What a run was."""

    executions: int
    seconds: float
    guided: bool
    bytes: int = 0  # where they were counted

    def __str__(self) -> str:
        how = "guided by coverage" if self.guided else "random mutations"
        each = self.executions / self.seconds if self.seconds else 0
        size = f"{self.bytes} bytes, " if self.bytes else ""
        return f"{self.executions} executions, {size}{each:.0f} per second, {how}"


def has_atheris() -> bool:
    """Whether runs can be guided by coverage. Atheris has wheels for Linux only."""
    return find_spec("atheris") is not None


def run_executions(target: Target, executions: int, seed: int) -> None:
    """The seeds of the target, then mutations of them. Raises ``Failure``."""
    corpus = list(target.seeds())
    for data in corpus:
        attempt(target, data)
    random = Random(f"{target.name} {seed}")
    for _ in range(executions):
        attempt(target, mutated(random, corpus, target.words))


def run_seconds(target: Target, seconds: float, seed: int) -> Figures:
    """The same, for so long. Raises ``Failure``."""
    corpus = list(target.seeds())
    random = Random(f"{target.name} {seed}")
    began, executions = time.monotonic(), 0
    while (took := time.monotonic() - began) < seconds:
        attempt(
            target, corpus[executions] if executions < len(corpus) else mutated(random, corpus, target.words)
        )
        executions += 1
    return Figures(executions, took, guided=False)


def run_bytes(target: Target, least: int, seed: int) -> Figures:
    """Long inputs of ``least`` bytes in all. Raises ``Failure``; ``ValueError`` for a target without any."""
    if target.long is None:
        raise ValueError(f"{target.name} has no long inputs")
    random = Random(f"{target.name} {seed} long")
    began = shown = time.monotonic()
    executions = count = 0
    while count < least:
        data = damaged(random, target.long(random), target.words)
        attempt(target, data)
        executions += 1
        count += len(data)
        if time.monotonic() - shown > SHOWN_EACH_S:
            shown = time.monotonic()
            print(f"{target.name}: {count:,} of {least:,} bytes", file=sys.stderr, flush=True)
    return Figures(executions, time.monotonic() - began, guided=False, bytes=count)


def attempt(target: Target, data: bytes) -> None:
    """One input. Raises ``Failure``, after the input was made smaller and saved."""
    try:
        target.run(data)
    except Exception:  # any exception is what a fuzzer looks for
        smaller = _smaller(target, data)
        path = save(target.name, smaller)
        raise Failure(f"{_trace(target, smaller)}\n{command(path)}") from None


def command(path: Path) -> str:
    """How to repeat a saved input."""
    return f'repeat it: make fuzz ARGS="--repeat {path}"'


def save(name: str, data: bytes) -> Path:
    """Keeps an input below the current folder."""
    SAVED.mkdir(parents=True, exist_ok=True)
    path = SAVED / f"{name}.{hashlib.sha256(data).hexdigest()[:12]}{SUFFIX}"
    path.write_bytes(data)
    return path


def name_of(path: Path) -> str:
    """The target of a saved input: the first part of its name, or its folder below ``found``."""
    return path.name.partition(".")[0]


def _place(target: Target, data: bytes) -> tuple[str, int] | None:
    """Where the input fails: kind of the exception and the line; None if it does not."""
    try:
        target.run(data)
    except Exception as error:  # any exception counts
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} {last.filename}", last.lineno or 0
    return None


def _trace(target: Target, data: bytes) -> str:
    try:
        target.run(data)
    except Exception as error:  # shown in full
        text = "".join(traceback.format_exception(error, chain=False))
        return f"{target.name}: {data[:200]!r}\n{text}"
    return f"{target.name}: {data[:200]!r}\nit failed once, but does not again: it depends on something else"


def _smaller(target: Target, data: bytes) -> bytes:
    """A shorter input that fails at the same place."""
    place = _place(target, data)
    if place is None:
        return data
    size, tries = max(len(data) // 2, 1), 0
    while size and tries < MOST_TRIES:
        at, changed = 0, False
        while at < len(data) and tries < MOST_TRIES:
            tries += 1
            shorter = data[:at] + data[at + size :]
            if _place(target, shorter) == place:
                data, changed = shorter, True
            else:
                at += size
        if not changed or size > 1:
            size //= 2
    return data
