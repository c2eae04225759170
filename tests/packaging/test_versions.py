"""Versions, and ranges of them, as users write them."""

from __future__ import annotations

import pytest

from plumbline.versions import holds, numbers, specifiers


@pytest.mark.parametrize(
    ("text", "expected"),
    [("v2.10.14-beta", (2, 10, 14)), ("2.9", (2, 9)), ("3.13.7+dfsg", (3, 13, 7)), ("newest", ()), ("", ())],
)
def test_the_numbers_of_a_version(text: str, expected: tuple[int, ...]) -> None:
    assert numbers(text) == expected


@pytest.mark.parametrize(
    ("versions", "version", "expected"),
    [
        ("", "anything", True),
        (">=2.9, <2.11", "2.10.14", True),
        (">=2.9, <2.11", "2.11.0", False),
        ("==2.10", "2.10.14", True),
        ("==2.10.14", "2.10.15", False),
        ("!=2.10.14", "2.10.14", False),
        ("<=2.10", "2.10.14", True),
        (">2.9", "2.10.0-beta", True),
        (">2.9", "v2.9.25", False),
        ("<=2.10.14", "2.10.14-RC.1", True),
        ("2.10.8 to 2.10.16", "2.10.8", True),
        ("2.10.8 to 2.10.16", "2.10.16", True),
        ("2.10.8 to 2.10.16", "2.10.17", False),
        ("2.12.0", "2.12.0", True),
        ("2.12.0", "2.12.1", False),
        (">=2.9", "unknown", False),
    ],
)
def test_versions_are_compared_as_numbers(versions: str, version: str, expected: bool) -> None:
    assert holds(versions, version) is expected


@pytest.mark.parametrize("text", ["2.9 or so", "=2.9", ">=", "2.10.8 to 2.10.2", "~2.9", ">=2.9 <2.11"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a version condition|the first is later"):
        specifiers(text)
