"""A pytest plugin: ``nats_broker`` and ``amqp_broker`` are URLs of reference servers that live for one test.

Installing Plumbline switches it on; else write ``pytest_plugins = ["reference_broker.fixtures"]`` in
``conftest.py``. A test then reads::

    def test_my_client(nats_broker):
        client = connect(nats_broker)  # "nats://127.0.0.1:41931"

JetStream is on. ``@pytest.mark.nats_broker(...)`` changes the server: ``level="2.9"``, ``jetstream=False``,
``authorization={"user": "a", "password": "b"}``, ``defect="..."``, and whatever ``NatsBroker`` takes.
``@pytest.mark.amqp_broker(...)`` does the same for ``AmqpBroker``: ``heartbeat=1``, ``defect="..."``.
A server runs in a thread of its own, so the test may be sync or async and may block.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "nats_broker(**options): how to set up the nats_broker fixture")
    config.addinivalue_line("markers", "amqp_broker(**options): how to set up the amqp_broker fixture")


@pytest.fixture
def nats_broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a reference NATS server, fresh for this test and gone after it."""
    from reference_broker.nats.server import NatsBroker  # here, so that loading the plugin costs nothing

    marker = request.node.get_closest_marker("nats_broker")
    options = {"jetstream": True, **(marker.kwargs if marker else {})}
    with NatsBroker.in_thread(**options) as url:
        yield url


@pytest.fixture
def amqp_broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a reference AMQP server, fresh for this test and gone after it."""
    from reference_broker.amqp.server import AmqpBroker

    marker = request.node.get_closest_marker("amqp_broker")
    with AmqpBroker.in_thread(**(marker.kwargs if marker else {})) as url:
        yield url
