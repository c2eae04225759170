"""The table of cases of a trace: one file that holds several checks of the same shape. Pure.

A line ``cases`` in the header is followed by a row with the names of the columns and one row for each case::

    cases
    | name        | body      | err_code |
    | get-nothing | {}        | 10003    |
    | get-missing | {"seq":9} | 10037    |

``{body}`` in any other line is a hole that each case fills with its cell. Holes are filled in the text,
before its lines are read, so a cell may hold whatever can be written in the place of the hole.
``Filled.origin`` finds the place in the file that a character of a filled line comes from: errors point to
the line, or to the cell.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from plumbline.conformance.trace.language import BODY, HEADER, MARKED
from plumbline.conformance.trace.text import Text, TraceLineError, TraceSyntaxError, near

CASES = "cases"
NAME = "name"  # the first column: the last part of the check's id
OPTIONAL = ("needs", "variant", "since", "until", "names")  # left out where a case has nothing for the line

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BAR = re.compile(r"(?<!\\)\|")  # in a cell a bar is written \|
_HOLE = re.compile(r"\\.|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HELP = "| name | column | ... |, the names of the columns"


class Case(Struct, frozen=True):
    """One row. ``cells`` are by column, as written."""

    name: str
    line: int
    cells: dict[str, Text]


class Table(Struct, frozen=True):
    """The cases of one file. ``lines`` are the numbers of the table's own lines."""

    columns: tuple[Text, ...]
    cases: tuple[Case, ...]
    lines: range

    @property
    def names(self) -> frozenset[str]:
        """The columns."""
        return frozenset(column.value for column in self.columns)

    def filled(self, lines: Sequence[str], case: Case) -> Filled:
        """The lines of the file as this case has them; those of the table are empty."""
        filled = [
            _Line("", ()) if number in self.lines else _filled(Text(line, number), case)
            for number, line in enumerate(lines, 1)
        ]
        return Filled([line.value for line in filled], [line.pieces for line in filled])


class Filled(Struct, frozen=True):
    """The lines of one case. ``pieces``: for each line, what it is made of; nothing for a line as written."""

    lines: Sequence[str]
    pieces: Sequence[tuple[_Piece, ...]] = ()

    def origin(self, line: int, column: int) -> tuple[int, int]:
        """Line and column, counted from 1, where the file has what stands there."""
        pieces = self.pieces[line - 1] if line <= len(self.pieces) else ()
        started = [piece for piece in pieces if piece.start < column]
        if not started:
            return line, column
        piece = started[-1]
        return piece.line, piece.column + column - 1 - piece.start


class _Piece(Struct, frozen=True):
    """A part of a filled line that begins at offset ``start``, and its place in the file."""

    start: int
    line: int
    column: int


class _Line(Struct, frozen=True):
    value: str
    pieces: tuple[_Piece, ...]


def read_table(lines: Sequence[str], path: str) -> Table | None:
    """The table of a file, or None. Raises ``TraceSyntaxError`` with all that is wrong with it."""
    word = _heading(lines)
    if word is None:
        return None
    problems: list[TraceLineError] = []
    table = _Reader(lines, problems).read(word)
    problems += _wrong_holes(lines, table)
    if problems:
        raise TraceSyntaxError(path, lines, problems)
    return table


def _heading(lines: Sequence[str]) -> Text | None:
    """The word ``cases`` above the first step."""
    for number, line in enumerate(lines, 1):
        word, _ = Text(line, number).first_word()
        if MARKED.match(line) or word.value in BODY:
            return None
        if word.value == CASES:
            return word
    return None


