"""The site of many runs in a real browser: from the matrix to a target, to its run, to a requirement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, expect

from plumbline.reports.matrix.runs import TargetRunResult, target_name
from plumbline.reports.matrix.site import SiteOptions, build
from plumbline.verdicts import RunResult, Target
from tests.reports.browser import chromium, reader, serious_violations
from tests.reports.samples import HOSTILE, conformant_result, sample_result
from tests.reports.test_html import everything_hostile

DAYS = ("2026-11-19T08:00:00+00:00", "2026-11-20T08:00:00+00:00", "2026-11-21T08:00:00+00:00")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def run(result: RunResult, version: str, started: str) -> TargetRunResult:
    target = Target("nats://127.0.0.1:1", version=version, arguments=("--server", "/opt/nats-server"))
    dated = replace(result, target=target, summary=replace(result.summary, started=started))
    return TargetRunResult(target_name(target), dated)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases, one of them with a history, and a target whose texts are all hostile."""
    hostile = everything_hostile()
    given = [
        run(sample_result(), "2.10.22", DAYS[0]),
        run(conformant_result(), "2.10.22", DAYS[1]),
        run(sample_result(), "2.10.22", DAYS[2]),
        run(conformant_result(), "2.11.0", DAYS[2]),
        TargetRunResult(HOSTILE, replace(hostile, summary=replace(hostile.summary, started=DAYS[2]))),
    ]
    return build(given, (), tmp_path_factory.mktemp("site"), SiteOptions())


def pages(site: Path) -> list[Path]:
    return sorted(site.parent.rglob("*.html"))


def test_from_the_matrix_to_a_target_to_the_report_of_its_run(browser: Browser, site: Path) -> None:
    with reader(browser) as person:
        page = person.open(site)
        expect(page.get_by_role("heading", level=1)).to_contain_text("Conformance matrix")
        page.get_by_role("table").first.get_by_role("link", name="nats-server@2.10.22").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("nats-server@2.10.22")
        page.locator("a[href='20261120T080000Z.html']").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("✓Conformant")
        person.assert_quiet(*pages(site))


def test_an_address_of_a_requirement_leads_to_it(browser: Browser, site: Path) -> None:
    with reader(browser) as person:
        page = person.open(site.parent / "requirements" / "JS-PULL.html", "JS-PULL-021")
        expect(page.locator("#JS-PULL-021")).to_be_in_viewport()
        expect(page.locator("#JS-PULL-021")).to_contain_text("404 No Messages")
        person.assert_quiet(*pages(site))


@pytest.mark.parametrize(
    ("page_of", "scheme"),
    [
        ("index.html", "light"),
        ("index.html", "dark"),
        ("requirements/JS-PULL.html", "light"),
        ("requirements/JS-PULL-021.html", "light"),
        ("requirements/JS-PULL-021.html", "dark"),
        ("unstable.html", "light"),
        ("targets/nats-server_2.10.22/index.html", "dark"),
        ("changes/nats-server_2.10.22..nats-server_2.11.0.html", "light"),
    ],
)
def test_every_kind_of_page_is_quiet_and_readable_to_all(
    browser: Browser, site: Path, page_of: str, scheme: str
) -> None:
    path = site.parent / page_of
    with reader(browser, color_scheme=scheme) as person:
        page = person.open(path)
        assert serious_violations(page) == []
        assert page.evaluate("[window.hit, document.images.length]") == [None, 0]
        assert not set("\u202e\x00") & set(page.evaluate("document.documentElement.outerHTML"))
        person.assert_quiet(path)


def test_the_matrix_is_searched(browser: Browser, site: Path) -> None:
    with reader(browser) as person:
        page = person.open(site.parent / "requirements" / "JS-PULL.html")
        page.locator("#f-text").fill("408")
        expect(page.locator("#JS-PULL-021")).to_be_hidden()
        expect(page.locator("#JS-PULL-030")).to_be_visible()
        person.assert_quiet(*pages(site))


@pytest.mark.parametrize("width", [320, 768])
def test_a_narrow_window_scrolls_down_only(browser: Browser, site: Path, width: int) -> None:
    with reader(browser, viewport={"width": width, "height": 800}) as person:
        for path in (site, site.parent / "requirements" / "JS-PULL.html"):
            page = person.open(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
