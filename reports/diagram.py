"""An exchange as a sequence diagram: one SVG, drawn from the operations that a check saw.

Lifelines are the check's connections, left, and the server, right; between them stands what was sent, so no
text crosses a lifeline. Time runs downwards and is written, not drawn to scale. Text is escaped here and
nowhere else; how much of it is shown is limited here, too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct

from plumbline.reports.digest import WireExcerpt, wire_excerpt
from plumbline.reports.markup import asset
from plumbline.reports.text import elide
from plumbline.verdicts import CheckResult, Outcome, WireLine
from plumbline.visible import one_line

LINES = 40  # of an exchange
WIDTH = 1000
TIME = 62  # right edge of the column of times
LEFT = 74  # where the lifelines begin
SERVER = WIDTH - 42
CHARACTER = 7.3  # width of one, in the monospaced fonts that are asked for at 12 units
LETTER = 6.9  # of a lifeline's name
LEADING = 15
HEAD = 34
NAME_LIMIT = 14
MAX_LIFELINES = 6  # connections with a lifeline of their own
LINES_OF_TEXT = 2  # of an operation
LINES_OF_FAULT = 6  # of the offending one, of what was expected and of what came instead
SILENCE_S = 0.25  # is worth a remark

# A picture of its own needs colours of its own: those of colours.css that diagram.css uses.
COLOURS = """
.seq{--ink:#1b2230;--paper:#ffffff;--muted:#586172;--line:#d9dee6;--link:#1a56b0;--calm:#0a5a6a;
--bad:#ab1820;--bad-bg:#fdeaea;--code:#f1f3f6;background:var(--paper)}
@media(prefers-color-scheme:dark){.seq{--ink:#e5e9f0;--paper:#181e28;--muted:#a2acbc;--line:#2e3746;
--link:#8dbaff;--calm:#85d9e7;--bad:#ffa3a3;--bad-bg:#3b171a;--code:#202834}}
"""


class Lifelines(Struct, frozen=True):
    """Where the lifelines of the connections stand; ``by_name`` gives the place of each connection."""

    names: tuple[str, ...]
    positions: tuple[float, ...]
    by_name: dict[str, int]

    @property
    def text_from(self) -> float:
        """Where operations are written."""
        return self.positions[-1] + 12

    @property
    def characters(self) -> int:
        """How many of them fit on a line."""
        return int((SERVER - 14 - self.text_from) / CHARACTER)


def draw(check: CheckResult, *, alone: bool = False) -> str:
    """The diagram of what ``check`` saw, or "" if that is nothing. ``alone``: a file with its own colours."""
    if not check.wire:
        return ""
    excerpt = wire_excerpt(check.wire, LINES)
    lanes = _lanes(excerpt.lines)
    rows, height = _rows(check, excerpt, lanes)
    body = "".join(
        [
            *(["<style>", COLOURS, escape(asset("diagram.css")), "</style>"] if alone else []),
            *_lifelines(lanes, height),
            *rows,
        ]
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="seq" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}" role="img" aria-label={_attribute(_summary(check, excerpt))}>{body}</svg>'
    )


def _summary(check: CheckResult, shown: WireExcerpt) -> str:
    """What the picture is, for who cannot see it; its operations follow as text."""
    connections = len({line.connection for line in shown.lines})
    marked = "; the offending one is marked" if any(line.offending for line in shown.lines) else ""
    who = f"{connections} connection{'s' if connections > 1 else ''} and the server"
    title = elide(check.title or check.id, 200)
    return f"Sequence diagram of {who}, {len(shown.lines)} operations{marked}: {title}"


def _lanes(lines: Iterable[WireLine]) -> Lifelines:
    connections = list(dict.fromkeys(line.connection for line in lines))
    own = connections if len(connections) <= MAX_LIFELINES else connections[: MAX_LIFELINES - 1]
    names = [_cut(one_line(name) or "client", NAME_LIMIT) for name in own]
    if len(own) < len(connections):
        names.append(f"{len(connections) - len(own)} others")
    places: list[float] = []
    edge = float(LEFT)
    for name in names:
        width = _head_width(name)
        places.append(round(edge + width / 2, 1))
        edge += width + 8
    last = len(names) - 1
    return Lifelines(tuple(names), tuple(places), {name: min(n, last) for n, name in enumerate(connections)})


def _head_width(name: str) -> float:
    return max(44.0, LETTER * _width(name) + 14)


def _lifelines(lanes: Lifelines, height: int) -> Iterator[str]:
    ends = [*zip(lanes.names, lanes.positions, strict=True), ("server", float(SERVER))]
    for _, place in ends:
        yield f'<path class="life" d="M{place:g} {HEAD - 8}V{height - 6}"/>'
    for name, place in ends:
        width = _head_width(name)
        yield (
            f'<rect class="head" x="{place - width / 2:g}" y="4" width="{width:g}" height="22" rx="4"/>'
            f'<text class="name" x="{place:g}" y="19">{_text(name)}</text>'
        )


def _rows(check: CheckResult, shown: WireExcerpt, lanes: Lifelines) -> tuple[list[str], int]:
    """Everything below the heads, and the height of the whole."""
    rows: list[str] = []
    top = HEAD + 4

    def add(drawn: tuple[str, int]) -> None:
        nonlocal top
        rows.append(drawn[0])
        top += drawn[1]

    if shown.before:
        add(_remark(f"{shown.before} earlier operations are left out", lanes, top))
    before = shown.lines[0].at
    expectation_drawn = False
    for line in shown.lines:
        if line.at - before >= SILENCE_S:
            add(_remark(f"{line.at - before:.2f} s pass", lanes, top))
        before = line.at
        if line.offending and not expectation_drawn:
            expectation_drawn = True
            add(_operation(line, lanes, top, _faults(check, lanes, actual=False)))
        else:
            add(_operation(line, lanes, top, ()))
    if shown.after:
        add(_remark(f"{shown.after} later operations are left out", lanes, top))
    if not expectation_drawn and check.outcome in (Outcome.FAILED, Outcome.WAIVED, Outcome.INCONCLUSIVE):
        verdict = _faults(check, lanes, actual=True)
        if verdict:
            add(_verdict(verdict, lanes, top))
    return rows, top + 8


def _faults(check: CheckResult, lanes: Lifelines, *, actual: bool) -> list[str]:
    """Lines that tell what was expected and, unless the offending operation shows it, what was there."""
    if not check.expected:
        return []
    notes = [f"expected: {check.expected}"] + ([f"  actual: {check.actual or 'nothing'}"] if actual else [])
    lines: list[str] = []
    for text in notes:
        pieces = text.split("\n", LINES_OF_FAULT)
        wrapped = [line for piece in pieces for line in _wrapped(piece, lanes.characters, LINES_OF_FAULT)]
        lines += wrapped[:LINES_OF_FAULT]
    return lines


def _operation(line: WireLine, lanes: Lifelines, top: int, notes: Sequence[str]) -> tuple[str, int]:
    """One arrow with what it says above it, and its height. What was expected stands below it."""
    lane = lanes.positions[lanes.by_name[line.connection]]
    lines = _wrapped(line.text, lanes.characters, LINES_OF_FAULT if line.offending else LINES_OF_TEXT)
    arrow = top + LEADING * len(lines) + 4
    height = LEADING * len(lines) + 10 + (LEADING * len(notes) + 4 if notes else 0)
    kind = {">": "sent", "<": "received", "!": "event"}[line.direction]
    parts = [f'<g class="{kind}{" off" if line.offending else ""}">']
    if line.offending:
        parts.append(
            f'<rect class="hit" x="2" y="{top - 1}" width="{WIDTH - 4}" height="{height - 2}" rx="4"/>'
        )
        parts += [
            f'<path class="life" d="M{x:g} {top - 1}v{height - 2}"/>' for x in (*lanes.positions, SERVER)
        ]
    parts.append(f'<text class="t" x="{TIME}" y="{top + 11}">{line.at:.4f}</text>')
    if line.direction == ">":
        parts.append(f'<path d="M{lane:g} {arrow}H{SERVER}m-8-4l8 4l-8 4"/>')
    elif line.direction == "<":
        parts.append(f'<path d="M{SERVER} {arrow}H{lane:g}m8-4l-8 4l8 4"/>')
    else:
        parts.append(f'<path d="M{lane:g} {arrow}H{SERVER}"/>')
    parts.append(_lines(lines, lanes.text_from, top + 11))
    parts.append(_lines(notes, lanes.text_from, arrow + LEADING, "fault"))
    parts.append("</g>")
    return "".join(parts), height


def _verdict(notes: Sequence[str], lanes: Lifelines, top: int) -> tuple[str, int]:
    """Where no operation is at fault, what was expected in the end and what was there."""
    height = LEADING * len(notes) + 10
    box = f'<rect class="hit" x="2" y="{top}" width="{WIDTH - 4}" height="{height - 2}" rx="4"/>'
    return f"{box}{_lines(notes, lanes.text_from, top + 15, 'fault')}", height


def _remark(text: str, lanes: Lifelines, top: int) -> tuple[str, int]:
    return f'<text class="more" x="{lanes.text_from:g}" y="{top + 12}">{_text(text)}</text>', 20


def _lines(lines: Sequence[str], x: float, y: float, kind: str = "op") -> str:
    if not lines:
        return ""
    rest = "".join(f'<tspan x="{x:g}" dy="{LEADING}">{_text(line)}</tspan>' for line in lines[1:])
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{_text(lines[0])}{rest}</text>'


def _wrapped(text: str, width: int, most: int) -> list[str]:
    """``text`` on at most ``most`` lines of at most ``width`` columns; the last one tells what is cut."""
    rest = one_line(text[: most * width])
    lines: list[str] = []
    while rest and len(lines) < most:
        line = _cut(rest, width, mark="")
        blank = line.rfind(" ")
        if len(line) < len(rest) and blank > 2 * len(line) // 3:  # rather between words
            line = line[: blank + 1]
        lines.append(line)
        rest = rest[len(line) :]
    if rest or len(text) > most * width:
        note = f"… [{len(text):,} characters in all]"
        lines[-1] = _cut(lines[-1], width - len(note), mark="") + note
    return lines or [""]


def _cut(text: str, width: int, mark: str = "…") -> str:
    """The beginning of ``text`` that is at most ``width`` columns wide, ``mark`` included if it was cut."""
    if text.isascii() and len(text) <= width:
        return text
    room = width
    for position, char in enumerate(text):
        room -= _width(char)
        if room < 0:
            return text[: max(0, position - len(mark))] + mark
    return text


def _width(text: str) -> int:
    """Columns: two for what East Asian fonts draw wide, at least one for anything else."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _text(text: str) -> str:
    return escape(one_line(text) if not text.isprintable() else text)


def _attribute(text: str) -> str:
    return quoteattr(one_line(text))
