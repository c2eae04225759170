"""Reads the text of a file: one trace, or one for each case of its table. Pure.

Both functions raise ``TraceSyntaxError`` and nothing else, whatever the text. ``path`` is how messages name
the file.
"""

from __future__ import annotations

from collections.abc import Sequence

from plumbline.conformance.trace.language import Trace
from plumbline.conformance.trace.parser import header_lines, read_lines
from plumbline.conformance.trace.table import Case, Table, read_table
from plumbline.conformance.trace.text import TraceLineError, TraceSyntaxError, require_utf8, split_lines


def parse_trace(text: str, path: str) -> Trace:
    """One trace, without a table."""
    lines = split_lines(text)
    require_utf8(lines, path)
    return read_lines(lines, path)


def parse_traces(text: str, path: str, *, is_header: bool = False) -> tuple[Trace, ...]:
    """The traces of a file, in the order of its cases.

    With ``is_header`` they have no steps: only what is above the first step is read, which is faster.
    """
    lines = split_lines(text)
    require_utf8(lines, path)
    table = read_table(lines, path)
    read = header_lines(lines) if is_header else lines
    if table is None:
        return (read_lines(read, path, is_header=is_header),)
    return _read_cases(read, path, table, is_header=is_header)


def _read_cases(lines: Sequence[str], path: str, table: Table, *, is_header: bool) -> tuple[Trace, ...]:
    traces: list[Trace] = []
    found: dict[tuple[tuple[int, int], str], list[tuple[Case, TraceLineError]]] = {}
    for case in table.cases:
        filled = table.filled(lines, case)
        try:
            trace = read_lines(
                filled.lines,
                path,
                case=case.name,
                line=case.line,
                columns=table.names,
                is_header=is_header,
            )
            traces.append(trace)
        except TraceSyntaxError as error:
            for problem in error.problems:
                place = filled.origin(problem.line, problem.column)
                found.setdefault((place, problem.message), []).append((case, problem))
    if found:
        problems = [_one_problem(place, seen, table) for (place, _), seen in found.items()]
        raise TraceSyntaxError(path, lines, problems)
    return tuple(traces)


def _one_problem(
    place: tuple[int, int], seen: Sequence[tuple[Case, TraceLineError]], table: Table
) -> TraceLineError:
    """The same problem of some cases. They are named if its place does not show which they are."""
    problem = seen[0][1]
    if place[0] in table.lines or len(seen) == len(table.cases):
        return problem.moved(place)
    return problem.moved(place, f"in the case {', '.join(case.name for case, _ in seen)}")
