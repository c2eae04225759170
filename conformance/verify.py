"""``plumbline verify`` without its flags: the packaged suite through pytest, events to whoever listens."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

import pytest
from msgspec import Struct

from conformance.plugin import PREPARED, PreparedPlugin
from conformance.prepare import Prepared
from conformance.suite import HERE
from conformance.verdicts import Event, ExitCode, RunFinished, RunResult

FEW_CHECKS = 6  # not worth the start of a second process
INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended
# Most checks wait for what the protocol times, so more workers than cores are right; measured on two cores.
WORKERS_PER_CORE = 3
MOST_WORKERS = 12


class Consumer(Protocol):
    """Whoever wants the verdict events of a run."""

    def consume(self, event: Event) -> None: ...


class Finished(Struct, frozen=True):
    """The end of ``run_suite``: its exit code, and the result if the run got that far."""

    exit_code: int
    result: RunResult | None


class _Listener:
    """Hands the events to the consumers, and what was prepared to the plugin."""

    def __init__(self, prepared: Prepared, consumers: Iterable[Consumer]) -> None:
        self._prepared = prepared
        self._consumers = list(consumers)
        self.result: RunResult | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(PreparedPlugin(self._prepared), PREPARED)

    def pytest_plumbline_event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self.result = event.result
        for consumer in self._consumers:
            consumer.consume(event)


def default_workers(checks: int) -> int:
    """How many processes run ``checks`` checks; 0 is this one alone."""
    if checks <= FEW_CHECKS:
        return 0
    return min(MOST_WORKERS, WORKERS_PER_CORE * (os.cpu_count() or 1), checks)


def run_suite(
    prepared: Prepared,
    consumers: Iterable[Consumer],
    *,
    workers: int | None = None,
    pytest_args: Sequence[str] = (),
) -> Finished:
    """Run the prepared checks. ``pytest_args`` go to pytest as they are; with any, its plugins load too."""
    listener = _Listener(prepared, consumers)
    count = default_workers(len(prepared.checks)) if workers is None else workers
    with _plugins_autoload(enabled=bool(pytest_args)), _terminated_as_interrupted():
        code = pytest.main(_arguments(prepared, count, pytest_args), plugins=[listener])
    if code == pytest.ExitCode.INTERRUPTED and (
        listener.result is None or "interrupted" in _reasons(listener.result)
    ):
        return Finished(INTERRUPTED, listener.result)
    if listener.result is None:
        return Finished(int(code) if code in list(ExitCode) and code else ExitCode.HARNESS_ERROR, None)
    return Finished(listener.result.summary.exit_code, listener.result)


def _reasons(result: RunResult) -> str:
    return " ".join(result.summary.reasons)


def _arguments(prepared: Prepared, workers: int, extra: Sequence[str]) -> list[str]:
    wanted = prepared.wanted
    own = [str(path) for path in wanted.traces]
    packaged = [] if own and not wanted.select else [str(HERE)]
    repeated = [
        *(f"--plumbline-select={pattern}" for pattern in wanted.select),
        *(f"--plumbline-trace={path}" for path in own),
        *(["--plumbline-strict"] if wanted.strict else []),
    ]
    parallel = [f"--numprocesses={workers}", "--dist=worksteal"] if workers else []
    return [
        f"--config-file={HERE / 'pytest.ini'}",
        f"--rootdir={HERE.parent}",
        "-pno:cacheprovider",
        "-pno:terminal",
        "--capture=no",  # the reports write to the terminal themselves
        *([] if extra else ["-pxdist", "-pconformance.plugin"]),
        f"--target={prepared.access.url}",
        *repeated,
        *parallel,
        *extra,
        *packaged,
        *own,
    ]


@contextmanager
def _plugins_autoload(*, enabled: bool) -> Iterator[None]:
    """Without plugins of the user's environment the suite starts quicker and is the same everywhere."""
    name = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
    before = os.environ.get(name)
    if not enabled:
        os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM cleans up as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: the caller's business then
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
