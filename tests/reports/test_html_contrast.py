"""Every pair of text and ground that the page uses meets WCAG 2 AA, light and dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import plumbline.reports

CSS = (Path(plumbline.reports.__file__).parent / "templates" / "colours.css").read_text()

PAIRS = [
    *((ink, ground) for ink in ("ink", "muted", "link") for ground in ("paper", "ground")),
    ("ink", "code"),
    ("muted", "code"),
    *(
        (ink, f"{tone}-bg") for tone in ("good", "bad") for ink in ("ink", tone)
    ),  # Expected, Actual, offending
    *((tone, f"{tone}-bg") for tone in ("good", "bad", "warn", "calm", "idle", "odd")),  # chips
    *((tone, "paper") for tone in ("good", "bad", "warn")),  # the verdict
]
SHAPES = [
    *((f"{part}-bar", "paper") for part in ("good", "bad", "calm")),
    ("calm", "paper"),  # arrows
    ("bad", "bad-bg"),
    ("muted", "paper"),
]


def colours(scheme: str) -> dict[str, str]:
    pairs = re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", CSS)
    return {name: light if scheme == "light" else dark for name, light, dark in pairs}


def luminance(colour: str) -> float:
    """WCAG 2.2, "relative luminance"."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_formula_is_the_one_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_text_is_readable(scheme: str, ink: str, ground: str) -> None:
    found = colours(scheme)
    assert contrast(found[ink], found[ground]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("shape", "ground"), SHAPES)
def test_shapes_that_mean_something_are_visible(scheme: str, shape: str, ground: str) -> None:
    found = colours(scheme)
    assert contrast(found[shape], found[ground]) >= 3
