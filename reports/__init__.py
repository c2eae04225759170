"""Reports: consumers of verdict events. They know ``verdicts`` and nothing else of ours.

``open_reports`` opens those that were asked for and fails before the run if one cannot be written;
then every event goes to every consumer. Files appear, whole, when ``RunFinished`` comes: a run that ends
without it leaves none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from plumbline.reports.files import ReportError
from plumbline.verdicts import Event, Target, WireLine

__all__ = ["Capture", "Consumer", "ReportError", "open_reports"]

# A capture file of what a check exchanged with the target; the float is when it began, since the epoch.
Capture = Callable[[Target, Sequence[WireLine], float], bytes]


class Consumer(Protocol):
    """What a report is to the run."""

    def consume(self, event: Event) -> None:
        """Takes the next event. May raise ``ReportError`` at ``RunFinished``."""


def open_reports(
    *,
    json: Path | None = None,
    junit: Path | None = None,
    html: Path | None = None,
    markdown: Path | None = None,
    sarif: Path | None = None,
    badge: Path | None = None,
    allure: Path | None = None,
    requirement_url: str = "",
    capture: Capture | None = None,
) -> list[Consumer]:
    """The consumers that write these files (``allure``: a folder). Raises ``ReportError`` if one could not be
    written.

    ``requirement_url``, with ``{group}`` and ``{id}`` in it, is where requirements are published; without it,
    links lead to the HTML report of the same run, if there is one. ``capture`` makes captures for Allure.
    """
    paths = (json, junit, html, markdown, sarif, badge, allure)
    asked = [path.resolve() for path in paths if path is not None]
    for path in asked:
        if asked.count(path) > 1 and (path.is_file() or path.is_dir() or not path.exists()):
            raise ReportError(f"two reports would be written to {path}; give each a file of its own")
    opened: list[Consumer] = []
    if json is not None:
        from plumbline.reports.result_json import ResultJson

        opened.append(ResultJson(json))
    if junit is not None:
        from plumbline.reports.junit import JUnit

        opened.append(JUnit(junit))
    if html is not None:
        from plumbline.reports.html.page import HtmlReport

        opened.append(HtmlReport(html))
    if markdown is not None:
        from plumbline.reports.summary_md import MarkdownSummary

        opened.append(MarkdownSummary(markdown))
    if sarif is not None:
        from plumbline.reports.sarif import Sarif

        opened.append(Sarif(sarif, requirement_url))
    if badge is not None:
        from plumbline.reports.badge import Badge

        opened.append(Badge(badge))
    if allure is not None:
        from plumbline.reports.allure import Allure

        local = f"{html.resolve().as_uri()}#{{id}}" if html is not None else ""
        opened.append(Allure(allure, requirement_url or local, capture))
    return opened
