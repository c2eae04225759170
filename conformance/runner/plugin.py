"""The suite as a pytest plugin: ``plumbline.pytest_plugin`` registers this module once there is a target.

``runner.items`` collects checks, and ``runner.controller`` gives their verdicts through the hook
 ``pytest_plumbline_event``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plumbline.conformance.runner.judge import SHARED
from plumbline.conformance.suite import is_packaged
from plumbline.errors import PlumblineError

if TYPE_CHECKING:
    from plumbline.conformance.check import Check
    from plumbline.conformance.requirements.catalogue import Catalogue
    from plumbline.conformance.runner.prepare import Prepared, Wanted

PREPARED = "plumbline-prepared"  # the name under which `plumbline verify` registers what it prepared
ITEMS = "plumbline-items"
CONTROLLER = "plumbline-controller"


class PreparedPlugin:
    """Carries what ``plumbline verify`` prepared, so that it is not prepared twice.

    ``complete``: every check that was prepared must give a result.
    """

    def __init__(self, prepared: Prepared, *, complete: bool) -> None:
        self.prepared = prepared
        self.complete = complete


def pytest_configure(config: pytest.Config) -> None:
    """A worker of xdist takes over what the controller has prepared."""
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is not None:
        if SHARED in workerinput:
            _configure_worker(config, Path(workerinput[SHARED]), workerinput["workerid"])
    elif config.option.collectonly:
        _configure_listing(config)
    else:
        _configure_controller(config)


def _register_items(config: pytest.Config, catalogue: Catalogue, traces: Mapping[str, Check]) -> None:
    from plumbline.conformance.runner.items import Items
    from plumbline.conformance.urls import parse_url

    try:
        protocol = parse_url(config.getoption("plumbline_target")).protocol
    except PlumblineError as problem:
        pytest.exit(str(problem), returncode=problem.exit_code)
    strict, select = config.getoption("plumbline_strict"), config.getoption("plumbline_select")
    items = Items(catalogue, traces, protocol=protocol, strict=strict, select=select)
    config.pluginmanager.register(items, ITEMS)


def _configure_listing(config: pytest.Config) -> None:
    from plumbline.conformance.requirements.catalogue import Catalogue

    _register_items(config, Catalogue.load(), {})


def _configure_worker(config: pytest.Config, folder: Path, worker: str) -> None:
    from plumbline.conformance.runner.judge import JUDGE, take_over

    given = take_over(folder)
    config.stash[JUDGE] = given.judge(folder, worker.replace("gw", "w"))
    _register_items(config, given.catalogue, given.traces)


def _configure_controller(config: pytest.Config) -> None:
    from plumbline.conformance.runner.controller import Controller
    from plumbline.conformance.runner.judge import JUDGE, Judge
    from plumbline.conformance.runner.prepare import prepare

    given: PreparedPlugin | None = config.pluginmanager.get_plugin(PREPARED)
    try:
        prepared = given.prepared if given else prepare(_wanted(config))
    except PlumblineError as problem:
        pytest.exit(str(problem), returncode=problem.exit_code)
    shared = tempfile.TemporaryDirectory(prefix="plumbline-")
    config.add_cleanup(shared.cleanup)
    folder = Path(shared.name)
    config.stash[JUDGE] = Judge(prepared.access, prepared.catalogue, prepared.waivers, folder)
    _register_items(config, prepared.catalogue, prepared.known)
    controller = Controller(config, prepared, folder, complete=given is not None and given.complete)
    config.pluginmanager.register(controller, CONTROLLER)


def _wanted(config: pytest.Config) -> Wanted:
    from plumbline.conformance.runner.prepare import Wanted

    paths = [Path(arg.partition("::")[0]) for arg in config.args]
    return Wanted(
        url=config.getoption("plumbline_target"),
        level=config.getoption("plumbline_level"),
        variants=tuple(config.getoption("plumbline_variant")),
        select=tuple(config.getoption("plumbline_select")),
        waivers=config.getoption("plumbline_waivers"),
        traces=tuple(path.resolve() for path in paths if path.suffix == ".trace" and not is_packaged(path)),
        strict=config.getoption("plumbline_strict"),
    )
