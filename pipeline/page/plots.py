"""Plots as inline SVG: they take the page's colours, light or dark, print, and need no script.

Each bar has its numbers as a title, and each plot a sentence for those who do not see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from plumbline.pipeline.page.gather import ReceiverBuckets, TimeBucket
from plumbline.pipeline.page.units import count, moment, time
from plumbline.reports.text import elide
from plumbline.visible import one_line

WIDTH, LEFT, RIGHT = 960, 190, 56  # of every plot; names stand left of the axis, totals right of it
_PLOT = WIDTH - LEFT - RIGHT
LANE, GAP, AXIS, TOP = 34, 12, 26, 4
TONES = ("bad", "warn", "calm", "odd", "good", "idle")  # of a stack, the largest first
_MAX_NAME = 26
_TICKS = 5


def violations(stretches: Sequence[TimeBucket], first: int, last: int, width: int) -> Markup:
    """Violations over time, one bar a stretch, stacked by rule; the rarest rules share a colour."""
    if not stretches:
        return Markup("")
    totals: dict[str, int] = {}
    for stretch in stretches:
        for rule, number in stretch.counts.items():
            totals[rule] = totals.get(rule, 0) + number
    rules = sorted(totals, key=lambda rule: (-totals[rule], rule))
    tones = {rule: TONES[min(place, len(TONES) - 1)] for place, rule in enumerate(rules)}
    height = 120
    highest = max(sum(stretch.counts.values()) for stretch in stretches)
    axis = _Axis(first, last, width)
    bars = []
    for stretch in stretches:
        y = float(TOP + height)
        for rule in rules:
            if number := stretch.counts.get(rule, 0):
                tall = height * number / highest
                y -= tall
                caption = f"{moment(stretch.start, width)}: {number} {rule}"
                bars.append(_bar(axis.x(stretch.start), y, axis.bar, tall, tones[rule], caption))
    scale = _label(LEFT - 8, TOP + 11, count(highest), "end") + _label(LEFT - 8, TOP + height, "0", "end")
    caption = f"{sum(totals.values())} violations of {len(rules)} rules, at most {highest} in {time(width)}"
    svg = _svg(height + TOP + AXIS, caption, [scale, *bars, axis.drawn(TOP + height)])
    return svg + _legend([(tones[rule], f"{rule}: {count(totals[rule])}") for rule in rules])


def timeline(lanes: Sequence[ReceiverBuckets], first: int, last: int, width: int) -> Markup:
    """Deliveries of each receiver over time, those that came again on the ground line in another colour."""
    if not lanes:
        return Markup("")
    axis = _Axis(first, last, width)
    parts = []
    for place, lane in enumerate(lanes):
        ground = TOP + (place + 1) * LANE + place * GAP
        parts.append(_lane(lane.name, count(lane.total), ground))
        highest = max(stretch.counts["deliveries"] for stretch in lane.stretches)
        for stretch in lane.stretches:
            number, again = stretch.counts["deliveries"], stretch.counts["redelivered"]
            x, tall, part = axis.x(stretch.start), LANE * number / highest, LANE * again / highest
            caption = f"{lane.name}, {moment(stretch.start, width)}: {number} deliveries, {again} came again"
            parts.append(_bar(x, ground - tall, axis.bar, tall - part, "calm", caption))
            parts.append(_bar(x, ground - part, axis.bar, part, "warn", caption))
    height = TOP + len(lanes) * (LANE + GAP)
    caption = f"Deliveries of {len(lanes)} receivers over {time(last - first)}, in stretches of {time(width)}"
    svg = _svg(height + AXIS, caption, [*parts, axis.drawn(height - GAP)])
    return svg + _legend([("calm", "first deliveries"), ("warn", "redeliveries")])


def lags(lanes: Sequence[ReceiverBuckets]) -> Markup:
    """Acknowledgements of each receiver by lag, on a logarithmic axis that all share."""
    if not lanes:
        return Markup("")
    starts = [stretch.start for lane in lanes for stretch in lane.stretches]
    low, high = _decade(min(starts)), _decade(max(starts)) + 1
    bar = _PLOT / ((high - low) * 4)
    height = TOP + len(lanes) * (LANE + GAP)
    parts = []
    for place, lane in enumerate(lanes):
        ground = TOP + (place + 1) * LANE + place * GAP
        parts.append(_lane(lane.name, count(lane.total), ground))
        highest = max(stretch.counts["deliveries"] for stretch in lane.stretches)
        for stretch in lane.stretches:
            number = stretch.counts["deliveries"]
            tall = LANE * number / highest
            x = LEFT + bar * 4 * (_log(stretch.start) - low)
            caption = f"{lane.name}, {time(stretch.start)} or more: {number} acknowledgements"
            parts.append(_bar(x, ground - tall, bar, tall, "calm", caption))
    ticks = [(LEFT + bar * 4 * (decade - low), time(_power(decade))) for decade in range(low, high + 1)]
    caption = f"Acknowledgement lag of {len(lanes)} receivers, {ticks[0][1]} to {ticks[-1][1]}"
    return _svg(height + AXIS, caption, [*parts, _ticks(ticks, height - GAP)])


def repeats(lanes: Sequence[ReceiverBuckets]) -> Markup:
    """How many messages of each receiver were delivered once, twice, three times ..."""
    repeated = [lane for lane in lanes if any(stretch.start > 1 for stretch in lane.stretches)]
    if not repeated:
        return Markup("")
    parts = []
    for place, lane in enumerate(repeated):
        y = TOP + place * (LANE - 8)
        parts.append(_lane(lane.name, count(lane.total), y + LANE - 16))
        x = float(LEFT)
        for stretch in lane.stretches:
            number = stretch.counts["messages"]
            wide = _PLOT * number / lane.total
            tone = "calm" if stretch.start == 1 else "warn" if stretch.start == 2 else "bad"
            label = f"{lane.name}: {number} messages delivered {stretch.start} times"
            parts.append(_bar(x, y, wide, LANE - 16, tone, label))
            x += wide
    svg = _svg(TOP + len(repeated) * (LANE - 8), "Messages by how often they were delivered", parts)
    return svg + _legend([("calm", "delivered once"), ("warn", "twice"), ("bad", "more often")])


class _Axis:
    """Time from left to right, in stretches of one width."""

    def __init__(self, first: int, last: int, width: int) -> None:
        self._first = first - first % width
        self._width = width
        self._stretches = (last - self._first) // width + 1
        self.bar = _PLOT / self._stretches

    def x(self, start: int) -> float:
        """Where the stretch begins."""
        return LEFT + self.bar * ((start - self._first) // self._width)

    def drawn(self, y: float) -> Markup:
        """A few times of day."""
        step = max(self._stretches // _TICKS, 1)
        at = range(0, self._stretches, step)
        return _ticks(
            [
                (LEFT + self.bar * place, moment(self._first + place * self._width, self._width * step))
                for place in at
            ],
            y,
        )


def _ticks(ticks: Iterable[tuple[float, str]], y: float) -> Markup:
    line = Markup('<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, LEFT + _PLOT, y, y)
    marks = [
        Markup('<line class="axis" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>').format(x, y, y + 5)
        + _label(x, y + 19, label, "middle")
        for x, label in ticks
    ]
    return line + Markup("").join(marks)


def _lane(name: str, total: str, ground: float) -> Markup:
    line = Markup('<line class="lane" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
        LEFT, LEFT + _PLOT, ground, ground
    )
    plain = one_line(name)
    short = plain if len(plain) <= _MAX_NAME else plain[: _MAX_NAME - 1] + "…"
    named = Markup("<g><title>{}</title>{}</g>").format(
        elide(plain, 300), _label(LEFT - 8, ground - 3, short, "end")
    )
    return line + named + _label(LEFT + _PLOT + 8, ground - 3, total, "start")


def _label(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _bar(x: float, y: float, wide: float, tall: float, tone: str, title: str) -> Markup:
    if tall <= 0 or wide <= 0:
        return Markup("")
    return Markup(
        '<rect class="b-{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
    ).format(tone, x, y, max(wide - (1 if wide > 4 else 0), 0.6), max(tall, 1), elide(one_line(title), 300))


def _svg(height: float, caption: str, parts: Iterable[Markup]) -> Markup:
    return Markup(
        '<div class="plot" tabindex="0" role="region" aria-label="{0}">'
        '<svg viewBox="0 0 {1} {2:.0f}" role="img"><title>{0}</title>{3}</svg></div>'
    ).format(one_line(caption), WIDTH, height, Markup("").join(parts))


def _legend(entries: Iterable[tuple[str, str]]) -> Markup:
    items = [
        Markup('<li><i class="b-{}"></i>{}</li>').format(tone, one_line(label)) for tone, label in entries
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def _log(value: int) -> float:
    """Of a bucket's lower end, to the quarter."""
    decade = _decade(value)
    quarters = [round(10 ** (decade + quarter / 4)) for quarter in range(4)]
    return decade + max(place for place, start in enumerate(quarters) if value >= start) / 4


def _decade(value: int) -> int:
    return len(str(max(value, 1))) - 1


def _power(decade: int) -> int:
    return int("1" + "0" * decade)
