"""The pytest controller process: emits events as checks end; then sweeps, probes the target and builds the
result.

The process that the user started has one; xdist workers have none. What went wrong in Plumbline itself is
collected here, from wherever pytest tells of it, and decides the exit code.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from plumbline.bounds import SWEEP_S
from plumbline.conformance.claims import compare
from plumbline.conformance.outcomes import CheckEnded
from plumbline.conformance.runner.engine import not_run_result
from plumbline.conformance.runner.items import RESULT, is_check
from plumbline.conformance.runner.judge import (
    SHARED,
    lost_reason,
    remove_worker_context,
    shared_folder,
    write_worker_context,
)
from plumbline.conformance.runner.lifeline import Lifeline
from plumbline.conformance.runner.prepare import PreparedRun
from plumbline.conformance.runner.run import RunEnd, conclude, suite_of
from plumbline.conformance.runner.run_lock import RunLock
from plumbline.conformance.runner.schedule import DISTRIBUTION, Schedule
from plumbline.conformance.runner.sweep import sweep
from plumbline.conformance.runner.time_limit import SHORTEST_S, TimeLimit
from plumbline.conformance.sessions.journal import WireBudget
from plumbline.conformance.targets.unanswered import UnansweredApis, UnansweringServers
from plumbline.interpreter import safe_path_for_children
from plumbline.interrupts import (
    TimeIsUp,
    ended_after,
    kept_from_children,
    terminated_as_interrupted,
    uninterrupted,
)
from plumbline.verdicts import (
    CheckFinished,
    CheckResult,
    CheckStarted,
    Event,
    ExitCode,
    Outcome,
    RunFinished,
    RunResult,
    RunStarted,
)
from plumbline.visible import one_line

CRASHED = "???"  # `when` of the report that xdist makes up for a test in which its worker died
MESSAGE_LIMIT = 500


class Controller:
    """Registered by ``conformance.runner.plugin``.

    ``complete`` tells that nothing may be deselected, so a check without a result is an error. So that
    the run ends within ``limit``, its checks end before that as with Ctrl-C, and what was not run is
    inconclusive.
    ``problem`` is what the user did wrong, found only when the run had begun.
    """

    def __init__(
        self,
        config: pytest.Config,
        prepared: PreparedRun,
        *,
        complete: bool,
        limit: TimeLimit | None = None,
    ) -> None:
        self._config = config
        self._run = prepared.run
        self._target = prepared.run.target
        self._checks = prepared.checks
        self._complete = complete
        self._limit = limit
        self._titles = {check.id: check.title for check in prepared.checks}
        self._results: dict[str, CheckResult] = {}
        self._running: dict[str, str] = {}  # nodeid -> check
        self._running_when_lost: tuple[str, ...] = ()
        self._errors: list[str] = []
        self._unread: list[str] = []  # files of the user's
        self._deaths = 0
        self._foreign_test_failed = False
        self._interrupted = False
        self._time_limit = ""  # which one was reached, if so
        self._timer = contextlib.ExitStack()
        self._wires = WireBudget()
        self._started = datetime.datetime.now(datetime.UTC)
        self._started_at = time.monotonic()
        self._workers = 1
        self._starting: set[str] = set()  # workers that are still to read their context
        self._announced = False
        self._lifeline: Lifeline | None = None
        self._cleanup = contextlib.ExitStack()
        self._cleanup.enter_context(terminated_as_interrupted())
        config.add_cleanup(self._cleanup.close)
        self.result: RunResult | None = None
        self.problem = ""

    # -- workers -------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self) -> Iterator[None]:
        self._lifeline = Lifeline(shared_folder(self._run))
        self._cleanup.callback(self._lifeline.cut)
        with kept_from_children(), safe_path_for_children():  # xdist starts its workers here
            yield
        if self._limit is not None:  # only now: of a session that has not started pytest reports no end
            self._timer.enter_context(ended_after(self._limit.left_for_checks(time.monotonic())))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        if not self._starting:  # written again for a worker that takes the place of one that died
            write_worker_context(self._run)
        self._starting.add(node.gateway.id)
        node.workerinput[SHARED] = str(shared_folder(self._run))
        self._workers = max(self._workers, len(self._config.getoption("tx", default=[]) or []))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        self._has_started(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> Schedule | None:
        return Schedule(self._checks) if config.getoption("dist") == DISTRIBUTION else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._emit_run_started(len(ids))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        self._deaths += bool(error)
        self._has_started(node)

    def _has_started(self, node: Any) -> None:
        # The context has the login: a run that is killed later leaves none on the disk.
        self._starting.discard(node.gateway.id)
        if not self._starting:
            remove_worker_context(self._run)

    # -- events --------------------------------------------------------------------------------

    def _emit(self, event: Event) -> None:
        self._config.hook.pytest_plumbline_event(event=event)

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        # With xdist the workers are still to say what -k and -m left; without either, all is known.
        if session.items:
            self._emit_run_started(sum(is_check(item) for item in session.items))
        elif self._complete:
            self._emit_run_started(len(self._checks))

    def _emit_run_started(self, checks: int) -> None:
        if checks and not self._announced:
            self._announced = True
            self._emit(RunStarted(suite_of(), self._target.target, checks, self._workers))

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        identifier = location[2].partition(": ")[0]
        if identifier in self._titles:
            self._running[nodeid] = identifier
            self._emit(CheckStarted(identifier, self._titles[identifier]))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if encoded := getattr(report, RESULT, ""):
            self._record_result(msgspec.json.decode(encoded, type=CheckResult))
        elif report.failed and (report.when == CRASHED or is_check(report)):
            self._record_error(
                f"{report.nodeid} ended with an internal error of Plumbline: {_last_line(report.longrepr)}"
            )
        elif report.failed:
            self._foreign_test_failed = True

    def _record_result(self, result: CheckResult) -> None:
        self._results[result.id] = result = self._wires.within(result)
        self._emit(CheckFinished(result))
        if result.outcome is Outcome.INCONCLUSIVE and (lost := self._target_lost_reason()):
            self._running_when_lost = tuple(sorted({*self._running.values(), result.id}))
            pytest.exit(f"the target was lost: {lost}", returncode=ExitCode.TARGET_LOST)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and is_check(report):
            self._record_error(f"{report.nodeid} could not be read: {_last_line(report.longrepr)}")
        elif report.failed:
            self._unread.append(f"{report.nodeid}: {_last_line(report.longrepr)}")

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        place = excinfo.traceback[-1]
        self._record_error(f"{excinfo.typename}: {excinfo.value} ({place.path}:{place.lineno + 1})")

    def _record_error(self, text: str) -> None:
        if text not in self._errors:  # every worker tells of the same file
            self._errors.append(text[:MESSAGE_LIMIT])

    # -- the end -------------------------------------------------------------------------------

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Also called when the session ends itself, by ``pytest.exit`` or, in a subclass, by -x."""
        self._timer.close()
        self._interrupted = excinfo.type is KeyboardInterrupt
        if excinfo.type is TimeIsUp and self._limit is not None:
            self._time_limit = self._limit.sentence
        self._cleanup.enter_context(uninterrupted())
        if self._lifeline is not None:
            self._lifeline.cut()  # xdist would wait for the checks that run

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        self._timer.close()
        yield
        if exitstatus == pytest.ExitCode.USAGE_ERROR or self.result is not None:
            return
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not self._errors and not self._deaths:
            self.problem = "no check was selected: -k, -m and the arguments match no check"
            session.exitstatus = ExitCode.USAGE
            return
        if self._unread:
            self.problem = f"a file in the folder of the checks could not be read: {self._unread[0]}"
            if not self._results and not self._errors:
                return
        self.result = self._conclude()
        self._emit(RunFinished(self.result))
        if not self._interrupted:
            code = self.result.summary.exit_code
            session.exitstatus = code or (
                ExitCode.NOT_CONFORMANT if self._foreign_test_failed or self._unread else code
            )

    def _conclude(self) -> RunResult:
        lost, notes = self._final_probe()
        missing = [check for check in self._checks if check.id not in self._results]
        if self._deaths and not self._errors and not self._is_cut_off:
            self._record_error(f"{self._deaths} worker processes died")
        catalogue, mask = self._run.catalogue, self._target.mask
        if (lost or self._time_limit) and self._complete:
            why = "the target was lost" if lost else self._time_limit
            self._results |= {check.id: not_run_result(check, catalogue, why) for check in missing}
        elif self._complete and missing and not (self._interrupted or self._errors):
            some = ", ".join(check.id for check in missing[:5])
            self._record_error(f"{len(missing)} checks gave no result: {some} ...")
        claims = self._target.claims
        finish = RunEnd(
            suite=suite_of(),
            target=self._target.target,
            started=self._started,
            duration_s=time.monotonic() - self._started_at,
            strict=self._run.wanted.strict,
            waivers=self._run.waivers,
            lost=lost,
            notes=tuple(map(mask.text, notes)),
            errors=tuple(map(mask.text, self._errors)),
            interrupted=self._interrupted,
            time_limit=self._time_limit,
            claims=None if claims is None else compare(claims, self._target.announcement),
        )
        order = {check.id: number for number, check in enumerate(self._checks)}
        results = sorted(self._results.values(), key=lambda result: order.get(result.id, len(order)))
        return conclude(results, catalogue, finish)

    def _final_probe(self) -> tuple[str, list[str]]:
        """Whether the target is still there, and what is wrong with what was left on it."""
        access = self._target
        if lost := self._target_lost_reason() or access.absence_reason():
            during = ", ".join(self._running_when_lost)
            return f"{lost} Running then: {during}." if during else lost, []
        notes = UnansweredApis(access.shared).all_given_up()
        notes += UnansweringServers(access.shared).all_given_up()
        until = time.monotonic() + SWEEP_S
        if self._limit is not None:
            until = min(until, self._limit.deletion_ends_at)
        try:
            if self._is_cut_off:
                self._await_workers(until)
                # A request of a worker that was ended may still be on its way: look until nothing is left.
                while sweep(access, until):
                    pass
            sweep(access, until)
        except CheckEnded as error:
            if not access.running.program:  # a server that Plumbline started ends now, with all that is on it
                notes.append(
                    f"objects with the prefix {access.prefix} may be left on the target: {error.message}"
                )
        return "", notes

    def _await_workers(self, until: float) -> None:
        """Wait until no check runs: a worker ends a moment after its lifeline was cut, and creates objects on
        the target until then. One that does not end is not waited for to the end of the time."""
        left_s = max((until - time.monotonic()) / 2, SHORTEST_S)
        with (
            contextlib.suppress(TimeIsUp),
            ended_after(left_s),
            RunLock(shared_folder(self._run)).exclusive(),
        ):
            pass

    @property
    def _is_cut_off(self) -> bool:
        """Whether checks were ended while they ran."""
        return self._interrupted or bool(self._time_limit)

    def _target_lost_reason(self) -> str:
        return lost_reason(self._run)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.problem:
            terminalreporter.write_line(one_line(self.problem), red=True)
        if self.result is None:
            return
        summary = self.result.summary
        terminalreporter.section("Plumbline")
        requirements = "requirement" if summary.claimed == 1 else "requirements"
        terminalreporter.write_line(
            f"{summary.verdict}: {summary.claimed} {requirements} claimed, "
            f"{summary.tested} tested, {summary.passed} passed"
        )
        for reason in summary.reasons:
            terminalreporter.write_line(f"  {one_line(reason)}")


def _last_line(longrepr: object) -> str:
    """Of what pytest shows of an error, the line that says which it is."""
    return (str(longrepr).strip().splitlines() or [""])[-1].removeprefix("E   ")
