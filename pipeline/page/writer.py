"""Writes the page of a result into the folder of its tables."""

from __future__ import annotations

from plumbline.pipeline.page.gather import gather
from plumbline.pipeline.page.html import render
from plumbline.pipeline.results import LocalResults, Results

PAGE = "plumbline-report.html"


def write_page(results: Results | LocalResults) -> str:
    """The page of the result, replaced in one step; gives its address."""
    tables = {name: results.table(name) for name in results.manifest.tables}
    results.folder.replace(PAGE, render(gather(tables)).decode())
    return results.folder.at(PAGE)
