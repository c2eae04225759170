"""The badge: its text, its contrast, and hostile texts."""

from __future__ import annotations

from typing import Any

import lxml.etree
import pytest
from msgspec.structs import replace

from plumbline.reports.badge import GROUNDS, LABEL_GROUND, render
from plumbline.verdicts import RunResult
from tests.reports.samples import HOSTILE, conformant_result, sample_result
from tests.reports.test_html_contrast import contrast

MOST_BYTES = 1_500


def drawn(result: RunResult) -> Any:
    parser = lxml.etree.XMLParser(recover=False, resolve_entities=False)
    return lxml.etree.fromstring(render(result), parser)


def message(result: RunResult) -> str:
    root = drawn(result)
    texts = ["".join(text.itertext()) for text in root.iter("{*}text")]
    title = root.findtext("{*}title")
    assert title == root.get("aria-label") == ": ".join(texts)
    return texts[1]


def test_badge_shows_version_verdict_and_count() -> None:
    assert message(conformant_result()) == "2.10.22 conformant 3/3"
    assert message(sample_result()) == "2.10.22 not conformant 4/11"


def test_its_colour_is_that_of_the_verdict() -> None:
    def ground(code: int) -> str:
        result = conformant_result()
        changed = replace(result, summary=replace(result.summary, exit_code=code))
        return str(drawn(changed).find("{*}path").get("fill"))

    assert [ground(code) for code in (0, 1, 3, 4)] == [
        GROUNDS[tone] for tone in ("good", "bad", "unclear", "unclear")
    ]


@pytest.mark.parametrize("ground", [LABEL_GROUND, *GROUNDS.values()])
def test_white_on_its_grounds_is_readable(ground: str) -> None:
    assert contrast("#ffffff", ground) >= 4.5


@pytest.mark.parametrize(
    "hostile", [HOSTILE, "\u202e" * 500_000, "<script>" * 100_000, "漢字" * 1000, ']]>&x;"']
)
def test_hostile_text_stays_short_and_makes_no_element(hostile: str) -> None:
    base = conformant_result()
    result = replace(
        base,
        target=replace(base.target, version=hostile, server_name=hostile, url=hostile),
        summary=replace(base.summary, verdict=hostile),
    )
    assert [element.tag for element in drawn(result).iter()] == [
        element.tag for element in drawn(base).iter()
    ]
    document = render(result).decode()
    assert {char for char in document if not char.isprintable()} == {"\n"}
    assert len(document) < MOST_BYTES
