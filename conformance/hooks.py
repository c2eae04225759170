"""The one hook that Plumbline adds to pytest: whoever wants to know what became of checks implements it."""

from __future__ import annotations

import pytest

from conformance.verdicts import Event


@pytest.hookspec
def pytest_plumbline_event(event: Event) -> None:
    """Called in the controller for every verdict event, in order."""
