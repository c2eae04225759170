"""The report in a real browser: it opens, filters, leads to the diagram, and does nothing strangers wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, expect

from plumbline.reports.html.page import render
from plumbline.verdicts import CheckResult, RunResult
from tests.reports.browser import chromium, plain_list, processor_time, reader, serious_violations
from tests.reports.samples import big_result, conformant_result, exchange, sample_result
from tests.reports.test_html import everything_hostile

CARD = "#check-adr-13-no-wait-on-an-empty-consumer"
SCRIPTS = "<script>window.hit=1;alert(1)</script><img src=x onerror=window.hit=1><svg onload=window.hit=1>"
SUBJECT = f"\u202e\u2066orders.{SCRIPTS}\u200f{'{{7*7}}'}javascript:window.hit=1"
ROUNDS = 3


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def written(folder: Path, result: RunResult) -> Path:
    path = folder / "report.html"
    path.write_bytes(render(result))
    return path


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return written(tmp_path, sample_result())


VISIBLE = "items => items.filter(item => item.checkVisibility()).map(item => item.id)"


def test_page_opens_without_errors_or_requests(browser: Browser, sample: Path) -> None:
    with reader(browser) as person:
        page = person.open(sample)
        expect(page.get_by_role("heading", level=1)).to_have_text("!Not conformant")
        expect(page.get_by_role("search")).to_be_visible()
        person.assert_quiet(sample)


@pytest.mark.parametrize(
    ("search", "group", "level", "outcome", "left"),
    [
        ("", "", "", "waived", {"CORE-044", "check-core-queue-groups"}),
        ("", "JS-PULL", "SHOULD", "", {"JS-PULL-040", "check-adr-13-idle-heartbeat"}),
        ("QUEUE member", "", "", "", {"CORE-044", "check-core-queue-groups"}),
        ("both members got", "", "", "", {"check-core-queue-groups"}),
        ("pub size", "CORE", "MUST", "passed", {"CORE-018"}),
    ],
)
def test_filters_leave_only_matching_checks(
    browser: Browser, sample: Path, search: str, group: str, level: str, outcome: str, left: set[str]
) -> None:
    with reader(browser) as person:
        page = person.open(sample)
        everything = page.locator("[data-o]").evaluate_all(VISIBLE)
        page.get_by_label("Search").fill(search)
        for label, value in (("Group", group), ("Level", level), ("Outcome", outcome)):
            page.get_by_label(label).select_option(value)
        expect(page.locator("#f-count")).to_contain_text("problems shown")
        # The page filters a moment after a change; on a busy machine that is before the next change.
        expect(page.locator("[data-o]").filter(visible=True)).to_have_count(len(left))
        assert set(page.locator("[data-o]").evaluate_all(VISIBLE)) == left
        page.get_by_role("button", name="Reset").click()
        expect(page.locator("#f-count")).to_be_empty()
        # A browser empties the count itself, a moment before the page shows everything again.
        expect(page.locator("[data-o]").filter(visible=True)).to_have_count(len(everything))
        assert page.locator("[data-o]").evaluate_all(VISIBLE) == everything
        person.assert_quiet(sample)


def test_a_failure_is_followed_from_its_requirement_to_its_diagram(browser: Browser, sample: Path) -> None:
    with reader(browser) as person:
        page = person.open(sample)
        page.get_by_label("Search").fill("JS-PULL-021 answered at once")
        row = page.locator("#JS-PULL-021")
        expect(page.locator("#CORE-001")).to_be_hidden()
        row.locator("summary").click()
        page.locator(CARD).evaluate("card => card.open = false")
        row.get_by_role("link").click()
        diagram = page.locator(CARD).get_by_role("img")
        expect(diagram).to_be_visible()
        expect(page.locator(CARD)).to_be_in_viewport()
        expect(diagram.locator(".off .op")).to_contain_text("NATS/1.0 408 Request Timeout")
        expect(diagram.locator(".fault")).to_contain_text("404 No Messages")
        person.assert_quiet(sample)


def test_a_link_to_what_is_filtered_away_shows_it(browser: Browser, sample: Path) -> None:
    with reader(browser) as person:
        page = person.open(sample)
        page.get_by_label("Outcome").select_option("waived")
        expect(page.locator("#JS-SEQ-002")).to_be_hidden()
        page.locator(".differences").get_by_role("link", name="JS-SEQ-002").click()
        expect(page.locator("#JS-SEQ-002")).to_be_in_viewport()
        expect(page.locator("#JS-SEQ-002 p").first).to_be_visible()


def test_page_is_usable_by_keyboard(browser: Browser, sample: Path) -> None:
    with reader(browser) as person:
        page = person.open(sample)
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the results")).to_be_focused()
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "f-text":
                break
        page.keyboard.type("idle heartbeat")
        expect(page.locator("#CORE-001")).to_be_hidden()
        focused = "document.activeElement.closest('details')?.id"
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate(focused) == "JS-PULL-040":
                break
        page.keyboard.press("Enter")
        expect(page.locator("#JS-PULL-040 p").first).to_be_visible()
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"


def test_without_javascript_everything_is_there_to_read(browser: Browser, sample: Path) -> None:
    with reader(browser, java_script_enabled=False) as person:
        page = person.open(sample)
        expect(page.get_by_role("search")).to_be_hidden()
        expect(page.locator(CARD).get_by_role("img")).to_be_visible()
        page.locator("#CORE-001 summary").click()
        expect(page.locator("#CORE-001 p").first).to_be_visible()
        person.assert_quiet(sample)


def hostile(subject: str) -> RunResult:
    """A failure whose subject, and everything else a stranger names, is ``subject``."""
    base = everything_hostile()

    def marked(check: CheckResult) -> CheckResult:
        wire = exchange(f"> SUB {subject} 1", f"< MSG {subject} 1 5 | x", connection=subject, offending=1)
        return replace(
            check, title=subject, message=subject, expected=subject, actual=subject, waiver=subject, wire=wire
        )

    return replace(
        base,
        checks=tuple(map(marked, base.checks)),
        requirements=tuple(replace(found, statement=subject, group=subject) for found in base.requirements),
        target=replace(base.target, server_name=subject, version=subject),
    )


@pytest.mark.parametrize("subject", [SUBJECT, SCRIPTS + "x" * 1_000_000], ids=["bidi", "a megabyte"])
def test_a_hostile_subject_does_nothing(browser: Browser, tmp_path: Path, subject: str) -> None:
    path = written(tmp_path, hostile(subject))
    with reader(browser) as person:
        page = person.open(path)
        page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        page.get_by_label("Search").fill("orders.<script>")
        expect(page.locator("#f-count")).to_contain_text("problems shown")
        page.get_by_role("button", name="Reset").click()
        assert page.evaluate("[window.hit, document.scripts.length, document.images.length]") == [None, 1, 0]
        assert (
            page.evaluate("document.querySelectorAll('[onload], [onerror], [onclick], [style]').length") == 0
        )
        assert not set("\u202e\u2066\u200f") & set(page.evaluate("document.documentElement.outerHTML"))
        assert page.title().isprintable()
        person.assert_quiet(path)


@pytest.mark.parametrize(
    ("result", "scheme"),
    [
        pytest.param(sample_result(), "light", id="red, light"),
        pytest.param(sample_result(), "dark", id="red, dark"),
        pytest.param(conformant_result(), "light", id="green, light"),
        pytest.param(hostile(SUBJECT), "dark", id="hostile, dark"),
    ],
)
def test_axe_finds_nothing_serious(browser: Browser, tmp_path: Path, result: RunResult, scheme: str) -> None:
    path = written(tmp_path, result)
    with reader(browser, color_scheme=scheme) as person:
        page = person.open(path)
        page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert serious_violations(page) == []


@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_narrow_window_scrolls_down_only(browser: Browser, sample: Path, width: int) -> None:
    with reader(browser, viewport={"width": width, "height": 800}) as person:
        page = person.open(sample)
        page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_paper_problems_are_open_and_controls_are_gone(browser: Browser, sample: Path) -> None:
    with reader(browser, java_script_enabled=False) as person:
        page = person.open(sample)
        page.locator(CARD).locator("summary").first.click()
        expect(page.locator(CARD).locator(".pair")).to_be_hidden()
        page.emulate_media(media="print")
        expect(page.get_by_role("navigation")).to_be_hidden()
        expect(page.locator(CARD).locator(".pair")).to_be_visible()
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_ten_thousand_requirements_open_faster_than_a_plain_list(browser: Browser, tmp_path: Path) -> None:
    """Both pages run side by side, so that a busy machine slows both; in processor time.

    The report has three times as many elements and lays out only what is visible. For seconds, see the bench
    ``tests.bench.report_page``.
    """
    report = written(tmp_path, big_result(10_000))
    assert report.stat().st_size < 15_000_000
    plain = tmp_path / "plain.html"
    plain.write_bytes(plain_list(10_000))
    rounds = [(processor_time(browser, report), processor_time(browser, plain)) for _ in range(ROUNDS)]
    assert min(ours for ours, _ in rounds) < min(theirs for _, theirs in rounds), rounds
