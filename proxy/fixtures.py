"""A pytest fixture: ``pytest_plugins = ["proxy.fixtures"]`` in a conftest, then ask for ``recording_proxy``.

def test_a_lost_ack_is_sent_again(recording_proxy):
    proxy = recording_proxy("nats://127.0.0.1:4222", "drop +ACK the 1st")
    client = connect(proxy.url)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from proxy.record import RecordingProxy, recorded


class StartsProxy(Protocol):
    """Starts a recording proxy before ``url``; its capture is in the test's own folder."""

    def __call__(self, url: str, *faults: str, seed: int = 0) -> RecordingProxy: ...


@pytest.fixture
def recording_proxy(tmp_path: Path) -> Iterator[StartsProxy]:
    """Proxies that live as long as the test."""
    with ExitStack() as running:

        def start(url: str, *faults: str, seed: int = 0) -> RecordingProxy:
            place = tmp_path / "captures"
            return running.enter_context(recorded(url, place, faults=faults, seed=seed))

        yield start
