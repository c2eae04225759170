"""Checks as pytest items: traces and marked functions, found in files, run by the process's ``Judge``.

``runner.plugin`` registers ``CheckCollector`` once there is a target. Packaged checks are collected from
their two folders, whatever the user's own configuration says of Python files; a user's traces and marked
functions are collected wherever pytest looks. The result of a check travels on the report of its call.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import msgspec
import pytest

from plumbline.conformance.check import Check, check_of
from plumbline.conformance.packaged import CHECKS, TRACES, is_packaged, resolved
from plumbline.conformance.requirements.catalogue import Catalogue, Requirement
from plumbline.conformance.runner.engine import strongest_level
from plumbline.conformance.runner.judge import JUDGE
from plumbline.conformance.runner.prepare import require_known
from plumbline.conformance.suite import checks_in, import_module, matches
from plumbline.conformance.trace.check import load_checks, load_headers, shown_path
from plumbline.conformance.trace.parser import TraceSyntaxError
from plumbline.errors import PlumblineError
from plumbline.verdicts import CheckResult, Level, Outcome
from plumbline.visible import indented_line, one_line

# Attributes of reports, which travel from workers to the controller.
RESULT = "plumbline_result"  # the result of the check, as JSON
IS_CHECK = "plumbline_is_check"  # whatever it says, it says of a check, or of a packaged file of checks
WIRE_LINES = 12


class CheckCollector:
    """The hooks that find checks and report on them. ``traces`` need not be read again; they are by id."""

    def __init__(
        self, catalogue: Catalogue, traces: Mapping[str, Check], protocol: str, select: Sequence[str]
    ) -> None:
        self.catalogue = catalogue
        self.traces: dict[str, list[Check]] = {}  # by file
        for check in traces.values():
            self.traces.setdefault(check.where.rpartition(":")[0], []).append(check)
        self._protocol = protocol
        self._select = select

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """A user's ``norecursedirs`` must not lose checks in silence."""
        return False if is_packaged(collection_path) and collection_path.is_dir() else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """A trace is data: nothing in its folder is imported, unless arguments of pytest ask for it.

        pytest imports the ``__init__.py`` of a folder, as it does ``conftest.py``.
        """
        if parent.config.option.noconftest and not is_packaged(path):
            return pytest.Dir.from_parent(parent, path=path)
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        found = yield
        path = resolved(file_path)
        if path.is_relative_to(CHECKS) and file_path.match("test_*.py"):
            return [CheckModule.from_parent(parent, path=file_path, items=self)]
        if is_packaged(file_path) and not path.is_relative_to(TRACES):
            return []  # modules of ours, which `python_files = *.py` or --doctest-modules would collect
        if file_path.suffix == ".trace":
            if path.is_relative_to(TRACES) and self.traces and shown_path(file_path) not in self.traces:
                return []  # of another protocol
            return [*found, TraceFile.from_parent(parent, path=file_path, items=self)]
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector, obj: object) -> list[CheckItem] | None:
        """A marked function in a module of the user's."""
        check = check_of(obj) if isinstance(obj, FunctionType) else None
        return None if check is None else list(self.items([check], collector))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Tests of the user's keep their places."""
        ordered = iter(in_order(item for item in items if isinstance(item, CheckItem)))
        items[:] = [next(ordered) if isinstance(item, CheckItem) else item for item in items]

    def items(self, checks: Iterable[Check], parent: pytest.Collector) -> Iterator[CheckItem]:
        """One item for each of the checks; of packaged ones, for each of the protocol that is selected."""
        for check in checks:
            # That a pattern matches something somewhere was seen to in conformance.runner.prepare.
            packaged = is_packaged(parent.path)
            if packaged and (check.protocol != self._protocol or not self._is_selected(check)):
                continue
            try:
                require_known([check], self.catalogue)
            except PlumblineError as problem:
                raise parent.CollectError(str(problem)) from None
            yield CheckItem.from_parent(parent, name=check.id.rpartition("::")[2], check=check, items=self)

    def _is_selected(self, check: Check) -> bool:
        return not self._select or any(matches(check, pattern) for pattern in self._select)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, CheckFile) and is_packaged(collector.path):
            setattr(report, IS_CHECK, True)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if isinstance(item, CheckItem):
            setattr(report, IS_CHECK, True)
            if report.when == "call" and item.result is not None:
                setattr(report, RESULT, msgspec.json.encode(item.result).decode())
                if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
                    path, _, line = item.result.where.rpartition(":")
                    report.longrepr = (path, int(line), report.longrepr[2])
                item.result = None  # pytest keeps the items
        return report


