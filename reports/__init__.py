"""Reports: consumers of verdict events. They know ``conformance.verdicts`` and nothing else of ours.

``open_reports`` opens those that were asked for and fails before the run if one cannot be written;
then every event goes to every consumer. Files appear, whole, when ``RunFinished`` comes: a run that ends
without it leaves none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from conformance.verdicts import Event
from reports.files import ReportError

__all__ = ["Consumer", "ReportError", "open_reports"]


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
) -> list[Consumer]:
    """The consumers that write these files. Raises ``ReportError`` if one could not be written."""
    asked = [path.resolve() for path in (json, junit, html, markdown) if path is not None]
    for path in asked:
        if asked.count(path) > 1 and (path.is_file() or not path.exists()):
            raise ReportError(f"two reports would be written to {path}; give each a file of its own")
    opened: list[Consumer] = []
    if json is not None:
        from reports.result_json import ResultJson

        opened.append(ResultJson(json))
    if junit is not None:
        from reports.junit import JUnit

        opened.append(JUnit(junit))
    if html is not None:
        from reports.html import HtmlReport

        opened.append(HtmlReport(html))
    if markdown is not None:
        from reports.summary_md import MarkdownSummary

        opened.append(MarkdownSummary(markdown))
    return opened
