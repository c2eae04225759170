"""A badge: one small SVG that says whether a target is conformant, for a README or a status page.

It loads nothing, takes the reader's fonts, and says the same to who cannot see it. White on each ground meets
WCAG AA (tests/reports/test_badge.py).
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from plumbline.reports.digest import Tone, tone
from plumbline.reports.files import ReportFile
from plumbline.reports.text import elide
from plumbline.verdicts import Event, RunFinished, RunResult
from plumbline.visible import one_line

LABEL = "plumbline"
LABEL_GROUND = "#3c4454"
GROUNDS: dict[Tone, str] = {"good": "#12683b", "bad": "#ab1820", "unclear": "#7d4a00"}
LETTER = 6.6  # width of one at 11 units, on average
VERSION_LIMIT = 24
HEIGHT = 20


class BadgeReport:
    """Writes the file at the end of a run."""

    def __init__(self, path: Path) -> None:
        self._file = ReportFile(path, "svg")

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._file.write(render(event.result))


def render(result: RunResult) -> bytes:
    """The file's bytes."""
    return badge(LABEL, message(result), GROUNDS[tone(result.summary.exit_code)])


def message(result: RunResult) -> str:
    """``2.10.22 conformant 538/539``."""
    summary = result.summary
    parts = [
        elide_short(result.target.version),
        elide_short(summary.verdict, 40),
        f"{summary.passed}/{summary.claimed}" if summary.claimed else "",
    ]
    return " ".join(word for word in parts if word)


def elide_short(text: str, limit: int = VERSION_LIMIT) -> str:
    """``text`` on one line, cut with three dots: there is no room to tell its size."""
    shown = one_line(elide(text, 4 * limit))
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def badge(label: str, text: str, ground: str) -> bytes:
    """``label | text`` on ``ground``, any text escaped."""
    left, right = (round(LETTER * len(words) + 12) for words in (label, text))
    whole = left + right
    title = quoteattr(f"{label}: {text}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{HEIGHT}"'
        f' viewBox="0 0 {whole} {HEIGHT}" role="img" aria-label={title}>',
        f"<title>{escape(f'{label}: {text}')}</title>",
        f'<rect width="{whole}" height="{HEIGHT}" rx="3" fill="{LABEL_GROUND}"/>',
        f'<path fill="{ground}" d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{right - 3}z"/>',
        '<g fill="#ffffff" font-family="Verdana,DejaVu Sans,Geneva,sans-serif" font-size="11"'
        ' text-anchor="middle">',
        _words(label, left / 2, left - 12),
        _words(text, left + right / 2, right - 12),
        "</g></svg>\n",
    ]
    return "".join(parts).encode()


def _words(text: str, middle: float, width: float) -> str:
    """Text of exactly ``width``, whatever font the reader has."""
    return (
        f'<text x="{middle:g}" y="14" textLength="{width:g}" lengthAdjust="spacingAndGlyphs"'
        f' unicode-bidi="bidi-override" direction="ltr">{escape(text)}</text>'
    )
