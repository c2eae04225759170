"""Runs mutants: each in a process of its own, forked from one that has loaded everything.

A mutant of a function replaces its code in the forked process. A mutant of a statement of a module or class,
or of a function that runs when modules are imported, is imported in a process that has imported no core yet.
"""

from __future__ import annotations

import gc
import os
import resource
import selectors
import signal
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NoReturn

import msgspec
from msgspec import Struct

from plumbline.conformance.check import Check
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.verdicts import Outcome
from tests.adequacy.mutants import Candidate
from tests.adequacy.reach import Reach
from tests.adequacy.results import Killed, Result, Status
from tests.adequacy.sources import PACKAGE
from tests.virtual.target import VirtualTarget, warm_up

START_S = 3.0  # of the processor, to start a broker with a mutant
CHECK_S = 2.0  # and for a check, beyond what it takes ordinarily,
CHECK_TIMES = 10  # so many times that
MEMORY = 3 * 1024**3  # bytes of address space: a mutant may collect without end
EVIDENCE = 300  # characters that are kept


class Verdict(Struct, frozen=True):
    """What a forked process reports at its end."""

    killer: str = ""
    how: str = ""
    evidence: str = ""
    noticed: tuple[str, ...] = ()
    checks: int = 0


class Job(Struct, frozen=True):
    """A mutant and the checks that are to run, in their order, of so many that reach it."""

    candidate: Candidate
    checks: tuple[Check, ...]
    reaching: int


class Selection:
    """Which checks run a mutant, those first that are likely to kill it."""

    def __init__(
        self,
        reach: Reach,
        checks: Iterable[Check],
        killers: Iterable[tuple[str, str, str]] = (),
        most: int | None = None,
    ) -> None:
        self._most = most
        self._reach = reach
        self._checks = {check.id: check for check in checks if check.id in reach.checks}
        self._of_function: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._of_module: dict[str, Counter[str]] = defaultdict(Counter)
        self._imported = {tuple(each) for each in reach.imported}
        for module, function, killer in killers:
            self.note(module, function, killer)

    def note(self, module: str, function: str, killer: str) -> None:
        """A check killed a mutant there."""
        self._of_function[module, function][killer] += 1
        self._of_module[module][killer] += 1

    def needs_import(self, candidate: Candidate) -> bool:
        """Whether the mutant does something when modules are imported."""
        return not candidate.qualname or (candidate.mutant.module, candidate.first_line) in self._imported

    def job(self, candidate: Candidate, users: Mapping[str, list[tuple[str, range]]]) -> Job:
        """``users``: name -> functions that use it, as module and lines."""
        mutant = candidate.mutant
        found = set(self._reach.reaching(mutant.module, candidate.lines))
        if self.needs_import(candidate):
            for name in candidate.names:
                for module, lines in users.get(name, ()):
                    found.update(self._reach.reaching(module, lines))
            found = found or set(self._reach.reaching_any(mutant.module))
        of_function = self._of_function[mutant.module, mutant.function]
        of_module = self._of_module[mutant.module]
        own = set(self._reach.running(mutant.module, candidate.lines))
        order = sorted(
            found,
            key=lambda name: (
                -of_function[name],
                name not in own,
                -of_module[name],
                self._reach.checks[name].seconds,
            ),
        )
        known = [self._checks[name] for name in order if name in self._checks]
        return Job(candidate, tuple(known[: self._most]), len(known))


_catalogue = cache(Catalogue.load)

# In the forked process


