"""Recorded traffic of either protocol as a trace, which ``plumbline verify URL --trace`` plays again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from plumbline.captures.amqp import trace as amqp_trace
from plumbline.captures.nats import trace as nats_trace
from plumbline.captures.operations import OperationRow
from plumbline.captures.plain import plain_text
from plumbline.captures.trace_text import TraceHeader, without_control
from plumbline.visible import visible

_WRITERS: dict[str, Callable[[Iterable[OperationRow], TraceHeader], str]] = {
    "nats": nats_trace.write,
    "amqp": amqp_trace.write,
}


def write(rows: Sequence[OperationRow], about: TraceHeader) -> str:
    """The trace of these connections; with several, each has a name: ``c1`` for number 1.

    Raises ``ValueError`` if there is nothing that a trace could expect, or if they speak two protocols.
    """
    spoken = {row.dialect.name for row in rows if row.dialect is not None and row.operation is not None}
    if len(spoken) > 1:
        raise ValueError(f"a trace can have only one protocol, not {' and '.join(sorted(spoken))}")
    text = _WRITERS[spoken.pop() if spoken else "nats"](rows, about)
    return "\n".join(visible(without_control(line)) for line in plain_text(text).split("\n"))


def source_of(captures: str, rows: Sequence[OperationRow]) -> str:
    """Where it comes from, with the day."""
    day = datetime.fromtimestamp(rows[0].time / 1e9, UTC).strftime("%Y-%m-%d") if rows else "an unknown day"
    return f"recorded {day}, {captures}"
