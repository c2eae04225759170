"""``SECURITY.md`` lists every bound with the value that it has in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plumbline import bounds

PAGE = Path(__file__).resolve().parents[2] / "SECURITY.md"
ROW = re.compile(r"^\| `([A-Z_]+)` \| [^|]+ \| ([\d,]+)(?: (\w+))? \| [^|]+ \|$", re.MULTILINE)
UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "s": 1, "min": 60, "h": 3600}
NAMES = sorted(name for name in vars(bounds) if name.isupper())


def documented() -> dict[str, int]:
    """Each bound in bytes, seconds or pieces."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {name: int(number.replace(",", "")) * UNITS[unit] for name, number, unit in rows}


def test_the_page_lists_the_bounds_that_exist() -> None:
    assert sorted(documented()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_page_gives_the_value_of_a_bound(name: str) -> None:
    assert documented()[name] == getattr(bounds, name)
