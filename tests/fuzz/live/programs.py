"""A program of Plumbline in a process of its own: its address, its memory, and whether it is well."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from pathlib import Path

READY_S = 120.0  # on a busy machine
ENDED_S = 60.0
LAST_LINES = 40
PAGE = os.sysconf("SC_PAGE_SIZE")
# Python's own allocator keeps an arena in which one object is left; of malloc, ``trimmed`` gives all back.
GIVES_BACK = {"PYTHONMALLOC": "malloc", "MALLOC_MMAP_THRESHOLD_": "32768"}


class Broken(AssertionError):
    """A rule does not hold; the text says which."""


class Program:
    """``plumbline`` with these arguments. A traceback or an end that was not asked for breaks a rule."""

    def __init__(self, *arguments: str) -> None:
        self.name = " ".join(arguments[:2])
        self.command = [sys.executable, "-m", "tests.fuzz.live.trimmed", *arguments]
        self.lines: deque[str] = deque(maxlen=LAST_LINES)  # of stderr
        self.warnings = 0
        self._traceback = False
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        """Its first line. Raises ``Broken``."""
        pipe = asyncio.subprocess.PIPE
        self.warnings = 0
        self._process = process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            process_group=0,
            env={**os.environ, **GIVES_BACK},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [asyncio.create_task(self._watch(process.stderr))]
        async with asyncio.timeout(READY_S):
            line = (await process.stdout.readline()).decode()
        self._readers.append(asyncio.create_task(self._discard(process.stdout)))
        if not line:
            await process.wait()
            raise Broken(f"{self.name} did not start:\n{self._text()}")
        return line

    async def _watch(self, stream: asyncio.StreamReader) -> None:
        while line := (await stream.readline()).decode(errors="replace"):
            self._traceback |= line.startswith("Traceback")
            self.warnings += 1
            self.lines.append(line.rstrip())

    async def _discard(self, stream: asyncio.StreamReader) -> None:
        while await stream.read(1 << 16):
            pass

    def check(self) -> None:
        """Raises ``Broken`` unless it runs and has not printed a traceback."""
        assert self._process is not None
        if self._process.returncode is not None:
            raise Broken(f"{self.name} ended with exit code {self._process.returncode}:\n{self._text()}")
        if self._traceback:
            raise Broken(f"{self.name} printed a traceback:\n{self._text()}")

    @property
    def resident(self) -> int:
        """Bytes of its memory that are in use."""
        assert self._process is not None
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * PAGE

    async def stop(self) -> None:
        """As with Ctrl-C. Raises ``Broken`` unless its exit code is 0."""
        self.check()
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        async with asyncio.timeout(ENDED_S):
            code = await self._process.wait()
            await asyncio.gather(*self._readers)
        self._process = None
        if code or self._traceback:
            raise Broken(f"{self.name} ended with exit code {code} after Ctrl-C:\n{self._text()}")

    def send_kill(self) -> None:
        """Kill -9, as a defect would end it."""
        assert self._process is not None
        self._process.kill()

    async def kill(self) -> None:
        """Whatever it does; nothing if it does not run."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
            await asyncio.gather(*self._readers, return_exceptions=True)
            self._process = None

    def _text(self) -> str:
        return "\n".join(self.lines)