class _Reader:
    """The lines of a table being read."""

    def __init__(self, lines: Sequence[str], problems: list[TraceLineError]) -> None:
        self._lines = lines
        self._problems = problems

    def read(self, word: Text) -> Table:
        behind = Text(self._lines[word.line - 1], word.line).first_word()[1]
        if behind:
            self._problems.append(TraceLineError.at(behind, f'nothing behind "{CASES}"'))
        rows = list(self._rows(word.line))
        columns = self._columns(rows[0]) if rows else ()
        if not rows:
            self._problems.append(TraceLineError.at(word, f"{_HELP}, on the next line"))
        elif len(rows) == 1:
            self._problems.append(TraceLineError.at(rows[0], "a row below the names of the columns"))
        cases = tuple(case for row in rows[1:] if columns and (case := self._case(row, columns)) is not None)
        self._require_distinct(cases)
        last = rows[-1].line if rows else word.line
        return Table(columns, cases, range(word.line, last + 1))

    def _rows(self, above: int) -> Iterator[Text]:
        for number, line in enumerate(self._lines[above:], above + 1):
            text = Text(line, number).strip()
            if text.value.startswith("|"):
                yield text
            elif not text.value.startswith("#"):
                return

    def _cells(self, row: Text) -> list[Text]:
        bars = [found.start() for found in _BAR.finditer(row.value)]
        if bars[-1] != len(row.value) - 1 or len(bars) < 2:
            raise TraceLineError.at(row.cut(len(row.value)), 'a "|" at the end of the row')
        return [row.cut(start + 1, end).strip() for start, end in itertools.pairwise(bars)]

    def _columns(self, row: Text) -> tuple[Text, ...]:
        try:
            columns = self._cells(row)
            if columns[0].value != NAME:
                raise TraceLineError.at(columns[0], f'the column "{NAME}" first: it names the case')
            for position, column in enumerate(columns):
                if not _COLUMN.fullmatch(column.value):
                    raise TraceLineError.at(column, "the name of a column: letters, digits and _")
                if column.value in [known.value for known in columns[:position]]:
                    raise TraceLineError.at(column, f"{column.value} only once")
        except TraceLineError as problem:
            self._problems.append(problem)
            return ()
        return tuple(columns)

    def _case(self, row: Text, columns: tuple[Text, ...]) -> Case | None:
        try:
            cells = self._cells(row)
            if len(cells) != len(columns):
                shown = f"{len(cells)} cells"
                raise TraceLineError(row.place(), f"{len(columns)} cells, one for each column", shown)
            if not _CASE.fullmatch(cells[0].value):
                raise TraceLineError.at(cells[0], "the name of a case: letters, digits, -, _ and .")
        except TraceLineError as problem:
            self._problems.append(problem)
            return None
        named = zip((column.value for column in columns), cells, strict=True)
        return Case(cells[0].value, row.line, dict(named))

    def _require_distinct(self, cases: Sequence[Case]) -> None:
        lines: dict[str, int] = {}
        for case in cases:
            first = lines.setdefault(case.name, case.line)
            if first != case.line:
                problem = TraceLineError.at(case.cells[NAME], "a name of its own", f"line {first} has it")
                self._problems.append(problem)


def _wrong_holes(lines: Sequence[str], table: Table) -> Iterator[TraceLineError]:
    """Columns that no line uses, and holes of the header that are no column; steps have captures too."""
    if not table.columns:
        return
    used = {NAME}
    for number, line in enumerate(lines, 1):
        text = Text(line, number)
        word = text.first_word()[0].value
        if number in table.lines or word.startswith("#"):
            continue
        for hole in _HOLE.finditer(line):
            used.update(hole.groups(""))
            if word in HEADER and hole[1] and hole[1] not in table.names:
                advice = (
                    near(hole[1], table.names) or f"there are: {', '.join(c.value for c in table.columns)}"
                )
                yield TraceLineError.at(text.cut(*hole.span()), "a column of the table", advice)
    for column in table.columns:
        if column.value not in used:
            yield TraceLineError.at(column, f"a line with {{{column.value}}}", "every column is used")


def _filled(line: Text, case: Case) -> _Line:
    """A line with the cells of a case in its holes."""
    text = _Pieces()
    at = 0
    comment = line.first_word()[0].value.startswith("#")
    for hole in _HOLE.finditer(line.value):
        cell = case.cells.get(hole[1] or "")
        if cell is None or comment:
            continue
        text.add(line.cut(at, hole.start()))
        text.add_cell(cell)
        at = hole.end()
    if not at:
        return _Line(line.value, ())
    text.add(line.cut(at))
    word, rest = Text(text.value).first_word()
    if word.value in OPTIONAL and not rest:
        return _Line("", ())
    return _Line(text.value, tuple(text.pieces))


class _Pieces:
    """A filled line, put together."""

    def __init__(self) -> None:
        self.value = ""
        self.pieces: list[_Piece] = []

    def add(self, text: Text) -> None:
        self.pieces.append(_Piece(len(self.value), text.line, text.column))
        self.value += text.value

    def add_cell(self, cell: Text) -> None:
        at = 0
        for bar in re.finditer(r"\\\|", cell.value):
            self.add(cell.cut(at, bar.start()))
            self.add(cell.cut(bar.start() + 1, bar.end()))
            at = bar.end()
        self.add(cell.cut(at))
