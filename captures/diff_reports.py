"""Differences for people, for programs, and side by side for a browser."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from typing import Any

from plumbline.captures.diff import (
    ComparedConversation,
    ComparedOperation,
    DifferenceKind,
    FieldChange,
    OperationDifference,
    Pair,
)
from plumbline.captures.plain import plain, plain_text
from plumbline.captures.show import clock
from plumbline.visible import one_line, visible_json

_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:2rem;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;width:100%;table-layout:fixed}
td,th{border:1px solid #767676;padding:.3rem .5rem;vertical-align:top;text-align:left;overflow-wrap:anywhere}
td{font:13px/1.4 ui-monospace,monospace}col.kind{width:7rem}
.missing td:nth-child(2),.changed td:nth-child(2){background:#fde7e9}
.extra td:nth-child(3),.changed td:nth-child(3){background:#e6f4ea}.reordered td{background:#fff4ce}
"""


def as_text(pairs: Sequence[Pair]) -> Iterator[str]:
    """Lines."""
    return map(plain_text, _lines(pairs))


def _lines(pairs: Sequence[Pair]) -> Iterator[str]:
    for pair in pairs:
        if not pair.differences and pair.first and pair.second:
            continue
        yield _title(pair)
        for difference in pair.differences:
            yield f"  {difference.kind:9} {difference.direction.arrow} {_difference_cells(difference)}"
            for change in difference.changes:
                yield f"            {change.name}: {_value(change.first)} -> {_value(change.second)}"
            if difference.kind is DifferenceKind.REORDERED and difference.first and difference.second:
                numbers = difference.first.row.number, difference.second.row.number
                yield f"            operation {numbers[0]} of the first, {numbers[1]} of the second"
    same = sum(not pair.differences for pair in pairs if pair.first and pair.second)
    counts = {
        kind: sum(one.kind is kind for pair in pairs for one in pair.differences) for kind in DifferenceKind
    }
    summary = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
    connections = "1 connection" if len(pairs) == 1 else f"{len(pairs)} connections"
    yield f"{connections}, {same} the same" + (f"; {summary}" if summary else "")


def as_json(pairs: Sequence[Pair]) -> str:
    """One object: ``{"schema": "plumbline.diff/1", "connections": [{"first", "second", "differences"}]}``."""
    connections = [
        {
            "first": _connection(pair.first),
            "second": _connection(pair.second),
            "differences": [_difference(one) for one in pair.differences],
        }
        for pair in pairs
    ]
    found = {"schema": "plumbline.diff/1", "connections": connections}
    return visible_json(json.dumps(plain(found), indent=2, default=str, ensure_ascii=False))


def as_html(pairs: Sequence[Pair], first: str, second: str) -> str:
    """One page, which needs no other file."""
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_escaped(first)} and '
        f"{_escaped(second)}</title><style>{_STYLE}</style><h1>What differs</h1>"
    ]
    for pair in pairs:
        parts.append(f"<h2>{_escaped(_title(pair))}</h2>")
        if not pair.differences:
            parts.append("<p>The same.</p>")
            continue
        parts.append(
            '<table><col class="kind"><col><col><tr><th scope="col"></th>'
            f'<th scope="col">{_escaped(first)}</th><th scope="col">{_escaped(second)}</th></tr>'
        )
        parts += [_row(difference) for difference in pair.differences]
        parts.append("</table>")
    return plain_text("\n".join([*parts, "</html>", ""]))


def _row(difference: OperationDifference) -> str:
    changes = "".join(f"<br>{_escaped(_describe_change(change))}" for change in difference.changes)
    cells = [f"{difference.kind}{changes}", *map(_cell, (difference.first, difference.second))]
    return f'<tr class="{difference.kind}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _cell(seen: ComparedOperation | None) -> str:
    if seen is None or seen.row.direction is None:
        return ""
    return _escaped(f"{clock(seen.row.time)} {seen.row.direction.arrow} {seen.row}")


def _escaped(text: str) -> str:
    return html.escape(one_line(text))


def _describe_change(change: FieldChange) -> str:
    return f"{change.name}: {_value(change.first)} -> {_value(change.second)}"


def _title(pair: Pair) -> str:
    known = pair.first or pair.second
    name = f' "{known.name}"' if known is not None and known.name else ""
    if pair.first is None or pair.second is None:
        where = "second" if pair.first is None else "first"
        number = known.number if known else 0
        return f"connection{name}: only in the {where} recording, as number {number}"
    return f"connection{name}: number {pair.first.number} of the first, {pair.second.number} of the second"


def _difference_cells(difference: OperationDifference) -> str:
    seen = difference.first or difference.second
    assert seen is not None
    return str(seen.row)


def _value(value: Any) -> str:
    return "not there" if value is None else json.dumps(value, default=str, ensure_ascii=False)


def _connection(conversation: ComparedConversation | None) -> dict[str, Any] | None:
    return {"connection": conversation.number, "name": conversation.name} if conversation else None


def _difference(difference: OperationDifference) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": difference.kind}
    for side, seen in (("first", difference.first), ("second", difference.second)):
        if seen is not None:
            found[side] = {"number": seen.row.number, "sender": seen.row.sender, "operation": str(seen.row)}
    if difference.changes:
        found["changes"] = [
            {"field": change.name, "first": change.first, "second": change.second}
            for change in difference.changes
        ]
    return found
