"""The plot of a target's runs over time: inline SVG; the table beside it says the same in words."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from plumbline.reports.digest import tone
from plumbline.reports.matrix.runs import TargetRunResult

WIDTH, HEIGHT = 640, 150
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 26
MAX_RUNS = 60  # runs that are drawn, the latest ones


def plot(runs: Sequence[TargetRunResult]) -> Markup:
    """Claimed and passed requirements of each run, the oldest first; nothing for less than two runs."""
    recent = runs[-MAX_RUNS:]
    if len(recent) < 2:
        return Markup("")
    summaries = [run.result.summary for run in recent]
    counts = [number for one in summaries for number in (one.claimed, one.passed)]
    low, high = _scale(min(counts), max(counts))
    step = (WIDTH - LEFT - RIGHT) / (len(recent) - 1)

    def across(index: int) -> float:
        return round(LEFT + index * step, 1)

    def down(number: int) -> float:
        return round(TOP + (high - number) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    def line(kind: str, numbers: Sequence[int]) -> str:
        points = " ".join(f"{across(index)},{down(number)}" for index, number in enumerate(numbers))
        return f'<polyline class="h-{kind}" points="{points}"/>'

    dots = "".join(
        f'<circle class="{"d-good" if tone(one.exit_code) == "good" else "d-bad"}" cx="{across(index)}"'
        f' cy="{down(one.passed)}" r="4"><title>{escape(one.started)}: {one.passed} of {one.claimed} passed,'
        f" {escape(one.verdict)}</title></circle>"
        for index, one in enumerate(summaries)
    )
    marks = "".join(
        f'<line class="h-grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{down(number)}" y2="{down(number)}"/>'
        f'<text x="{LEFT - 6}" y="{down(number) + 4}" text-anchor="end">{number}</text>'
        for number in (low, high)
    )
    ends = "".join(
        f'<text x="{across(index)}" y="{HEIGHT - 6}" text-anchor="{anchor}">'
        f"{escape(summaries[index].started[:10])}</text>"
        for index, anchor in ((0, "start"), (len(recent) - 1, "end"))
    )
    passed, claimed = [one.passed for one in summaries], [one.claimed for one in summaries]
    caption = (
        f"Passed requirements of {len(recent)} runs: {passed[0]} at first, {passed[-1]} of {claimed[-1]} now."
    )
    return Markup(
        f'<svg class="history" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{caption}">'
        f"{marks}{line('claimed', claimed)}{line('passed', passed)}{dots}{ends}</svg>"
    )


def _scale(lowest: int, highest: int) -> tuple[int, int]:
    """Round ends with some room, never the same."""
    low = max(0, lowest // 10 * 10 - 10)
    return low, max(highest // 10 * 10 + 10, low + 10)
