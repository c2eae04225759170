"""The one hook that Plumbline adds to pytest: whoever wants to know what became of checks implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conformance.verdicts import Event


@pytest.hookspec
def pytest_plumbline_event(event: Event) -> None:
    """Called in the controller for every verdict event, in order."""
