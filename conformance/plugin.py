# ruff: noqa: D103 -- the functions are pytest's hooks, and pytest documents them
"""The pytest plugin: ``pytest --pyargs conformance --target URL``. ``plumbline verify`` is a shell around it.

It collects traces and check functions, runs each through ``conformance.engine``, retries what was
inconclusive once alone, applies waivers, and says what became of it through ``pytest_plumbline_event``
(``conformance.controller``). xdist workers get the target, calibrated, from the controller.
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from conformance import hooks
from conformance.alone import Room
from conformance.catalogue import Catalogue
from conformance.check import Check
from conformance.controller import PROPERTY, Controller
from conformance.engine import run_check, strongest_level
from conformance.prepare import Prepared, UsageProblem, Wanted, prepare
from conformance.suite import CHECKS, TRACES, checks_in, import_module, matches
from conformance.target import TargetAccess, TargetUnreachable, Url
from conformance.trace.check import load_check
from conformance.verdicts import CheckResult, ExitCode, Outcome, Target, is_red
from conformance.waivers import Waiver, apply

PREPARED = "plumbline-prepared"  # the name under which `plumbline verify` registers what it prepared


class PreparedPlugin:
    """Carries what ``plumbline verify`` prepared, so that it is not prepared twice."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared


class Handover(Struct, frozen=True):
    """What a worker needs to reach the target that the controller has calibrated."""

    url: Url
    target: Target
    info: dict[str, Any]
    variants: dict[str, str]
    run: str
    waivers: tuple[Waiver, ...]
    room: str


class Judge:
    """One process's means of judging: target, catalogue, waivers, the room it shares with other processes."""

    def __init__(self, access: TargetAccess, room: Room, waivers: tuple[Waiver, ...]) -> None:
        self.access = access
        self._catalogue = Catalogue.load()
        self._waivers = waivers
        self._room = room

    def level_of(self, check: Check) -> str:
        return strongest_level(check, self._catalogue).value

    def judge(self, check: Check) -> CheckResult:
        """Run a check; once more, alone, if it was inconclusive; then apply the waivers."""
        with self._room.together():
            result = run_check(check, self.access, self._catalogue)
        if result.outcome is Outcome.INCONCLUSIVE:
            with self._room.alone():
                again = run_check(check, self.access, self._catalogue)
            result = msgspec.structs.replace(again, retried=True)
        today = datetime.datetime.now(datetime.UTC).date()
        return apply(self._waivers, result, self.access.target.version, today)


JUDGE = pytest.StashKey[Judge]()


# -- options and set-up ------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    # All but --target carry the name: the plugin is loaded wherever Plumbline is installed.
    group = parser.getgroup("plumbline", "conformance of a messaging server (Plumbline)")
    group.addoption("--target", metavar="URL", help="the server under test: nats://127.0.0.1:4222")
    group.addoption(
        "--plumbline-level", metavar="VERSION", help="protocol level to hold it to (default: what it reports)"
    )
    group.addoption(
        "--plumbline-variant",
        metavar="NAME=URL",
        action="append",
        default=[],
        help="the same server software with another configuration (see conformance/variants.toml)",
    )
    group.addoption(
        "--plumbline-select",
        metavar="PATTERN",
        action="append",
        default=[],
        help="only checks of these requirements, or with these ids: 'JS-PULL-*'",
    )
    group.addoption("--plumbline-waivers", metavar="FILE", type=Path, help="known failures (TOML)")
    group.addoption("--plumbline-strict", action="store_true", help="a failed SHOULD turns the run red too")
    group.addoption(
        "--plumbline-trace",
        metavar="FILE",
        action="append",
        default=[],
        type=Path,
        help="a trace of your own; give the file as an argument too",
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hooks)


def pytest_configure(config: pytest.Config) -> None:
    for name in ("must", "should", "may"):
        config.addinivalue_line("markers", f"{name}: checks of requirements of this level")
    config.addinivalue_line("markers", "requirement(id): a requirement that a check verifies")
    if hasattr(config, "workerinput"):
        if PROPERTY in config.workerinput:
            config.stash[JUDGE] = _worker_judge(config.workerinput)
    elif config.getoption("target") is not None:
        _configure_controller(config)


def _worker_judge(workerinput: dict[str, Any]) -> Judge:
    handover = msgspec.json.decode(workerinput[PROPERTY], type=Handover)
    worker = workerinput["workerid"].replace("gw", "w")
    access = TargetAccess(
        handover.url, handover.target, handover.info, handover.variants, handover.run, worker
    )
    return Judge(access, Room(Path(handover.room)), handover.waivers)


