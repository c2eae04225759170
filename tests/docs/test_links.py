"""Every link of README.md and docs/ to a file of this repository leads somewhere, with its anchor."""

from __future__ import annotations

import functools
import re
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

from docs._ext import examples, pages
from tests.docs.pages import DOCS, ROOT, Page
from tests.docs.pages import page as page_of
from tests.docs.pages import pages as written_pages

PAGES = written_pages()
DOCUMENTS = [page_of(ROOT / name) for name in pages.DOCUMENTS if not name.startswith("CONTRIBUTING")]


@functools.cache
def text_of(path: Path) -> str | None:
    """What is there, or will be once the site is built; None if nothing is."""
    if path.is_relative_to(DOCS):
        name = path.relative_to(DOCS).as_posix()
        name = pages.fragment(name) if name in pages.DOCUMENTS.values() else name
        if name in pages.generated():
            return pages.generated()[name]
    return path.read_text(encoding="utf-8") if path.suffix == ".md" and path.is_file() else None


def anchors(text: str) -> set[str]:
    """Ids of headings, as GitHub and MyST make them, and of explicit spans."""
    tokens = MarkdownIt("commonmark").parse(text)
    headings = [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"]
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<span id="([^"]+)">', text))


def broken(page: Page) -> list[str]:
    """Links of a page that lead nowhere."""
    found = []
    raw = re.findall(r'(?:href|src)="([^"]+)"', page.path.read_text(encoding="utf-8"))
    for link in (*page.links, *raw):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = unquote(link).partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        text = text_of(path)
        example = path.is_relative_to(DOCS) and path.relative_to(DOCS).as_posix() in examples.FILES
        if not (text is not None or example or path.exists()) or not path.is_relative_to(ROOT):
            found.append(f"{link}: no such file")
        elif anchor and text is not None and anchor not in anchors(text):
            found.append(f"{link}: no such heading")
    return found


@pytest.mark.parametrize("page", [*PAGES, *DOCUMENTS], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    assert broken(page) == []


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = [
        (
            page.path.parent / line.rpartition("<")[2].strip(" >")
        ).as_posix()  # "Title <page>", or the page alone
        for page in PAGES
        for block in page.blocks
        if block.language == "{toctree}"
        for line in block.text.splitlines()
        if line.strip() and not line.startswith(":")
    ]
    pages_of_the_site = [
        page for page in PAGES if page.path.is_relative_to(DOCS) and page.name != "docs/index.md"
    ]
    missing = [
        page.name
        for page in pages_of_the_site
        if not any(fnmatch(page.path.with_suffix("").as_posix(), pattern) for pattern in listed)
    ]
    assert missing == []
