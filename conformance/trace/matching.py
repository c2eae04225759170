"""Which line of a group an operation belongs to. Pure.

Lines of a group may share captures, so the pairing is searched for as a whole, not line by line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from plumbline.conformance.trace.language import Expect, Mismatch
from plumbline.conformance.trace.template import TraceScope


class Nearest(Struct, frozen=True):
    """The line that an operation comes nearest to, and in what it is not it."""

    line: int
    differences: tuple[Mismatch, ...]


def closest(expects: Sequence[Expect], operation: Any, scope: TraceScope) -> Nearest | None:
    """None if ``operation`` fits one of the lines, as far as one operation alone shows that."""
    found = [
        Nearest(expect.line, tuple(expect.pattern.differences(operation, scope.fork()))) for expect in expects
    ]
    if any(not nearest.differences for nearest in found):
        return None
    return min(found, key=lambda nearest: len(nearest.differences))


def assign(
    expects: Sequence[Expect], operations: Sequence[tuple[str, Any]], scope: TraceScope
) -> dict[str, str] | None:
    """The captures of a pairing that gives every line an operation of its connection; None without one."""
    if not operations:
        return scope.captures if not expects else None
    (connection, operation), *rest = operations
    for position, expect in enumerate(expects):
        trial = scope.fork()
        if expect.connection != connection or expect.pattern.differences(operation, trial):
            continue
        captures = assign([*expects[:position], *expects[position + 1 :]], rest, trial)
        if captures is not None:
            return captures
    return None
