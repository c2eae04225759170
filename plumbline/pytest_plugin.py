"""The pytest plugin of Plumbline: options, fixtures, one hook; the suite itself once there is a target.

pytest loads this module wherever Plumbline is installed, so it imports nothing of Plumbline until a test asks
for a fixture or the command line asks for checks::

    pytest --pyargs plumbline.conformance --target nats://127.0.0.1:4222

    def test_my_client(nats_broker):
        client = connect(nats_broker)  # "nats://127.0.0.1:41931"

    def test_a_lost_ack_is_sent_again(recording_proxy):
        proxy = recording_proxy("nats://127.0.0.1:4222", "drop +ACK the 1st")
        client = connect(proxy.url)

JetStream is on. ``@pytest.mark.nats_broker(...)`` changes the server: ``level="2.9"``, ``jetstream=False``,
``authorization={"user": "a", "password": "b"}``, ``defect="..."``, and whatever ``NatsBroker`` takes.
``@pytest.mark.amqp_broker(...)`` does the same for ``AmqpBroker``: ``heartbeat=1``, ``defect="..."``.
A server runs in a thread of its own, so the test may be sync or async and may block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from plumbline.access_options import ACCESS_OPTIONS

if TYPE_CHECKING:
    from plumbline.proxy.record import RecordingProxy
    from plumbline.verdicts import Event

SUITE = "plumbline.conformance"
SUITE_FOLDER = (Path(__file__).parent / "conformance").resolve()
SUITE_PLUGIN = "plumbline.conformance.runner.plugin"
NO_TARGET = "the checks of Plumbline need a server: add --target nats://127.0.0.1:4222"

# -- options -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a run by hand; ``plumbline verify`` gives the same."""
    group = parser.getgroup("plumbline", "conformance of a messaging server (Plumbline)")
    group.addoption(
        "--plumbline-target",
        metavar="URL",
        help="the server under test, e.g. nats://127.0.0.1:4222; --target is the same for the packaged suite",
    )
    group.addoption(
        "--plumbline-level",
        metavar="VERSION",
        help="protocol level to judge by (default: what the server reports)",
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
        help="run only checks of these requirements or with these ids, e.g. 'JS-PULL-*'",
    )
    group.addoption("--plumbline-waivers", metavar="FILE", type=Path, help="known failures (TOML)")
    group.addoption("--plumbline-strict", action="store_true", help="a failed SHOULD also fails the run")
    for option in ACCESS_OPTIONS:
        group.addoption(
            f"--plumbline-{option.name.replace('_', '-')}",
            metavar=option.metavar,
            type=Path if option.is_file else str,
            help=option.help,
        )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """``--target`` is ours only where our suite is meant: other projects have options of that name."""
    target = re.search(r"(?m)^--target[=\n](nats:|tls:|wss?:|amqps?:)?", "\n".join(args))
    if target and (target[1] or any(_is_ours(arg, pyargs="--pyargs" in args) for arg in args)):
        group = parser.getgroup("plumbline")
        group.addoption("--target", dest="plumbline_target", metavar="URL", help="the server under test")


def _is_ours(arg: str, *, pyargs: bool) -> bool:
    """Whether an argument names packaged checks: ``--pyargs plumbline.conformance``, or a path below it."""
    name = arg.partition("::")[0]
    if pyargs and (name == SUITE or name.startswith(f"{SUITE}.")):
        return True
    return not name.startswith("-") and Path(name).resolve().is_relative_to(SUITE_FOLDER)


# -- the suite, once it is asked for -----------------------------------------------------------


class Hooks:
    """The hook that Plumbline adds to pytest: implement it to receive the verdicts of checks."""

    @pytest.hookspec
    def pytest_plumbline_event(self, event: Event) -> None:
        """Called in the controller for every verdict event, in order."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Adds ``Hooks``."""
    pluginmanager.add_hookspecs(Hooks)


def pytest_configure(config: pytest.Config) -> None:
    """Adds the markers. With a target, ``SUITE_PLUGIN`` does the rest, here and in workers of xdist."""
    for name in ("must", "should", "may"):
        config.addinivalue_line("markers", f"{name}: checks of requirements of this level")
    config.addinivalue_line("markers", "requirement(id): a requirement that a check verifies")
    config.addinivalue_line("markers", "nats_broker(**options): how to set up the nats_broker fixture")
    config.addinivalue_line("markers", "amqp_broker(**options): how to set up the amqp_broker fixture")
    if config.getoption("plumbline_target") is not None:
        config.pluginmanager.import_plugin(SUITE_PLUGIN)
    elif any(_is_ours(arg, pyargs=config.option.pyargs) for arg in config.args):
        from plumbline.errors import ExitCode

        pytest.exit(NO_TARGET, returncode=ExitCode.USAGE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """``pytest .`` in a checkout of Plumbline: its checks are not tests of that project."""
    without = not config.pluginmanager.has_plugin(SUITE_PLUGIN)
    return True if without and collection_path.resolve() == SUITE_FOLDER else None


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> None:
    """A marked function, which pytest would take for a test with an unknown fixture, ``session``."""
    is_check = callable(obj) and "plumbline_check" in getattr(obj, "__dict__", {})
    if is_check and not collector.config.pluginmanager.has_plugin(SUITE_PLUGIN):
        raise collector.CollectError(NO_TARGET)


# -- fixtures ----------------------------------------------------------------------------------


@pytest.fixture
def nats_broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a reference NATS server, fresh for this test and gone after it."""
    from plumbline.reference_broker.nats.server import NatsBroker

    marker = request.node.get_closest_marker("nats_broker")
    options = {"jetstream": True, **(marker.kwargs if marker else {})}
    with NatsBroker.in_thread(**options) as url:
        yield url


@pytest.fixture
def amqp_broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a reference AMQP server, fresh for this test and gone after it."""
    from plumbline.reference_broker.amqp.server import AmqpBroker

    marker = request.node.get_closest_marker("amqp_broker")
    with AmqpBroker.in_thread(**(marker.kwargs if marker else {})) as url:
        yield url


class StartsProxy(Protocol):
    """Starts a recording proxy before ``url``; its capture is in the test's own folder."""

    def __call__(self, url: str, *faults: str, seed: int = 0) -> RecordingProxy: ...


@pytest.fixture
def recording_proxy(tmp_path: Path) -> Iterator[StartsProxy]:
    """Starts proxies that live as long as the test."""
    from plumbline.proxy.record import recorded

    with ExitStack() as running:

        def start(url: str, *faults: str, seed: int = 0) -> RecordingProxy:
            folder = tmp_path / "captures"
            return running.enter_context(recorded(url, folder, faults=faults, seed=seed))

        yield start
