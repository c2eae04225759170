"""What all tests share: real servers of this machine, Hypothesis without a stopwatch, the quick tests.

A test that asks for ``server_binary`` or ``nats_server`` runs once for each real server. One that is missing
is skipped with the command that installs it; with ``CI`` or ``PLUMBLINE_REQUIRE_SERVERS`` set, it fails.

``make test`` runs what is neither ``external`` (needs a real server or program, Spark or a browser; tests
that ask for such a fixture are marked here) nor ``slow`` (seconds for one test). ``make test-all`` runs
everything.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from plumbline.servers.amqp.rabbitmq import RabbitMQ, rabbitmq_server
from plumbline.servers.nats.nats_server import (
    MissingServer,
    NatsServer,
    ServerBinary,
    real_servers,
)
from plumbline.servers.process import ServerError

# A deadline measures the machine, not the code.
settings.register_profile(
    "plumbline", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("plumbline")

EXTERNAL_FIXTURES = frozenset({"browser", "garagemq", "qpid", "rabbitmq", "server_binary", "spark"})
# Without these packages, which only `make test-all` installs, modules that import them cannot be collected.
NEEDED = {
    "pyspark": ["pipeline", "bench", "cli/test_audit.py"],
    "playwright": ["reports/test_in_chromium.py", "reports/test_matrix_in_chromium.py", "site/test_site.py"],
    "allure_commons": ["reports/test_allure.py"],
    "mitmproxy": ["proxy/test_mitm.py"],
}
# Tests that share what takes seconds to make: one Spark, an environment, runs of the suite, generated pages.
TOGETHER = (
    "tests/adequacy/",
    "tests/architecture/",
    "tests/ci/test_bootstrap.py",
    "tests/cli/test_verify_claims.py",
    "tests/docs/test_generated.py",
    "tests/docs/test_links.py",
    "tests/pipeline/",
)
collect_ignore = [path for package, paths in NEEDED.items() if find_spec(package) is None for path in paths]

# Where single tests take minutes: they are the first, so that no run ends with one process that is busy.
FIRST = ("tests/zoo/", "tests/hostile/", "tests/cluster/", "tests/servers/", "tests/site/")

try:
    SERVERS = real_servers()
except ServerError as error:
    raise pytest.UsageError(str(error)) from error


def pytest_configure(config: pytest.Config) -> None:
    """The markers that ``make test`` leaves out, and Ctrl-C also for a run in the background.

    A shell without job control lets what it starts with ``&`` ignore Ctrl-C, and programs that tests start
    inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "external: needs a real server or program, Spark or a browser")
    config.addinivalue_line("markers", "slow: takes seconds")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``FIRST`` first. Marks what asks for something external, as a fixture or as the parameter of one."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
    for item in items:
        callspec = getattr(item, "callspec", None)
        parameters = map(str, callspec.params.values()) if callspec else ()
        if EXTERNAL_FIXTURES.intersection((*getattr(item, "fixturenames", ()), *parameters)):
            item.add_marker(pytest.mark.external)


def servers_required() -> bool:
    """Whether a missing real server is a failure."""
    return any(
        os.environ.get(name, "") not in ("", "0", "false") for name in ("CI", "PLUMBLINE_REQUIRE_SERVERS")
    )


@pytest.fixture(params=SERVERS, ids=lambda server: server.name)
def server_binary(request: pytest.FixtureRequest) -> ServerBinary:
    """Each real server of this machine in turn."""
    server = request.param
    assert isinstance(server, ServerBinary | MissingServer)
    if isinstance(server, ServerBinary):
        return server
    if servers_required():
        pytest.fail(str(server), pytrace=False)
    pytest.skip(str(server))


@pytest.fixture
def nats_server(server_binary: ServerBinary) -> Iterator[NatsServer]:
    """A real server with JetStream, running, with nothing on it."""
    with NatsServer(server_binary.path) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """A real RabbitMQ, started once for each process of tests: it takes seconds."""
    server = rabbitmq_server()
    if isinstance(server, MissingServer):
        if servers_required():
            pytest.fail(str(server), pytrace=False)
        pytest.skip(str(server))
    with RabbitMQ(server.path) as node:
        yield node


class Together(LoadScopeScheduling):  # type: ignore[misc]  # has no types
    """Gives each test to the next free process, but those of a place in ``TOGETHER`` all to one.

    Marks of groups (``xdist_group``) do not reach the scheduler of pytest-xdist 3.8 with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((place for place in TOGETHER if nodeid.startswith(place)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Asked for with ``--dist loadgroup``."""
    return Together(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What ``-n auto`` means: tests wait for servers and deadlines more than they compute."""
    return 2 * (os.cpu_count() or 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says once for each reason how many tests were skipped for it."""
    if collect_ignore:
        terminalreporter.write_line(f"LEFT OUT, make test-all has them: {', '.join(collect_ignore)}")
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"SKIPPED {count}: {reason}")