class _Mutated(MetaPathFinder, Loader):
    """Imports one module with other code."""

    def __init__(self, name: str, code: CodeType) -> None:
        self._name = name
        self._code = code

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def functions_by_place() -> dict[tuple[str, int], list[FunctionType]]:
    """Every function of the broker that there is, by module and first line."""
    gc.unfreeze()  # what is frozen is not listed
    found: dict[tuple[str, int], list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and (each.__module__ or "").startswith(PACKAGE):
            found[each.__module__.removeprefix(f"{PACKAGE}."), each.__code__.co_firstlineno].append(each)
    return found


def _replace_code(candidate: Candidate, functions: Mapping[tuple[str, int], list[FunctionType]]) -> None:
    """Raises ``LookupError`` if nothing can be replaced."""
    new = candidate.function_code()
    places = [
        function
        for function in functions.get((candidate.mutant.module, candidate.first_line), ())
        if function.__code__.co_qualname == candidate.qualname
    ]
    if not places:
        raise LookupError(candidate.qualname)
    for function in places:
        function.__code__ = new


def _limit_cpu(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)


def judge(job: Job, reach: Reach, protocol: str, started: Callable[[int], None]) -> Verdict:
    """Run the checks until one kills what is in this process now. ``started`` hears the number of each."""
    catalogue = _catalogue()
    target = VirtualTarget(protocol)
    noticed: list[str] = []
    with target.installed():
        _limit_cpu(START_S)
        try:
            access = target.access
        except Exception as error:
            return Verdict("", Killed.NO_START, _shortened(f"{type(error).__name__}: {error}"))
        for number, check in enumerate(job.checks, 1):
            started(number)
            _limit_cpu(CHECK_S + CHECK_TIMES * reach.checks[check.id].seconds)
            result = run_check(check, access, catalogue)
            how = Killed.CRASH if target.world.crash else Killed.FAILED
            if target.world.crash or result.outcome is Outcome.FAILED:
                evidence = target.world.crash.strip().rpartition("\n")[2] or result.message
                return Verdict(check.id, how, _shortened(evidence), tuple(noticed), number)
            if result.outcome is not Outcome.PASSED:
                noticed.append(f"{check.id}: {result.outcome}: {_shortened(result.message)}")
    return Verdict(noticed=tuple(noticed[:3]), checks=len(job.checks))


def _shortened(text: str) -> str:
    return text[:EVIDENCE]


# In the process that forks


def prepare() -> None:
    """Read once what every forked process needs."""
    _catalogue()
    warm_up()


def _fork() -> int:
    """As ``os.fork``. Ctrl-C waits until it is over: what runs during a fork swallows exceptions. The
    new process ends silently by Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def in_other_process(
    action: Callable[[Callable[[], None]], object], folder: Path, done: Callable[[], None]
) -> None:
    """``action`` in a forked process, so that this one stays as it is. For every step it calls what it is
    given, and ``done`` is called here. ``folder`` is made before. Raises ``MutantError``."""
    folder.mkdir(parents=True, exist_ok=True)
    reader, writer = os.pipe()
    pid = _fork()
    if not pid:
        status = 1
        try:
            action(lambda: _write(writer, b"."))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    try:
        while data := os.read(reader, 4096):
            for _ in data:
                done()
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(reader)
        _, status = os.waitpid(pid, 0)
    if status:
        raise MutantError("a forked process failed")


class Runner:
    """Forks. ``protocol`` and ``reach`` are those of one core."""

    def __init__(self, protocol: str, reach: Reach, fingerprint: str, jobs: int) -> None:
        self._protocol = protocol
        self._reach = reach
        self._fingerprint = fingerprint
        self._jobs = jobs
        self._functions: Mapping[tuple[str, int], list[FunctionType]] | None = None
        prepare()

    def use_imported(self) -> None:
        """From now on mutants replace functions of what this process has imported."""
        self._functions = functions_by_place()
        gc.collect()
        gc.freeze()  # so that the memory of forked processes stays shared

    def run(self, jobs: Iterator[Job]) -> Iterator[Result]:
        """Their results, as they come."""
        selector = selectors.DefaultSelector()
        running: dict[int, _Child] = {}
        is_exhausted = False
        try:
            while running or not is_exhausted:
                while not is_exhausted and len(running) < self._jobs:
                    job = next(jobs, None)
                    if job is None:
                        is_exhausted = True
                    elif not job.checks:
                        yield self._result(job, Status.UNREACHED, Verdict(), 0.0)
                    else:
                        child = self._fork(job)
                        running[child.reader] = child
                        selector.register(child.reader, selectors.EVENT_READ)
                for key, _ in selector.select() if running else ():
                    child = running[key.fd]
                    if not child.read():
                        selector.unregister(key.fd)  # before it is closed: siblings have copies of it
                        del running[key.fd]
                        child.finish()
                        verdict = child.verdict()
                        status = Status.KILLED if verdict.how else Status.SURVIVED
                        yield self._result(child.job, status, verdict, child.seconds)
        finally:
            for child in running.values():
                child.kill()
            selector.close()

    def _result(self, job: Job, status: Status, verdict: Verdict, seconds: float) -> Result:
        mutant = job.candidate.mutant
        return Result(
            mutant.id,
            self._fingerprint,
            status,
            mutant.module,
            mutant.function,
            verdict.killer,
            verdict.how,
            verdict.evidence,
            verdict.noticed,
            verdict.checks,
            job.reaching,
            round(seconds, 4),
        )

    def _fork(self, job: Job) -> _Child:
        reader, writer = os.pipe()
        pid = _fork()
        if pid:
            os.close(writer)
            return _Child(job, pid, reader)
        try:
            os.close(reader)
            self._be_child(job, writer)
        finally:
            os._exit(1)

    def _be_child(self, job: Job, writer: int) -> NoReturn:
        for number in (signal.SIGTERM, signal.SIGPROF):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        with suppress(ValueError):  # macOS has no such limit
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
        _limit_cpu(START_S)
        gc.disable()  # the process lives for seconds
        status = 0
        try:
            if self._functions is None:
                candidate = job.candidate
                name = f"{PACKAGE}.{candidate.mutant.module}"
                sys.meta_path.insert(0, _Mutated(name, candidate.module_code()))
            else:
                _replace_code(job.candidate, self._functions)
            verdict = judge(job, self._reach, self._protocol, lambda number: _write(writer, b"%d\n" % number))
            _write(writer, msgspec.json.encode(verdict) + b"\n")
        except BaseException:
            _write(writer, msgspec.json.encode("".join(traceback.format_exc())) + b"\n")
            status = 1
        os._exit(status)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class MutantError(Exception):
    """A forked process ended with an exception of ours. The text is its traceback."""


class _Child:
    def __init__(self, job: Job, pid: int, reader: int) -> None:
        self.job = job
        self.reader = reader
        self.seconds = 0.0
        self._pid = pid
        self._received = b""
        self._status = 0

    def read(self) -> bool:
        """Take what has come; False at the end."""
        data = os.read(self.reader, 65536)
        self._received += data
        return bool(data)

    def finish(self) -> None:
        """Wait until it has ended."""
        os.close(self.reader)
        _, self._status, used = os.wait4(self._pid, 0)
        self.seconds = used.ru_utime + used.ru_stime

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self.reader)

    def verdict(self) -> Verdict:
        """Raises ``MutantError``."""
        lines = self._received.splitlines()
        last = lines[-1] if lines else b""
        if os.WIFSIGNALED(self._status):
            number = int(last) if last.isdigit() else 0
            check = self.job.checks[number - 1].id if number else ""
            ended = signal.Signals(os.WTERMSIG(self._status)).name
            return Verdict(check, Killed.TIMEOUT, f"ended by {ended}", (), number)
        if not last.startswith(b"{"):
            text = msgspec.json.decode(last) if last.startswith(b'"') else self._received.decode()
            raise MutantError(f"{self.job.candidate.mutant}\n{text}")
        return msgspec.json.decode(last, type=Verdict)
