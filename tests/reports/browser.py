"""Headless Chromium as a reader of our pages: what one sees, types and follows, and what a page asks for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.conftest import servers_required

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
COMMAND = "apt-get install chromium (or: make servers)"
SERIOUS = {"serious", "critical"}
WINDOW = {"width": 1280, "height": 900}
# On a machine that does much else a page takes its time.
PATIENCE_MS = 90_000
expect.set_options(timeout=30_000)


def require() -> str:
    """The program; without it the test is skipped, or fails where everything has to be there."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        if servers_required():
            pytest.fail(f"no chromium: {COMMAND}", pytrace=False)
        pytest.skip(f"no chromium on this machine: {COMMAND}")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser. It updates nothing and calls no service."""
    program = require()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        try:
            yield browser
        finally:
            browser.close()


class Reader:
    """One page, and everything that it reported and requested."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.reported: list[str] = []
        self.requested: list[str] = []
        page.on("console", lambda message: self.reported.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.reported.append(f"error: {error}"))
        page.on("dialog", self._refuse)
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("popup", lambda popup: self.reported.append(f"popup: {popup.url}"))

    def _refuse(self, dialog: Any) -> None:
        self.reported.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, path: Path, fragment: str = "") -> Page:
        self.page.goto(path.as_uri() + (f"#{fragment}" if fragment else ""))
        return self.page

    def assert_quiet(self, *opened: Path) -> None:
        """Nothing was reported, and only the files that were opened were requested."""
        assert self.reported == []
        assert {url.partition("#")[0] for url in self.requested} <= {path.as_uri() for path in opened}


@contextmanager
def reader(browser: Browser, **options: Any) -> Iterator[Reader]:
    """A page of its own. ``options`` are those of a browser context: colour scheme, size, no script."""
    context: BrowserContext = browser.new_context(**{"viewport": WINDOW, **options})
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield Reader(context.new_page())
    finally:
        context.close()


@cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


def serious_violations(page: Page) -> list[str]:
    """What axe-core finds that keeps somebody from reading the page: rule, and where."""
    # Evaluated, not added as an element: the page's policy refuses every script but its own.
    page.evaluate(_axe())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert len(found["passes"]) > 10, "axe did not look"
    return [
        f"{violation['id']}: {node['target']} {node.get('failureSummary', '')}"
        for violation in found["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


def processor_time(browser: Browser, path: Path) -> float:
    """Seconds of processor time that a new page needs until ``path`` is drawn; it has to be quiet."""
    devtools = browser.new_browser_cdp_session()

    def used() -> float:
        processes = devtools.send("SystemInfo.getProcessInfo")["processInfo"]
        return sum(float(process["cpuTime"]) for process in processes if process["type"] == "renderer")

    with reader(browser) as person:
        before = used()
        page = person.open(path)
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        taken = used() - before
        person.assert_quiet(path)
    return taken


def plain_list(count: int) -> bytes:
    """A page without styles and scripts: ``count`` times a heading, a paragraph and a closed exchange."""
    exchange = "<details><summary>wire</summary><pre>line</pre></details>"
    section = f"<section><h3>one</h3><p>passed</p>{exchange}</section>"
    return f"<!doctype html><title>plain</title><main>{section * count}</main>".encode()
