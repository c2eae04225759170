"""Runs the packaged suite through pytest and passes verdict events to listeners."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from msgspec import Struct

from plumbline.conformance.packaged import HERE, is_packaged
from plumbline.conformance.runner.events import Emitter, EventListener
from plumbline.conformance.runner.fork_server import forked_workers
from plumbline.conformance.runner.plugin import CONTROLLER, PREPARED, PreparedPlugin
from plumbline.conformance.runner.prepare import PreparedRun
from plumbline.conformance.runner.schedule import DISTRIBUTION
from plumbline.conformance.runner.time_limit import TimeLimit
from plumbline.verdicts import Event, ExitCode, RunFinished, RunResult

__all__ = ["EventListener", "Finished", "default_workers", "run_suite"]

CONFIGURATION = Path(__file__).with_name("pytest.ini")
# Plugins of pytest without a use for checks: they look at every file, or do something for every check.
NOT_NEEDED = (
    "doctest",
    "legacypath",
    "logging",
    "pastebin",
    "setuponly",
    "setupplan",
    "stepwise",
    "tmpdir",
    "unittest",
)
FEW_FILES = 50
CHECKS_PER_WORKER = 20  # fewer are run sooner than a process is started
# Most checks wait, so more workers than cores are right: for what the protocol times, and for the network.
# All measured on two cores, with servers on loopback and behind 50 ms.
WORKERS_PER_CORE = 6
WAIT_S = 0.1  # of a check on the average, where the network takes no time
ROUND_TRIPS = 12  # of a check on the average
MAX_WORKERS = 20


class Finished(Struct, frozen=True):
    """The end of ``run_suite``: its exit code, the result if the run got that far, and what went wrong
    beside the checks, in sentences."""

    exit_code: ExitCode
    result: RunResult | None
    problems: tuple[str, ...] = ()


class _Listener:
    """Hands the events to the consumers, and what was prepared to the plugin."""

    def __init__(self, given: PreparedPlugin, consumers: Iterable[EventListener]) -> None:
        self._listener = given
        self._emitter = Emitter(consumers)
        self.result: RunResult | None = None
        self.problems = self._emitter.problems

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.register(self._listener, PREPARED)

    def pytest_plumbline_event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self.result = event.result
        self._emitter.emit(event)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        controller = config.pluginmanager.get_plugin(CONTROLLER)
        if controller is not None and controller.problem:
            self.problems.append(controller.problem)

    def pytest_internalerror(self) -> bool:
        return True  # pytest would print its traceback; the result says it in a sentence


def default_workers(checks: int, rtt_s: float = 0.0) -> int:
    """How many processes run ``checks`` checks against a server so far away; 0 is this one alone."""
    waiting = 1 + ROUND_TRIPS * rtt_s / WAIT_S
    wanted = int(WORKERS_PER_CORE * (os.cpu_count() or 1) * waiting)
    workers = min(MAX_WORKERS, wanted, checks // CHECKS_PER_WORKER)
    return workers if workers > 1 else 0


def run_suite(
    prepared: PreparedRun,
    consumers: Iterable[EventListener],
    *,
    workers: int | None = None,
    pytest_args: Sequence[str] = (),
    limit: TimeLimit | None = None,
) -> Finished:
    """Run the prepared checks. ``pytest_args`` go to pytest as they are; with any, its plugins load too.

    ``limit``: the run ends within it, and what was not run is inconclusive.
    """
    plugin = PreparedPlugin(prepared, complete=not pytest_args, limit=limit)
    listener = _Listener(plugin, consumers)
    if workers is None:
        workers = default_workers(len(prepared.checks), prepared.run.target.target.rtt_s)
    try:
        may_fork = workers and not pytest_args  # the user's own plugins may start threads, or what has some
        with _own_options_only(), forked_workers() if may_fork else nullcontext("") as forked:
            code = pytest.main(_arguments(prepared, workers, forked, pytest_args), plugins=[listener])
    except KeyboardInterrupt:
        return Finished(ExitCode.INTERRUPTED, listener.result)
    return _finished(code, listener)


@contextmanager
def _own_options_only() -> Iterator[None]:
    """Without ``PYTEST_ADDOPTS``, which is for the user's own tests and may name what is not loaded here."""
    kept = os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        yield
    finally:
        if kept is not None:
            os.environ["PYTEST_ADDOPTS"] = kept


def _finished(code: int, listener: _Listener) -> Finished:
    problems = tuple(listener.problems)
    if listener.result is not None:
        verdict = ExitCode(listener.result.summary.exit_code)
        if code == pytest.ExitCode.TESTS_FAILED and verdict is ExitCode.CONFORMANT:
            verdict = ExitCode.NOT_CONFORMANT  # tests of the user's, beside the checks
        return Finished(ExitCode.USAGE if problems else verdict, listener.result, problems)
    if problems or code == pytest.ExitCode.USAGE_ERROR:
        return Finished(ExitCode.USAGE, None, problems or ("pytest rejects the arguments after --",))
    if code == pytest.ExitCode.INTERRUPTED:
        return Finished(ExitCode.INTERRUPTED, None, ("interrupted",))
    if code == pytest.ExitCode.OK:
        return Finished(ExitCode.USAGE, None, ("the arguments after -- made pytest run no check",))
    return Finished(ExitCode.HARNESS_ERROR, None, (f"pytest ended with code {code} and without a result",))


def _arguments(prepared: PreparedRun, workers: int, forked: str, extra: Sequence[str]) -> list[str]:
    options = prepared.run.wanted
    own = [str(path) for path in options.traces]
    packaged = [] if own and not options.select else _packaged(prepared, extra)
    return [
        *([] if extra else ["--noconftest"]),  # a trace is data: its folder is not code of this run
        f"--config-file={CONFIGURATION}",
        f"--rootdir={Path.cwd() if extra else HERE.parent}",
        "-pno:cacheprovider",
        "-pno:terminal",
        "-pno:unraisableexception",  # which collects all garbage twice at the end of every process
        *([] if extra else (f"-pno:{name}" for name in NOT_NEEDED)),
        "--capture=no",  # the reports write to the terminal themselves
        *_plugins(users=bool(extra)),
        f"--plumbline-target={prepared.run.target.url}",
        *_parallel(workers, forked),
        *extra,
        *packaged,
        *own,
    ]


def _parallel(workers: int, forked: str) -> list[str]:
    """``forked``: how xdist starts a worker that is a copy of this process; empty for its own way."""
    if not workers:
        return []
    started = [f"--tx={forked}"] * workers if forked else [f"--numprocesses={workers}"]
    return [*started, f"--dist={DISTRIBUTION}"]


def _packaged(prepared: PreparedRun, extra: Sequence[str]) -> list[str]:
    """The files of a few selected checks; or the folders of many, in which pytest looks at every file."""
    if extra:
        return [str(HERE)]
    wheres = (HERE.parent / check.where.rpartition(":")[0] for check in prepared.checks)
    files = dict.fromkeys(path for path in wheres if is_packaged(path))
    if len(files) > FEW_FILES:
        files = dict.fromkeys(HERE.joinpath(*path.relative_to(HERE).parts[:2]) for path in files)
    return [str(path) for path in files]


def _plugins(*, users: bool) -> list[str]:
    """Ours and xdist alone: so the suite starts quicker and is the same everywhere. Or all that is installed.

    Where all that is installed loads, naming ours again would be an error.
    """
    ours = "-pplumbline.pytest_plugin"
    if not users:
        return ["--disable-plugin-autoload", "-pxdist", ours]
    return [] if entry_points(group="pytest11", name="plumbline") else [ours]
