# ruff: noqa: D103 -- the functions are pytest's hooks, and pytest documents them
"""The pytest plugin: ``pytest --pyargs conformance --target URL``. ``plumbline verify`` is a shell around it.

pytest loads this module wherever Plumbline is installed, so it costs nothing and does nothing until there
is a target: then ``conformance.items`` collects checks, and ``conformance.controller`` says what became of
them through the hook ``pytest_plumbline_event``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest

from conformance import hooks

if TYPE_CHECKING:
    from conformance.catalogue import Catalogue
    from conformance.check import Check
    from conformance.prepare import Prepared, Wanted

HERE = Path(__file__).parent
PREPARED = "plumbline-prepared"  # the name under which `plumbline verify` registers what it prepared
ITEMS = "plumbline-items"
CONTROLLER = "plumbline-controller"
SHARED = "plumbline"  # the field of an xdist worker's input: the folder that it shares with the controller
USAGE = 2  # conformance.verdicts.ExitCode.USAGE, which is not worth an import here
NO_TARGET = "the checks of Plumbline need a server: add --target nats://127.0.0.1:4222"


class PreparedPlugin:
    """Carries what ``plumbline verify`` prepared, so that it is not prepared twice.

    ``complete``: every check that was prepared must give a result.
    """

    def __init__(self, prepared: Prepared, *, complete: bool) -> None:
        self.prepared = prepared
        self.complete = complete


# -- options -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("plumbline", "conformance of a messaging server (Plumbline)")
    group.addoption(
        "--plumbline-target",
        metavar="URL",
        help="the server under test: nats://127.0.0.1:4222; with the packaged suite, --target does as well",
    )
    group.addoption(
        "--plumbline-level", metavar="VERSION", help="protocol level to hold it to (default: what it reports)"
    )
    group.addoption(
        "--plumbline-variant",
        metavar="NAME=URL",
        action="append",
        default=[],
        help="the same server software with another configuration (see `plumbline variants`)",
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


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """``--target`` is ours only where our suite is meant: other projects have options of that name."""
    target = re.search(r"(?m)^--target[=\n](nats:|amqp:)?", "\n".join(args))
    if target and (target[1] or any(_is_ours(arg, pyargs="--pyargs" in args) for arg in args)):
        group = parser.getgroup("plumbline")
        group.addoption("--target", dest="plumbline_target", metavar="URL", help="the server under test")


def _is_ours(arg: str, *, pyargs: bool) -> bool:
    """Whether an argument names packaged checks: ``--pyargs conformance``, or a path into that package."""
    name = arg.partition("::")[0]
    if pyargs and name.partition(".")[0] == HERE.name:
        return True
    return not name.startswith("-") and _packaged(Path(name))


def _packaged(path: Path) -> bool:
    return path.resolve().is_relative_to(HERE)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hooks)


# -- set-up ------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    for name in ("must", "should", "may"):
        config.addinivalue_line("markers", f"{name}: checks of requirements of this level")
    config.addinivalue_line("markers", "requirement(id): a requirement that a check verifies")
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is not None:
        if SHARED in workerinput:
            _configure_worker(config, Path(workerinput[SHARED]), workerinput["workerid"])
    elif config.getoption("plumbline_target") is not None:
        if config.option.collectonly:
            _configure_listing(config)
        else:
            _configure_controller(config)
    elif any(_is_ours(arg, pyargs=config.option.pyargs) for arg in config.args):
        pytest.exit(NO_TARGET, returncode=USAGE)


def _register_items(config: pytest.Config, catalogue: Catalogue, traces: Mapping[str, Check]) -> None:
    from conformance.items import Items
    from conformance.urls import BadUrl, parse_url

    try:
        protocol = parse_url(config.getoption("plumbline_target")).protocol
    except BadUrl as problem:
        pytest.exit(str(problem), returncode=USAGE)
    strict, select = config.getoption("plumbline_strict"), config.getoption("plumbline_select")
    items = Items(catalogue, traces, protocol=protocol, strict=strict, select=select)
    config.pluginmanager.register(items, ITEMS)


def _configure_listing(config: pytest.Config) -> None:
    from conformance.catalogue import Catalogue

    _register_items(config, Catalogue.load(), {})


def _configure_worker(config: pytest.Config, folder: Path, worker: str) -> None:
    from conformance.judge import JUDGE, take_over

    given = take_over(folder)
    config.stash[JUDGE] = given.judge(folder, worker.replace("gw", "w"))
    _register_items(config, given.catalogue, given.traces)


def _configure_controller(config: pytest.Config) -> None:
    from conformance.controller import Controller
    from conformance.judge import JUDGE, Judge
    from conformance.prepare import UsageProblem, prepare
    from conformance.target import TargetUnreachable
    from conformance.verdicts import ExitCode

    given: PreparedPlugin | None = config.pluginmanager.get_plugin(PREPARED)
    try:
        prepared = given.prepared if given else prepare(_wanted(config))
    except UsageProblem as problem:
        pytest.exit(str(problem), returncode=ExitCode.USAGE)
    except TargetUnreachable as problem:
        pytest.exit(str(problem), returncode=ExitCode.TARGET_LOST)
    shared = tempfile.TemporaryDirectory(prefix="plumbline-")
    config.add_cleanup(shared.cleanup)
    folder = Path(shared.name)
    config.stash[JUDGE] = Judge(prepared.access, prepared.catalogue, prepared.waivers, folder)
    _register_items(config, prepared.catalogue, prepared.known)
    controller = Controller(config, prepared, folder, complete=given is not None and given.complete)
    config.pluginmanager.register(controller, CONTROLLER)


def _wanted(config: pytest.Config) -> Wanted:
    from conformance.prepare import Wanted

    paths = [Path(arg.partition("::")[0]) for arg in config.args]
    return Wanted(
        url=config.getoption("plumbline_target"),
        level=config.getoption("plumbline_level"),
        variants=tuple(config.getoption("plumbline_variant")),
        select=tuple(config.getoption("plumbline_select")),
        waivers=config.getoption("plumbline_waivers"),
        traces=tuple(path.resolve() for path in paths if path.suffix == ".trace" and not _packaged(path)),
        strict=config.getoption("plumbline_strict"),
    )


# -- without a target --------------------------------------------------------------------------


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """``pytest .`` in a checkout of Plumbline: its checks are not tests of that project."""
    without = not config.pluginmanager.has_plugin(ITEMS)
    return True if without and collection_path == HERE else None


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> None:
    """A marked function, which pytest would take for a test with an unknown fixture, ``session``."""
    is_check = isinstance(obj, FunctionType) and "plumbline_check" in vars(obj)
    if is_check and not collector.config.pluginmanager.has_plugin(ITEMS):
        raise collector.CollectError(NO_TARGET)
