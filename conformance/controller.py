"""The controller's side of a run: events as checks end; at the end the sweep, the last probe, the result."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from conformance.catalogue import Catalogue
from conformance.outcomes import CheckEnded
from conformance.prepare import Prepared
from conformance.run import Finish, conclude, suite_of
from conformance.sweep import sweep
from conformance.target import AccessRefused, TargetUnreachable, probe
from conformance.verdicts import (
    CheckFinished,
    CheckResult,
    CheckStarted,
    Event,
    RunFinished,
    RunResult,
    RunStarted,
)

PROPERTY = "plumbline"


class Controller:
    """A plugin of the process that the user started; xdist workers have none."""

    def __init__(self, config: pytest.Config, prepared: Prepared, handover: str, *, complete: bool) -> None:
        """``complete``: nothing may be deselected, so a check without a result is an error."""
        self._config = config
        self._prepared = prepared
        self._handover = handover
        self._titles = {check.id: check.title for check in prepared.checks}
        self._results: dict[str, CheckResult] = {}
        self._crashed: list[str] = []
        self._complete = complete
        self._started = datetime.datetime.now(datetime.UTC)
        self._began = time.monotonic()
        self._workers = 1
        self._announced = False
        self.result: RunResult | None = None

    # -- workers -------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[PROPERTY] = self._handover
        self._workers = max(self._workers, len(self._config.getoption("tx", default=[]) or []))

    # -- events --------------------------------------------------------------------------------

    def _emit(self, event: Event) -> None:
        self._config.hook.pytest_plumbline_event(event=event)

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        # Announced as soon as the number of checks is known: by now without xdist, by selection with it.
        self._announce(len(session.items) or len(self._prepared.checks))

    def _announce(self, checks: int) -> None:
        if not self._announced:
            self._announced = True
            strict = self._prepared.wanted.strict
            self._emit(RunStarted(suite_of(), self._prepared.access.target, checks, self._workers, strict))

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        identifier = location[2].partition(": ")[0]
        if identifier in self._titles:
            self._emit(CheckStarted(identifier, self._titles[identifier]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY and report.when == "call":
                result = msgspec.json.decode(str(value), type=CheckResult)
                self._results[result.id] = result
                self._emit(CheckFinished(result))
                return
        if report.failed and "conformance/" in report.nodeid:
            self._crashed.append(f"{report.nodeid} ended in an error of Plumbline: {report.longrepr}"[:500])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._crashed.append(f"{report.nodeid} could not be read: {report.longrepr}"[:500])

    # -- the end -------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        yield
        if exitstatus == pytest.ExitCode.USAGE_ERROR or self.result is not None:
            return
        interrupted = exitstatus == pytest.ExitCode.INTERRUPTED and not self._crashed
        lost, notes = self._last_look()
        missing = [check.id for check in self._prepared.checks if check.id not in self._results]
        if self._complete and missing and not interrupted:
            self._crashed.append(f"{len(missing)} checks gave no result: {', '.join(missing[:5])} ...")
        finish = Finish(
            suite=suite_of(),
            target=self._prepared.access.target,
            started=self._started,
            duration_s=time.monotonic() - self._began,
            strict=self._prepared.wanted.strict,
            waivers=self._prepared.waivers,
            lost=lost,
            notes=tuple(notes),
            errors=tuple(self._crashed),
            interrupted=interrupted,
        )
        order = {check.id: number for number, check in enumerate(self._prepared.checks)}
        results = sorted(self._results.values(), key=lambda result: order.get(result.id, len(order)))
        self.result = conclude(results, Catalogue.load(), finish)
        self._emit(RunFinished(self.result))
        if not interrupted:
            session.exitstatus = self.result.summary.exit_code

    def _last_look(self) -> tuple[str, list[str]]:
        """Whether the target is still there, and what is wrong with what was left on it."""
        access = self._prepared.access
        try:
            info, _ = probe(access.url)
        except (TargetUnreachable, AccessRefused) as error:
            return str(error), []
        if info.get("server_id") != access.info.get("server_id"):
            return "another server process answers at its address: it was restarted during the run", []
        try:
            sweep(access)
        except CheckEnded as error:
            return "", [f"streams with the prefix {access.prefix} may be left on the target: {error.message}"]
        return "", []

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.result is None:
            return
        summary = self.result.summary
        terminalreporter.section("Plumbline")
        terminalreporter.write_line(
            f"{summary.verdict}: {summary.claimed} requirements claimed, "
            f"{summary.tested} tested, {summary.passed} passed"
        )
        for reason in summary.reasons:
            terminalreporter.write_line(f"  {reason}")
