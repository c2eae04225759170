"""The HTML report: one self-contained file, readable without JavaScript, safe whatever a server sent.

Every value that the template puts out passes ``_shown``: escaped, with what has no glyph made visible.
A content security policy allows this page's own style and script by their hashes and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup, escape
from msgspec.structs import replace

from conformance.verdicts import Event, RunFinished, RunResult
from reports.files import ReportFile
from reports.html_view import Card, page, slug
from reports.text import LAYOUT, elide, one_line, segments

EVIDENCE_BYTES = 5_000_000  # of markup; once the cards hold that much, later ones stay without evidence
BRIEF_LIMIT = 200


class HtmlReport:
    """Writes the page at the end of a run."""

    def __init__(self, path: Path) -> None:
        self._file = ReportFile(path, "html")

    def consume(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._file.write(render(event.result))


def render(result: RunResult) -> bytes:
    """The whole page."""
    environment = _environment()
    shown = page(result)
    draw = environment.get_template("card.html.j2").render
    spent = 0
    drawn: dict[str, Markup] = {}
    for card in (card for section in shown.sections for card in section.cards):
        markup = draw(card=card if spent < EVIDENCE_BYTES else _without_evidence(card))
        spent += len(markup)
        drawn[card.anchor] = Markup(markup)
    style, script = _asset("report.css"), _asset("report.js")
    document = environment.get_template("report.html.j2").render(
        page=shown,
        cards=drawn,
        style=style,
        script=script,
        policy=_policy(style, script),
    )
    return document.encode()


def _without_evidence(card: Card) -> Card:
    return replace(card, diagram=None, evidence=False)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "slug": slug,
        "plain": one_line,  # for attributes and titles, where no markup may stand
        "limit": elide,
        "line": lambda text: _marked(text, keep=""),  # an operation: its line ends count
        "brief": lambda text: elide(one_line(text), BRIEF_LIMIT),
    }
    return environment


def _shown(value: object) -> object:
    """What the template puts out, made safe; markup of our own and numbers pass."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _marked(value, LAYOUT)


def _marked(text: str, keep: str) -> Markup:
    """Text as markup: escaped, and characters without a glyph as escapes that look different."""
    if text.isprintable():
        return escape(text)
    return Markup(
        "".join(
            f'<i class="x">{segment.text}</i>' if segment.hidden else str(escape(segment.text))
            for segment in segments(text, keep=keep)
        )
    )


@cache
def _asset(name: str) -> Markup:
    """Our own style or script, put into the page as it is."""
    return Markup(files("reports").joinpath("templates", name).read_text("utf-8"))


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"sha256-{digest}"
