"""The HTML report: one self-contained file, readable without JavaScript, safe whatever a server sent.

What makes it safe is ``reports.markup``.
"""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup
from msgspec.structs import replace

from plumbline.reports import diagram
from plumbline.reports.files import ReportFile
from plumbline.reports.html.view import CARDS, CheckCard, page
from plumbline.reports.manual_script import ManualScript, manual_script
from plumbline.reports.markup import asset, environment, policy, style_of
from plumbline.verdicts import Event, RunFinished, RunResult

EVIDENCE_BYTES = 5_000_000  # of markup; once the cards hold that much, later ones stay without evidence
SITE_EVIDENCE_BYTES = 300_000  # the same where there are many reports
SITE_CARDS = 100
SITE_LISTED = ("passed", "waived", "unsupported")  # there: a link to the page that has their sentence


class HtmlReport:
    """Writes the page at the end of a run."""

    def __init__(self, path: Path) -> None:
        self._file = ReportFile(path, "html")

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._file.write(render(event.result))


def render(result: RunResult, requirement_pages: str = "") -> bytes:
    """The whole page. ``requirement_pages``: the folder, relative to it, with a page for each requirement.
    Then the page is one of many: what is ``SITE_LISTED`` is a link, and there is less evidence."""
    templates = environment()
    view = page(result, SITE_CARDS if requirement_pages else CARDS)
    draw = templates.get_template("card.html.j2").render
    spent, most = 0, SITE_EVIDENCE_BYTES if requirement_pages else EVIDENCE_BYTES
    drawn: dict[str, Markup] = {}
    for card in (card for section in view.sections for card in section.cards):
        markup = draw(**_with_evidence(card, result) if spent < most else _without_evidence(card))
        spent += len(markup)
        drawn[card.anchor] = Markup(markup)
    style, script = style_of("report.css", "diagram.css"), asset("report.js")
    document = templates.get_template("report.html.j2").render(
        page=view,
        cards=drawn,
        requirement_pages=requirement_pages,
        listed=SITE_LISTED,
        style=style,
        script=script,
        policy=policy(style, script),
    )
    return document.encode()


def _with_evidence(card: CheckCard, result: RunResult) -> dict[str, object]:
    return {
        "card": card,
        "picture": Markup(diagram.draw(card.check)),
        "by_hand": manual_script(result.target, card.check),
    }


def _without_evidence(card: CheckCard) -> dict[str, object]:
    return {
        "card": replace(card, diagram=None, evidence=False),
        "picture": Markup(""),
        "by_hand": ManualScript(),
    }
