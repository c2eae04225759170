"""The report formats, each registered here and nowhere else.

``FORMATS`` has them by the name of their option: ``junit`` is ``--junit FILE`` of verify, gate and report.
To add a format, write its consumer of verdict events and register a function that opens it. Its module is
imported when a report is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from plumbline.reports.files import ReportError
from plumbline.verdicts import Event, Target, WireLine

# Makes a capture file of what a check exchanged with the target; the float is when it began, in s since 1970.
Capture = Callable[[Target, Sequence[WireLine], float], bytes]


class ReportWriter(Protocol):
    """What a report is to the run."""

    def on_event(self, event: Event) -> None:
        """Takes the next event. May raise ``ReportError`` at ``RunFinished``."""


class ReportOptions(Struct, frozen=True):
    """The reports that a command line asks for: option name -> path, and where requirements are published."""

    paths: Mapping[str, Path] = {}
    requirement_url: str = ""  # with {group} and {id} in it; "": not published


class Links(Struct, frozen=True):
    """What some formats need beside their path: see ``open_reports``."""

    requirement_url: str = ""
    html: Path | None = None  # the HTML report of the same run
    capture: Capture | None = None


class Format(Struct, frozen=True):
    """One format: how its option looks, and what opens it. ``open`` raises ``ReportError``."""

    metavar: str  # FILE or DIR
    help: str
    open: Callable[[Path, Links], ReportWriter]


Opener = Callable[[Path, Links], ReportWriter]
FORMATS: dict[str, Format] = {}


def report_format(name: str, metavar: str, help_text: str) -> Callable[[Opener], Opener]:
    """Registers the function that opens a report of this format at a path."""

    def register(opener: Opener) -> Opener:
        FORMATS[name] = Format(metavar, help_text, opener)
        return opener

    return register


@report_format("html", "FILE", "Write the report as one HTML page.")
def _html(path: Path, links: Links) -> ReportWriter:
    from plumbline.reports.html.page import HtmlReport

    return HtmlReport(path)


@report_format("json", "FILE", "Write the result as JSON.")
def _json(path: Path, links: Links) -> ReportWriter:
    from plumbline.reports.result_json import ResultJson

    return ResultJson(path)


@report_format("junit", "FILE", "Write JUnit XML.")
def _junit(path: Path, links: Links) -> ReportWriter:
    from plumbline.reports.junit import JUnitReport

    return JUnitReport(path)


@report_format("markdown", "FILE", "Write a Markdown summary.")
def _markdown(path: Path, links: Links) -> ReportWriter:
    from plumbline.reports.summary_md import MarkdownSummary

    return MarkdownSummary(path)


@report_format("sarif", "FILE", "Write the failures as SARIF.")
def _sarif(path: Path, links: Links) -> ReportWriter:
    from plumbline.reports.sarif import SarifReport

    return SarifReport(path, links.requirement_url)


@report_format("badge", "FILE", "Write a badge as SVG.")
def _badge(path: Path, links: Links) -> ReportWriter:
    from plumbline.reports.badge import BadgeReport

    return BadgeReport(path)


@report_format("allure", "DIR", "Write results for Allure into this folder.")
def _allure(path: Path, links: Links) -> ReportWriter:
    from plumbline.reports.allure import AllureReport

    local = f"{links.html.resolve().as_uri()}#{{id}}" if links.html is not None else ""
    return AllureReport(path, links.requirement_url or local, links.capture)


def open_reports(
    paths: Mapping[str, Path], *, requirement_url: str = "", capture: Capture | None = None
) -> list[ReportWriter]:
    """The consumers that write these reports: name of a format -> path. Raises ``ReportError`` if one could
    not be written.

    ``requirement_url``, with ``{group}`` and ``{id}`` in it, is where requirements are published; without it,
    links lead to the HTML report of the same run, if there is one. ``capture`` makes captures for Allure.
    """
    resolved = [path.resolve() for path in paths.values()]
    for path in resolved:
        if resolved.count(path) > 1 and (path.is_file() or path.is_dir() or not path.exists()):
            raise ReportError(f"two reports would be written to {path}; use different files")
    links = Links(requirement_url, paths.get("html"), capture)
    return [FORMATS[name].open(path, links) for name, path in paths.items()]
