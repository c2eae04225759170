"""A real server as a process of its own, in a folder of its own: what servers of every software share.

A module for one software has a subclass of ``ServerProcess``, named ``SERVER``. Standard library only.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from plumbline.errors import PlumblineError
from plumbline.process_groups import await_end_of_group, signal_group

if TYPE_CHECKING:
    from plumbline.servers.nats.nats_server import MissingServer, ServerBinary

POLL_S = 0.01


class ServerError(PlumblineError):
    """A server did not start, or is none. The message says which, why, and what it printed."""


class NotReady(ServerError):
    """A server did not get ready. ``ended``: its process ended by itself; ``log``: all that it printed."""

    def __init__(self, message: str, *, ended: bool, log: str) -> None:
        super().__init__(message)
        self.ended = ended
        self.log = log


class ServerProcess:
    """One server, started by ``start()`` or ``with``. ``url``: where clients connect while it runs, else "".

    With ``data`` all that it stores is in that folder, where a later server finds it; otherwise in a folder
    that ``stop`` removes. ``apart``: in a process group of its own, which Ctrl-C does not reach; otherwise it
    belongs to the group of the process that starts it, and dies with that. Raises ``ServerError`` if
    ``binary`` is no program.
    """

    ready_within_s: ClassVar[float] = 15.0
    stopped_within_s: ClassVar[float] = 5.0
    log_lines: ClassVar[int] = 10  # of a server that does not start, the end of its log says why
    attempts: ClassVar[int] = 1  # to start: more where another process may take a port first
    end_signal: signal.Signals = signal.SIGTERM  # ends it in order
    stop_signal: signal.Signals = signal.SIGTERM  # for a server whose folder is removed
    takes_settings: ClassVar[bool] = False  # of an AMQP variant, by ``configure``
    fresh: bool = False  # every check needs a server of its own: one check may end it

    def __init__(self, binary: Path | str, data: Path | None = None, *, apart: bool = True) -> None:
        found = shutil.which(binary)
        if found is None:
            raise ServerError(f"{binary} is not an executable file")
        self.binary = Path(found).absolute()
        self.url = ""
        self._data = data
        self._apart = apart
        self._folder = Path()  # where it runs; set by launch
        self._processes: list[subprocess.Popen[bytes]] = []
        self._end: weakref.finalize[..., ServerProcess] | None = None

    # -- what each software adds -------------------------------------------------------------

    @classmethod
    def installed(cls) -> ServerBinary | MissingServer | None:
        """The one that this machine has; None for software of which it may have several releases."""
        return None

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        """The processes to start, the server last. Writes what they read into ``self._folder``."""
        raise NotImplementedError

    def _environment(self) -> Mapping[str, str] | None:
        """Environment variables; None: those of this process."""
        return None

    def _working_folder(self) -> Path:
        """Where its processes run."""
        return self._folder

    def _ready_url(self, deadline: float) -> str:
        """The URL once clients can connect, else "". May wait until ``deadline`` (``time.monotonic``)."""
        raise NotImplementedError

    def _may_try_again(self, problem: NotReady) -> bool:
        """Whether a further attempt may succeed."""
        return problem.ended

    def configure(self, settings: Mapping[str, object]) -> None:
        """The settings of an AMQP variant, before it is started. Raises ``ServerError``."""
        raise ServerError(f"{self.binary} is started in its usual configuration only")

    def raise_alarm(self) -> None:
        """Publishers wait from soon on: as if memory were short. Only after ``configure``."""

    def end_alarm(self) -> None:
        """Publishers may soon go on."""

    # -- its life ----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process id of the server. Raises ``ServerError`` if it does not run."""
        if not self._processes:
            raise ServerError(f"{self.binary} is not running")
        return self._processes[-1].pid

    @property
    def folder(self) -> Path:
        """Where it keeps what it stores and prints, from its first launch until ``stop``."""
        return self._folder

    @property
    def log(self) -> str:
        """What it printed since it was started last."""
        log = self._folder / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def launch(self) -> None:
        """Starts the processes and does not wait: several servers can then start side by side."""
        if self._end is None:
            self._open_folder()
        commands, environment = self._commands(), self._environment()
        with (self._folder / "log").open("wb") as log:
            for command in commands:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=self._working_folder(),
                    process_group=0 if self._apart else None,
                )
                self._processes.append(process)

    def await_ready(self, within: float | None = None) -> None:
        """Returns once clients can connect. Raises ``ServerError`` with its log, and stops it, if they cannot
        within so many seconds (``ready_within_s``)."""
        within = self.ready_within_s if within is None else within
        deadline = time.monotonic() + within
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._processes[-1].wait(POLL_S)  # also the pause between two looks
                raise self._not_ready(f"ended at once with exit code {status}", ended=True)
            if url := self._ready_url(deadline):
                self.url = url
                return
            if time.monotonic() > deadline:
                raise self._not_ready(f"was not ready within {within:g} s", ended=False)

    def start(self) -> None:
        """Launches and waits until clients can connect. Raises ``ServerError`` with the end of its log."""
        for attempt in range(1, self.attempts + 1):
            self.launch()
            try:
                self.await_ready()
            except NotReady as problem:
                if attempt == self.attempts or not self._may_try_again(problem):
                    raise
            else:
                return

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._processes[-1].poll()

    def kill(self) -> None:
        """Ends it at once, as a crash does. What it stored stays."""
        _end_all(self._processes, signal.SIGKILL, self.stopped_within_s, apart=self._apart)
        self.url = ""

    def shut_down(self) -> None:
        """Ends it in order. What it stored stays. Idempotent."""
        _end_all(self._processes, self.end_signal, self.stopped_within_s, apart=self._apart)
        self.url = ""

    def stop(self) -> None:
        """Ends it, and removes its folder unless it was given one. Idempotent."""
        if self._end is not None:
            self._end()
            self._end = None
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _open_folder(self) -> None:
        temporary: TemporaryDirectory[str] | None = None
        if self._data is None:
            temporary = TemporaryDirectory(prefix=f"plumbline-{self.binary.name}-")
        self._folder = Path(temporary.name) if temporary else self._data or Path()
        self._folder.mkdir(parents=True, exist_ok=True)
        how = self.stop_signal if temporary else self.end_signal
        self._end = weakref.finalize(
            self, _end, self._processes, temporary, how, self.stopped_within_s, apart=self._apart
        )

    def _not_ready(self, what: str, *, ended: bool) -> NotReady:
        log = self.log
        self.stop()
        lines = log.strip().splitlines()[-self.log_lines :]
        printed = "\n".join(["it printed last:", *lines]) if lines else "it has no output"
        return NotReady(f"{self.binary} {what}; {printed}", ended=ended, log=log)


def _end(
    processes: list[subprocess.Popen[bytes]],
    temporary: TemporaryDirectory[str] | None,
    how: signal.Signals,
    within: float,
    *,
    apart: bool,
) -> None:
    _end_all(processes, how, within, apart=apart)
    if temporary is not None:
        temporary.cleanup()


def _end_all(
    processes: list[subprocess.Popen[bytes]], how: signal.Signals, within: float, *, apart: bool
) -> None:
    """The server first, then what was started before it."""
    while processes:
        process = processes.pop()
        deadline = time.monotonic() + within
        _signal(process, how, apart=apart)
        try:
            process.wait(within)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL, apart=apart)
            process.wait()
        # A start script may end before the server that it started.
        if apart and not await_end_of_group(process.pid, max(0.0, deadline - time.monotonic())):
            signal_group(process.pid, signal.SIGKILL)
            await_end_of_group(process.pid, within)


def _signal(process: subprocess.Popen[bytes], how: signal.Signals, *, apart: bool) -> None:
    if apart:
        signal_group(process.pid, how)
    else:
        process.send_signal(how)  # none is sent to one that has ended
