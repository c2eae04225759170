"""The page of ``plumbline judge``: one file, safe whatever was on the wire."""

from __future__ import annotations

import re

import lxml.html
import pytest

from plumbline.pipeline.page import plots, units
from plumbline.pipeline.page.gather import ReceiverBuckets, TimeBucket
from plumbline.pipeline.page.html import render
from tests.pipeline.support.shown import FIRST, SECOND, WIDTH, card, shown

HOSTILE = "</code><script>alert(1)</script> \x1b[2J \u202e <svg onload=alert(2)> {{ 7*7 }}"


def page(document: bytes) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(document.decode())


def test_hostile_text_is_escaped() -> None:
    document = render(shown(card(HOSTILE, text=HOSTILE), receiver=f"{HOSTILE} > C", subject=HOSTILE)).decode()
    found = page(document.encode())
    assert not found.xpath("//script")
    assert not [name for element in found.iter() for name in element.attrib if name.startswith("on")]
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", document)
    assert "{{ 7*7 }}" in found.text_content()
    assert "alert(1)" in found.text_content()


def test_the_page_needs_nothing_else() -> None:
    found = page(render(shown(card())))
    references = [*found.xpath("//@src"), *found.xpath("//@href")]
    assert [name for name in references if not name.startswith(("#", "data:"))] == []
    (policy,) = found.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert "default-src 'none'" in policy


def test_every_link_leads_somewhere_and_no_id_is_twice() -> None:
    found = page(render(shown(card(), card(certain=False))))
    ids = found.xpath("//@id")
    assert len(ids) == len(set(ids))
    links = {name[1:] for name in found.xpath("//a/@href") if name.startswith("#")}
    assert links - {"JS-SEQ-013"} <= set(ids)  # which the table of this sample leaves out


def test_violation_is_shown_with_neighbouring_operations() -> None:
    found = page(render(shown(card())))
    lines = [" ".join(line.text_content().split()) for line in found.xpath("(//ol[@class='around'])[1]/li")]
    assert [line.partition(" ")[0] for line in lines] == ["4", "6", "11", "12", "13"]
    assert lines[1] == "6 operations between"
    (offending,) = found.xpath("//li[@class='offending']//code")
    assert offending.text_content() == "offending: MSG a 1 5"
    assert "1 violation" in found.xpath("//h1")[0].text_content()


def test_page_without_violations_shows_no_violations() -> None:
    found = page(render(shown()))
    assert "No violations" in found.xpath("//h1")[0].text_content()
    assert not found.xpath("//*[@id='violations']")


def test_the_bars_of_a_lane_are_as_tall_as_their_numbers() -> None:
    stretches = (
        TimeBucket(FIRST, {"deliveries": 10, "redelivered": 0}),
        TimeBucket(FIRST + WIDTH, {"deliveries": 20, "redelivered": 5}),
    )
    drawn = lxml.html.fragment_fromstring(
        str(plots.timeline([ReceiverBuckets("C", 30, stretches)], FIRST, FIRST + SECOND, WIDTH)),
        create_parent=True,
    )
    bars = [(bar.get("class"), float(bar.get("height"))) for bar in drawn.xpath(".//rect")]
    assert bars == [
        ("b-calm", plots.LANE / 2),
        ("b-calm", plots.LANE * 3 / 4),
        ("b-warn", plots.LANE / 4),
    ]
    assert "20 deliveries, 5 came again" in drawn.text_content()


def test_lags_share_one_logarithmic_axis() -> None:
    lanes = [
        ReceiverBuckets(name, 1, (TimeBucket(start, {"deliveries": 1}),))
        for name, start in (("a", 1000), ("b", 10_000))
    ]
    drawn = lxml.html.fragment_fromstring(str(plots.lags(lanes)), create_parent=True)
    one, other = (float(bar.get("x")) for bar in drawn.xpath(".//rect"))
    width = (plots.WIDTH - plots.LEFT - plots.RIGHT) / 2  # of a power of ten, of which there are two
    assert one == plots.LEFT
    assert other == pytest.approx(plots.LEFT + width, abs=0.1)


def test_empty_tables_draw_no_plots() -> None:
    assert not plots.violations([], 0, 0, 1)
    assert not plots.timeline([], 0, 0, 1)
    assert not plots.lags([])
    assert not plots.repeats([ReceiverBuckets("C", 3, (TimeBucket(1, {"messages": 3}),))])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.50 µs"),
        (-12_340_000, "-12.3 ms"),
        (61_000_000_000, "61.0 s"),
    ],
)
def test_times_have_three_digits(value: int | None, text: str) -> None:
    assert units.time(value) == text
