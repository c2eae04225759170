"""A run as one HTML page without scripts: verdicts, and a time line of operations, faults and leaders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape

from plumbline.cluster.history import AttemptOutcome
from plumbline.cluster.result import ClusterResult, as_text
from plumbline.wire.units import SECOND

WIDTH, HEIGHT = 1000, 200  # of the bars, in pixels
FAULTS_AT, LEADERS_AT = HEIGHT + 14, HEIGHT + 34
MOST_BARS = 300
COLOURS = {
    AttemptOutcome.OK: "#2e7d32",
    AttemptOutcome.INDETERMINATE: "#f9a825",
    AttemptOutcome.FAILED: "#c62828",
}
WORDS = {
    AttemptOutcome.OK: "acknowledged",
    AttemptOutcome.INDETERMINATE: "without an answer",
    AttemptOutcome.FAILED: "refused",
}
STYLE = """
body { font-family: system-ui, sans-serif; margin: 2em auto; max-width: 1040px; color: #222 }
pre { background: #f5f5f5; padding: 1em; overflow-x: auto; white-space: pre-wrap }
td, th { text-align: left; padding: .2em .8em .2em 0; vertical-align: top }
.failed { color: #c62828; font-weight: bold }
svg { width: 100%; height: auto }
"""


def as_html(found: ClusterResult) -> str:
    """The whole page."""
    summary = found.result.summary
    rows = "".join(
        f"<tr><td class={check.outcome.value}>{escape(check.outcome.value)}</td>"
        f"<td>{escape(check.requirements[0])}</td><td>{escape(check.level)}</td>"
        f"<td>{escape(check.title)}<br>{escape(check.message)}</td></tr>"
        for check in found.result.checks
    )
    title = f"{found.server}: {summary.verdict}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n"
        f"<p>{escape(found.command)}</p>\n<h2>Time line</h2>\n{_time_line(found)}\n"
        f"<h2>Requirements</h2>\n<table>{rows}</table>\n"
        f"<h2>Summary</h2>\n<pre>{escape(chr(10).join(as_text(found)).strip())}</pre>\n</body></html>\n"
    )


def _time_line(found: ClusterResult) -> str:
    """Publishes by the time when they were sent, the faults below, and when another node led."""
    run = found.run
    sent = [(attempt.invoked - run.zero, attempt.outcome) for attempt in run.history.attempts]
    end = max([at for at, _ in sent] + [fault.healed for fault in run.faults], default=0) + 1
    bars = max(min(end // SECOND, MOST_BARS), 1)
    counts = Counter((at * bars // end, outcome) for at, outcome in sent)
    highest = max((sum(counts[bar, outcome] for outcome in COLOURS) for bar in range(bars)), default=1) or 1
    shapes = [*_bars(counts, bars, highest), *_faults(found, end), *_leaders(found, end)]
    legend = ", ".join(
        f'<span style="color:{colour}">&#9632;</span> {WORDS[one]}' for one, colour in COLOURS.items()
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {LEADERS_AT + 16}" role="img" font-size="11">{"".join(shapes)}</svg>\n'
        f"<p>Publishes in {end / SECOND:.0f} s: {legend}. "
        "Below: faults, from begin to end; then when another node led.</p>"
    )


def _bars(counts: Counter[tuple[int, AttemptOutcome]], bars: int, highest: int) -> Iterator[str]:
    width = WIDTH / bars
    for bar in range(bars):
        top = float(HEIGHT)
        for outcome, colour in COLOURS.items():
            count = counts[bar, outcome]
            height = count * HEIGHT / highest
            top -= height
            if count:
                yield (
                    f'<rect x="{bar * width:.1f}" y="{top:.1f}" width="{width:.2f}" height="{height:.1f}" '
                    f'fill="{colour}"><title>{count} {WORDS[outcome]}</title></rect>'
                )


def _faults(found: ClusterResult, end: int) -> Iterator[str]:
    for fault in found.run.faults:
        left, right = fault.struck * WIDTH / end, fault.healed * WIDTH / end
        recovery = "never" if fault.recovery_s is None else f"{fault.recovery_s:.1f} s"
        text = f"{fault.fault}; recovery {recovery}"
        yield (
            f'<rect x="{left:.1f}" y="{FAULTS_AT - 11}" width="{right - left:.1f}" height="14" '
            'fill="#b0bec5">'
            f'<title>{escape(text)}</title></rect><text x="{left:.1f}" y="{FAULTS_AT}">'
            f"{escape(fault.fault)}</text>"
        )


def _leaders(found: ClusterResult, end: int) -> Iterator[str]:
    for at, text in found.run.timeline:
        if text.endswith(" leads") and 0 <= at <= end:
            left = at * WIDTH / end
            yield (
                f'<line x1="{left:.1f}" x2="{left:.1f}" y1="0" y2="{LEADERS_AT}" stroke="#1565c0" '
                f'stroke-dasharray="2 3"/><text x="{left:.1f}" y="{LEADERS_AT}">'
                f"{escape(text.removesuffix(' leads'))}</text>"
            )