def in_order(items: Iterable[CheckItem]) -> list[CheckItem]:
    """Those first that share what takes long, side by side; then what takes long; then all others; then those
    that run alone.

    Checks are begun in this order, so that no run ends with a long one, and none that runs alone waits for a
    long one while all others wait for it.
    """
    alone: list[CheckItem] = []
    groups: dict[str, list[CheckItem]] = {}
    long: list[CheckItem] = []
    others: list[CheckItem] = []
    for item in items:
        if item.check.alone and not item.check.group:
            alone.append(item)
        elif item.check.group:
            groups.setdefault(item.check.group, []).append(item)
        else:
            (long if item.check.is_long else others).append(item)
    return [*(item for group in groups.values() for item in group), *long, *others, *alone]


def is_check(subject: pytest.Item | pytest.TestReport | pytest.CollectReport) -> bool:
    """Whether an item is a check, or a report is of one."""
    return isinstance(subject, CheckItem) or hasattr(subject, IS_CHECK)


class CheckFile(pytest.File):
    """A file of checks."""

    def __init__(self, *, items: CheckCollector, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._items = items

    def checks(self) -> list[Check]:
        """The checks in the file."""
        raise NotImplementedError

    def collect(self) -> Iterator[pytest.Item]:
        return self._items.items(self.checks(), self)


class TraceFile(CheckFile):
    """A trace: one check, or one for each case of its table."""

    def checks(self) -> list[Check]:
        try:
            return self._items.traces.get(shown_path(self.path)) or self._load()
        except TraceSyntaxError as error:
            raise self.CollectError(str(error)) from None

    def _load(self) -> list[Check]:
        return (load_headers if is_packaged(self.path) else load_checks)(self.path)


class CheckModule(CheckFile):
    """A packaged module of check functions."""

    def checks(self) -> list[Check]:
        return checks_in(import_module(self.path))


class RedCheckError(Exception):
    """A check that turns the run red, for pytest; the result is the evidence."""

    def __init__(self, result: CheckResult) -> None:
        super().__init__(f"{result.outcome}: {one_line(result.message)}")
        self.result = result


class FailedCheckError(RedCheckError, AssertionError):
    """One that saw the target break a requirement: readers tell it from what was not decided."""


class CheckItem(pytest.Item):
    """One check as a pytest item. ``-k`` finds it by requirement and level too."""

    def __init__(self, *, check: Check, items: CheckCollector, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check = check
        self.result: CheckResult | None = None
        level = strongest_level(check, items.catalogue)
        self.add_marker(level.lower())
        self.user_properties.append(("level", level.value))
        for requirement in check.requirements:
            self.add_marker(pytest.mark.requirement(requirement))
            self.extra_keyword_matches.add(requirement)
            self.user_properties.append(("requirement", requirement))
        if self.config.pluginmanager.has_plugin("allure_pytest"):
            for mark in _allure_marks(level, [items.catalogue.by_id[name] for name in check.requirements]):
                self.add_marker(mark)

    def runtest(self) -> None:
        self.result = result = self.config.stash[JUDGE].judge(self.check)
        if result.red:
            raise FailedCheckError(result) if result.outcome is Outcome.FAILED else RedCheckError(result)
        if result.outcome is Outcome.UNSUPPORTED:
            pytest.skip(one_line(result.message))
        if result.outcome is not Outcome.PASSED:
            pytest.xfail(f"{result.outcome} ({result.level}): {one_line(result.waiver or result.message)}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, RedCheckError):
            return "\n".join(map(indented_line, _evidence(excinfo.value.result)))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        line = self.check.where.rpartition(":")[2]
        return self.path, int(line) - 1 if line.isdigit() else None, f"{self.check.id}: {self.check.title}"


def _allure_marks(level: Level, requirements: Sequence[Requirement]) -> Iterator[pytest.MarkDecorator]:
    """The marks that allure-pytest reads: behaviours by group and requirement, severity by level."""
    label, description = pytest.mark.allure_label, pytest.mark.allure_description
    yield label(_SEVERITIES[level], label_type="severity")
    yield description(
        "\n\n".join(f"{row.id} {row.level}: {row.statement} [{row.source}]" for row in requirements)
    )
    for row in requirements:
        yield label(row.group, label_type="feature")
        yield label(row.id, label_type="story")


_SEVERITIES = {Level.MUST: "critical", Level.SHOULD: "normal", Level.MAY: "minor"}


def _evidence(result: CheckResult) -> Iterator[str]:
    """What pytest shows of a red check: where, what, expected and actual, the end of the exchange."""
    yield f"{result.where}: {result.outcome}: {result.message}"
    yield f"{' '.join(result.requirements)}: {result.title} [{result.source}]"
    if result.expected:
        yield f"Expected: {result.expected}"
    if result.actual:
        yield f"Actual:   {result.actual}"
    for line in result.wire[-WIRE_LINES:]:
        yield f"  {line.at:8.3f}  {line.connection:>8} {line.direction} {line.text[:300]}"