def _configure_controller(config: pytest.Config) -> None:
    folder = tempfile.TemporaryDirectory(prefix="plumbline-")
    config.add_cleanup(folder.cleanup)
    given: PreparedPlugin | None = config.pluginmanager.get_plugin(PREPARED)
    try:
        prepared = given.prepared if given else prepare(_wanted(config))
    except UsageProblem as problem:
        pytest.exit(str(problem), returncode=ExitCode.USAGE)
    except TargetUnreachable as problem:
        pytest.exit(str(problem), returncode=ExitCode.TARGET_LOST)
    access = prepared.access
    config.stash[JUDGE] = Judge(access, Room(Path(folder.name)), prepared.waivers)
    handover = Handover(
        access.url, access.target, access.info, access.variants, access.run, prepared.waivers, folder.name
    )
    config.pluginmanager.register(
        Controller(config, prepared, msgspec.json.encode(handover).decode(), complete=given is not None),
        "plumbline-controller",
    )


def _wanted(config: pytest.Config) -> Wanted:
    return Wanted(
        url=config.getoption("target"),
        level=config.getoption("plumbline_level"),
        variants=tuple(config.getoption("plumbline_variant")),
        select=tuple(config.getoption("plumbline_select")),
        waivers=config.getoption("plumbline_waivers"),
        traces=tuple(config.getoption("plumbline_trace")),
        strict=config.getoption("plumbline_strict"),
    )


# -- collection --------------------------------------------------------------------------------


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    own = [path.resolve() for path in parent.config.getoption("plumbline_trace")]
    if file_path.suffix == ".trace" and (file_path.is_relative_to(TRACES) or file_path in own):
        return TraceFile.from_parent(parent, path=file_path)
    return None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if module_path.parent == CHECKS:
        return CheckModule.from_parent(parent, path=module_path)
    return None


class CheckFile(pytest.File):
    """A file of checks; needs a target."""

    def checks(self) -> list[Check]:
        """The checks in the file."""
        raise NotImplementedError

    def collect(self) -> Iterator[pytest.Item]:
        if JUDGE not in self.config.stash:
            raise self.CollectError("these checks need a server: add --target nats://127.0.0.1:4222")
        patterns = self.config.getoption("plumbline_select")
        for check in self.checks():
            # That a pattern matches something somewhere was seen to in conformance.prepare.
            if not patterns or any(matches(check, pattern) for pattern in patterns):
                yield CheckItem.from_parent(self, name=check.id.rpartition("::")[2], check=check)


class TraceFile(CheckFile):
    """A trace: one check."""

    def checks(self) -> list[Check]:
        return [load_check(self.path)]


class CheckModule(CheckFile):
    """A module of check functions."""

    def checks(self) -> list[Check]:
        return checks_in(import_module(self.path))


# -- one check ---------------------------------------------------------------------------------


class Red(Exception):
    """A check that turns the run red, for pytest; the result is the evidence."""

    def __init__(self, result: CheckResult) -> None:
        super().__init__(f"{result.outcome}: {result.message}")
        self.result = result


class CheckItem(pytest.Item):
    """One check as a pytest item. ``-k`` finds it by requirement, group and level too."""

    def __init__(self, *, check: Check, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check = check
        self.add_marker(self.config.stash[JUDGE].level_of(check).lower())
        for requirement in check.requirements:
            self.add_marker(pytest.mark.requirement(requirement))
            self.extra_keyword_matches.add(requirement)

    def runtest(self) -> None:
        result = self.config.stash[JUDGE].judge(self.check)
        self.user_properties.append((PROPERTY, msgspec.json.encode(result).decode()))
        if is_red(result.outcome, result.level, strict=self.config.getoption("plumbline_strict")):
            raise Red(result)
        if result.outcome is Outcome.UNSUPPORTED:
            pytest.skip(result.message)
        if result.outcome is not Outcome.PASSED:
            pytest.xfail(f"{result.outcome} ({result.level}): {result.waiver or result.message}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, Red):
            return super().repr_failure(excinfo, style)
        result = excinfo.value.result
        wire = [
            f"  {line.at:8.3f}  {line.connection:>8} {line.direction} {line.text[:300]}"
            for line in result.wire[-12:]
        ]
        evidence = (
            [f"Expected: {result.expected}", f"Actual:   {result.actual}"]
            if result.expected
            else [result.actual]
        )
        return "\n".join(
            [
                f"{result.where}: {result.outcome}: {result.message}",
                f"{' '.join(result.requirements)}: {result.title} [{result.source}]",
                *evidence,
                *wire,
            ]
        )

    def reportinfo(self) -> tuple[Path, int | None, str]:
        line = self.check.where.rpartition(":")[2]
        return self.path, int(line) - 1 if line.isdigit() else None, f"{self.check.id}: {self.check.title}"
