"""The lock file holds what ``pyproject.toml`` asks for, with hashes, and names no place to get it from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
ENTRIES = re.findall(r"^([a-z0-9][a-z0-9-]*)==(\S+)(.*\n(?:    --hash=.*\n)*)", LOCK, re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WANTED = [Requirement(text) for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"])]


@pytest.mark.parametrize("requirement", WANTED, ids=lambda requirement: requirement.name)
def test_every_dependency_is_pinned_within_its_bound(requirement: Requirement) -> None:
    pinned = [version for name, version, _ in ENTRIES if name == canonicalize_name(requirement.name)]
    assert pinned, f"{requirement} is not in requirements.lock: run 'make lock'"
    assert all(version in requirement.specifier for version in pinned)


@pytest.mark.parametrize("requirement", WANTED, ids=lambda requirement: requirement.name)
def test_every_dependency_has_a_lower_bound_and_no_upper_one(requirement: Requirement) -> None:
    assert [bound.operator for bound in requirement.specifier] == [">="]


def test_every_pinned_package_has_a_hash() -> None:
    without = [name for name, _, rest in ENTRIES if "--hash=sha256:" not in rest]
    assert ENTRIES
    assert without == []


def test_no_index_or_address_stands_in_the_lock_file() -> None:
    assert re.findall(r"://|--(?:index|extra-index|find-links|trusted)\S*", LOCK) == []
