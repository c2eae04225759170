"""Bugs that libraries were shipped with: the old release is red at the requirement, the fixed one is not.

PLUMBLINE_REGISTRIES=1 pytest tests/conformance/clients/test_known_bugs.py
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.clients.libraries import ADAPTERS, INSTALLERS, gated, python_adapter_with, red

BUGS: list[dict[str, Any]] = tomllib.loads((ADAPTERS.parent / "known_bugs.toml").read_text("utf-8"))["bug"]

pytestmark = pytest.mark.skipif(
    not os.environ.get("PLUMBLINE_REGISTRIES"),
    reason="installs old releases from PyPI, npm and the Go proxy: set PLUMBLINE_REGISTRIES=1",
)


def adapter(bug: dict[str, Any], releases: Sequence[str], folder: Path) -> tuple[str, ...]:
    """The adapter with those releases of its library."""
    folder.mkdir()
    if bug["packages"] in INSTALLERS:
        return INSTALLERS[bug["packages"]](bug["adapter"], folder, releases)
    return python_adapter_with(bug["adapter"], releases, folder)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug['old'][0]}-{bug['requirement']}")
def test_the_old_release_is_red_and_the_fixed_one_is_not(bug: dict[str, Any], tmp_path: Path) -> None:
    old = gated(adapter(bug, bug["old"], tmp_path / "old"), bug["select"])
    assert bug["requirement"] in red(old)
    fixed = gated(adapter(bug, bug["fixed"], tmp_path / "fixed"), bug["select"])
    assert red(fixed) == {}
    assert fixed.result.summary.passed
