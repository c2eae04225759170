"""The suite as a pytest plugin: ``plumbline.pytest_plugin`` registers this module once there is a target.

``runner.items`` collects checks, and ``runner.controller`` gives their verdicts through the hook
 ``pytest_plumbline_event``.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from plumbline.conformance.packaged import is_packaged
from plumbline.conformance.runner.judge import SHARED
from plumbline.errors import PlumblineError

if TYPE_CHECKING:
    from plumbline.conformance.runner.prepare import PreparedRun, RunDescription, RunOptions
    from plumbline.conformance.runner.time_limit import TimeLimit

PREPARED = "plumbline-prepared"  # the name under which `plumbline verify` registers what it prepared
ITEMS = "plumbline-items"
CONTROLLER = "plumbline-controller"


class PreparedPlugin:
    """Carries what ``plumbline verify`` prepared, so that it is not prepared twice.

    ``complete``: every check that was prepared must give a result. ``limit``: for all of the run.
    """

    def __init__(self, prepared: PreparedRun, *, complete: bool, limit: TimeLimit | None = None) -> None:
        self.prepared = prepared
        self.complete = complete
        self.limit = limit


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


def _configure_listing(config: pytest.Config) -> None:
    from plumbline.conformance.requirements.catalogue import Catalogue
    from plumbline.conformance.runner.items import CheckCollector
    from plumbline.conformance.targets.urls import parse_url

    try:
        protocol = parse_url(config.getoption("plumbline_target")).protocol
    except PlumblineError as problem:
        pytest.exit(str(problem), returncode=problem.exit_code)
    given: PreparedPlugin | None = config.pluginmanager.get_plugin(PREPARED)
    wanted = given.prepared.run.wanted if given else _run_options(config)
    items = CheckCollector(Catalogue.load(), {}, protocol, wanted.select)
    config.pluginmanager.register(items, ITEMS)


def _configure_worker(config: pytest.Config, folder: Path, worker: str) -> None:
    from plumbline.conformance.runner.judge import read_worker_context
    from plumbline.conformance.runner.lifeline import end_with_controller
    from plumbline.interpreter import forget_safe_path

    forget_safe_path()
    end_with_controller(folder)
    _register(config, read_worker_context(folder, worker.replace("gw", "w")))


def _register(config: pytest.Config, run: RunDescription) -> None:
    """What every process of the run needs: the judge, and the hooks that find checks."""
    from plumbline.conformance.amqp.variant_server import close_variant_servers
    from plumbline.conformance.runner.items import CheckCollector
    from plumbline.conformance.runner.judge import JUDGE, Judge

    config.stash[JUDGE] = Judge(run)
    config.add_cleanup(close_variant_servers)
    items = CheckCollector(run.catalogue, run.traces, run.target.url.protocol, run.wanted.select)
    config.pluginmanager.register(items, ITEMS)


def _configure_controller(config: pytest.Config) -> None:
    from plumbline.conformance.runner.controller import Controller

    prepared_plugin: PreparedPlugin | None = config.pluginmanager.get_plugin(PREPARED)
    try:
        prepared = prepared_plugin.prepared if prepared_plugin else _prepared(config)
    except PlumblineError as problem:
        pytest.exit(str(problem), returncode=problem.exit_code)
    _register(config, prepared.run)
    controller = Controller(
        config,
        prepared,
        complete=prepared_plugin is not None and prepared_plugin.complete,
        limit=prepared_plugin.limit if prepared_plugin else None,
    )
    config.pluginmanager.register(controller, CONTROLLER)


def _prepared(config: pytest.Config) -> PreparedRun:
    """A run that pytest's own options describe."""
    from plumbline.conformance.runner.prepare import prepare
    from plumbline.conformance.targets.running import RunningTarget
    from plumbline.conformance.targets.urls import parse_url
    from plumbline.passwords import Passwords

    passwords = Passwords.taken_from(os.environ)
    options = _run_options(config)
    url = parse_url(config.getoption("plumbline_target"))
    url = options.access.applied_to(url if passwords.url is None else url.with_password(passwords.url))
    shared = tempfile.TemporaryDirectory(prefix="plumbline-")
    config.add_cleanup(shared.cleanup)
    return prepare(replace(options, passwords=passwords), RunningTarget(url), Path(shared.name))


def _run_options(config: pytest.Config) -> RunOptions:
    from plumbline.access_options import ACCESS_OPTIONS
    from plumbline.conformance.runner.prepare import RunOptions
    from plumbline.conformance.targets.access import access_of

    given = {option.name: config.getoption(f"plumbline_{option.name}") for option in ACCESS_OPTIONS}
    paths = [Path(arg.partition("::")[0]) for arg in config.args]
    return RunOptions(
        level=config.getoption("plumbline_level"),
        variants=tuple(config.getoption("plumbline_variant")),
        select=tuple(config.getoption("plumbline_select")),
        waivers=config.getoption("plumbline_waivers"),
        traces=tuple(path.resolve() for path in paths if path.suffix == ".trace" and not is_packaged(path)),
        strict=config.getoption("plumbline_strict"),
        access=access_of(**given),
    )
