"""The process of an adapter: start it, send commands, read events, end it. A bad adapter cannot make
Plumbline hang.

Whatever it does wrong (no hello, no answer in time, nonsense, a flood, a death) is a ``AdapterError``,
raised to whoever waits. What it wrote to stderr is kept. The process leads a group of its own, and the whole
group is ended, so what it started goes with it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Self

from msgspec import Struct

from plumbline.conformance.clients import protocol
from plumbline.conformance.clients.protocol import (
    AdapterAnswer,
    AdapterEvent,
    AdapterHello,
    AdapterProtocolError,
)
from plumbline.interrupts import kept_from_children

HELLO_WITHIN_S = 20.0
ANSWER_WITHIN_S = 10.0  # beyond a command's own time-out: a busy machine is no hang
RESET_WITHIN_S = 2.0  # then a new process is cheaper
END_WITHIN_S = 2.0  # after its stdin has ended
MAX_LINE_BYTES = 1024 * 1024
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
MAX_STDERR_BYTES = 16 * 1024  # of each end
READ_BYTES = 64 * 1024


class AdapterError(Exception):
    """The adapter, or the library in it, did what no adapter may. ``expected`` and ``actual`` say what."""

    __test__ = False  # pytest would take the name for a test's

    def __init__(self, message: str, *, expected: str, actual: str) -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.actual = actual


class AdapterLine(Struct, frozen=True):
    """One line between Plumbline and the adapter. ``at``: nanoseconds since 1970; ``sent``: by Plumbline."""

    at: int
    text: str
    sent: bool


class ClientUnderTest:
    """One run of an adapter. As a context manager it is ended at the end."""

    __test__ = False

    def __init__(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self.command = tuple(command)
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._changed = threading.Condition()
        self._answers: dict[int, AdapterAnswer] = {}
        self._hello: AdapterHello | None = None
        self._problem: AdapterError | None = None
        self._is_over = False  # its stdout has ended
        self._number = 0
        self._read = 0
        self._stderr = _BoundedOutput()
        self._threads: list[threading.Thread] = []
        self.events: list[AdapterEvent] = []
        self.event_times: list[int] = []  # of each event, in nanoseconds since 1970
        self.spoken: list[AdapterLine] = []
        self.is_reused = False  # it has played a scenario before

    # -- the process -------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, unless it runs. Raises ``AdapterError`` if the command cannot be run."""
        if self._process is not None:
            return
        try:
            with kept_from_children():
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    env=None if self._environment is None else {**os.environ, **self._environment},
                )
        except OSError as error:
            raise AdapterError(
                f"the adapter cannot be started: {error.strerror}: {self.command[0]}",
                expected="a command that runs",
                actual=shlex.join(self.command),
            ) from None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._follow(self._read_stdout, self._process.stdout)
        self._follow(self._stderr.read, self._process.stderr)

    def _follow(self, read: Callable[[IO[bytes]], None], pipe: IO[bytes]) -> None:
        def run() -> None:
            with pipe:
                read(pipe)

        thread = threading.Thread(target=run, name="plumbline-client-under-test", daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def stderr(self) -> str:
        """What it wrote there so far: the beginning and the end."""
        return self._stderr.text

    def end(self) -> int | None:
        """Ends its stdin, waits, ends the whole group. Its exit code; None if it had to be killed."""
        process = self._process
        if process is None:
            return None
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(END_WITHIN_S if self._problem is None else 0.0)
        self.kill()
        for thread in self._threads:
            thread.join(1.0)  # what was started outside of the group may hold the pipes
        return code

    def kill(self) -> None:
        """The whole process group, at once. From any thread."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    # -- what it says ------------------------------------------------------------------------

    def _read_stdout(self, pipe: IO[bytes]) -> None:
        rest = b""
        try:
            while data := os.read(pipe.fileno(), READ_BYTES):
                self._read += len(data)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if line.strip():
                        self._handle_line(line)
                if len(rest) > MAX_LINE_BYTES or self._read > MAX_OUTPUT_BYTES:
                    raise _output_limit_error(rest, self._read)
        except AdapterError as problem:
            self._fail(problem)
            self.kill()
        except OSError:
            pass
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _handle_line(self, line: bytes) -> None:
        try:
            parsed = protocol.parse_line(line)
        except AdapterProtocolError as error:
            raise AdapterError(
                f"the adapter wrote a line that is not valid: {error}",
                expected="a line as in PROTOCOL.md",
                actual=_shorten(line),
            ) from None
        with self._changed:
            now = time.time_ns()
            self.spoken.append(AdapterLine(now, _shorten(line), sent=False))
            match parsed:
                case AdapterHello():
                    self._hello = parsed
                case AdapterAnswer():
                    self._answer(parsed)
                case AdapterEvent():
                    self.event_times.append(now)
                    self.events.append(parsed)
            self._changed.notify_all()

    def _answer(self, answer: AdapterAnswer) -> None:
        if answer.id in self._answers or not 0 < answer.id <= self._number:
            raise AdapterError(
                f"the adapter answered command {answer.id}, which "
                + ("it has already answered" if answer.id in self._answers else "was never sent"),
                expected="one answer to each command",
                actual=self.spoken[-1].text,
            )
        self._answers[answer.id] = answer

    def _fail(self, problem: AdapterError) -> None:
        with self._changed:
            self._problem = self._problem or problem
            self._changed.notify_all()

    def reset(self) -> None:
        """Begin again in the same process, with the command for it. What it wrote stays in the hands of those
        who have it. Raises ``AdapterError``."""
        answer = self._answer_to(self._send(protocol.RESET, {}), RESET_WITHIN_S, protocol.RESET)
        if answer.error is not None:
            raise self._with_stderr("the adapter cannot begin again", expected="ok", actual=str(answer.error))
        with self._changed:
            self._answers = {}
            self.events, self.event_times, self.spoken = [], [], []
            self._read = 0
            self.is_reused = True

    # -- waiting -----------------------------------------------------------------------------

    def hello(self) -> AdapterHello:
        """Its first line. Raises ``AdapterError``."""
        self._await(lambda: self._hello is not None, HELLO_WITHIN_S, "hello")
        assert self._hello is not None
        return self._hello

    def send_command(self, command: str, *, within: float = 0.0, **fields: Any) -> AdapterAnswer:
        """One command and its answer, which may be an error. ``within``: the command's own time-out, in
        seconds. Raises ``AdapterError``."""
        return self._answer_to(self._send(command, fields), within + ANSWER_WITHIN_S, command)

    def _send(self, command: str, fields: Mapping[str, Any]) -> int:
        """The number of the command."""
        self._number += 1
        number = self._number
        line = protocol.encode_command(number, command, fields)
        with self._changed:
            self.spoken.append(AdapterLine(time.time_ns(), _shorten(line), sent=True))
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            pass  # it is gone: waiting for the answer says so, with its last words
        return number

    def _answer_to(self, number: int, within: float, command: str) -> AdapterAnswer:
        self._await(lambda: number in self._answers, within, f"an answer to {command}")
        return self._answers[number]

    def wait_until(self, condition: Callable[[], bool], within: float) -> bool:
        """Whether ``condition()`` came true in time; it is asked again after every line. Raises as
        ``send_command``."""
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._is_over or self._problem is not None, within)
            if not condition():
                self._raise_if_ended("the adapter to go on")
            return condition()

    def _await(self, condition: Callable[[], bool], within: float, expected: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._is_over or self._problem is not None, within)
            if condition():
                return
            self._raise_if_ended(expected)
            self._problem = self._with_stderr(
                f"the adapter does not answer: no {expected.removeprefix('an ')}",
                expected=f"{expected} within {within:g} s",
                actual=f"nothing within {within:g} s",
            )
            raise self._problem

    def _raise_if_ended(self, expected: str) -> None:
        if self._problem is not None:
            raise self._with_stderr(
                self._problem.message, expected=self._problem.expected, actual=self._problem.actual
            )
        if self._is_over:
            assert self._process is not None
            self._changed.release()  # the reader of stderr needs no lock, others may
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(1.0)
                self._threads[1].join(1.0)
            finally:
                self._changed.acquire()
            raise self._with_stderr(
                "the adapter ended", expected=expected, actual=_exit_description(self._process)
            )

    def _with_stderr(self, message: str, *, expected: str, actual: str) -> AdapterError:
        stderr = self.stderr.strip()
        more = f"\nstderr:\n{stderr}" if stderr else "; nothing on stderr"
        return AdapterError(message, expected=expected, actual=f"{actual}{more}")


class _BoundedOutput:
    """The beginning and the end of a stream that may have no end."""

    def __init__(self) -> None:
        self._first = b""
        self._last = b""
        self._left_out = 0

    def read(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(pipe.fileno(), READ_BYTES):
                room = MAX_STDERR_BYTES - len(self._first)
                self._first += data[:room]
                last = self._last + data[room:]
                self._left_out += max(0, len(last) - MAX_STDERR_BYTES)
                self._last = last[-MAX_STDERR_BYTES:]

    @property
    def text(self) -> str:
        gap = f"\n... {self._left_out} bytes left out ...\n".encode() if self._left_out else b""
        return (self._first + gap + self._last).decode("utf-8", "replace")


def _exit_description(process: subprocess.Popen[bytes]) -> str:
    code = process.poll()
    if code is None:
        return "its stdout ended and it runs on"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _output_limit_error(rest: bytes, read: int) -> AdapterError:
    limit = f"at most {MAX_LINE_BYTES} bytes on a line and {MAX_OUTPUT_BYTES} in all"
    line = f", {len(rest)} of them without a line end" if len(rest) > MAX_LINE_BYTES else ""
    return AdapterError(
        "the adapter floods its stdout", expected=limit, actual=f"{read} bytes{line}: {_shorten(rest[:200])}"
    )


def _shorten(line: bytes) -> str:
    text = line.decode("utf-8", "backslashreplace").strip()
    return text if len(text) <= 400 else f"{text[:400]}... ({len(line)} bytes)"
