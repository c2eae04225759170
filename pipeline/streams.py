"""What goes across connections, grouped by key: facts of one stream or queue, in order, to violations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from msgspec.msgpack import Decoder

from conformance.monitors import MONITORS, Monitor, Place, Violation
from conformance.monitors import amqp_facts as amqp
from conformance.monitors import facts as nats
from pipeline.bundles import STATE
from pipeline.flows import Ending, unpacked
from pipeline.rows import Collector, rows_of
from pipeline.states import dumped, restored
from pipeline.tables import BYTES, INT, LONG, VIOLATIONS, Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = (
    nats.Delivered, nats.Acknowledged, nats.AckAnswered, nats.PublishAnswered, nats.Administered, nats.Pulled,
    amqp.Delivered,
)  # fmt: skip
FACTS = Decoder[Any](list[reduce(or_, _KINDS)])  # type: ignore[misc]
BROKEN = Decoder(list[Violation])
_ORDER = {kind.rule: number for number, kind in enumerate(MONITORS)}

# Columns of an operation that its violations have too.
SHARED = (
    "connection", "number", "frame", "time_ns", "protocol", "client", "server", "library", "capture",
    "file",
)  # fmt: skip
FACT_COLUMNS = (*SHARED, "key", "facts", "broken")
FOUND = Table(
    "found",
    "Violations before connections have their numbers.",
    (
        *VIOLATIONS.without("day").columns,
        Column("file", INT, "place of the file"),
        Column("rank", LONG, "place among the violations of one operation"),
    ),
    ("capture",),
)
FOUND_OR_STATE = Table(
    "found", FOUND.meaning, (*FOUND.columns, Column("state", BYTES, "monitors")), FOUND.partitions
)


def judge_streams(
    batches: Iterable[pa.RecordBatch], ending: Ending = Ending.FINAL
) -> Iterator[pa.RecordBatch]:
    """Facts, grouped by key and in order inside, to rows of ``FOUND``. Holds the monitors of one key. What an
    operation has ``broken`` on its connection is passed on, whether it has a key or not.

    With ``Ending.TO_BE_CONTINUED`` the monitors leave as a row whose ``rule`` is ``bundles.STATE`` and whose
    ``text`` is the key; with that as ``protocol``, before all others of its key, it comes back.
    """
    collected = Collector(FOUND_OR_STATE)
    current: str | None = None
    monitors = _monitors("")

    def end() -> None:
        if ending is Ending.TO_BE_CONTINUED and current is not None:
            collected.add({"rule": STATE, "text": current, "state": dumped(monitors)})

    for *shared, key, facts, broken in rows_of(batches, FACT_COLUMNS):
        if key != current:
            end()
            current, monitors = key, _monitors(key or "")
        if shared[SHARED.index("protocol")] == STATE:
            monitors = restored(facts)
            continue
        violations: list[Violation] = unpacked(broken, BROKEN) if broken else []
        for fact in unpacked(facts, FACTS) if facts else ():
            for monitor in monitors:
                violations += monitor.observe(fact)
        for violation in violations:
            if collected.add(cells_of_violation(violation, dict(zip(SHARED, shared, strict=True)))):
                yield from collected.take()
    end()
    yield from collected.take()


def _monitors(key: str) -> list[Monitor]:
    scope = key.partition("|")[0]
    return [kind() for kind in MONITORS if kind.scope == scope]


def cells_of_violation(violation: Violation, told: dict[str, Any]) -> dict[str, Any]:
    """A row of ``FOUND``; ``told`` is what its operation has."""
    return told | {
        "time": told["time_ns"] // 1000,
        "rule": violation.rule,
        "requirements": list(violation.requirements),
        "side": str(violation.side),
        "certain": violation.certain,
        "expected": violation.expected,
        "actual": violation.actual,
        "text": violation.place.text,
        "earlier": [_place(place) for place in violation.earlier],
        "rank": _ORDER[violation.rule],
    }


def _place(place: Place) -> dict[str, Any]:
    return {
        "connection": int(place.connection),
        "number": place.index,
        "time_ns": place.at,
        "text": place.text,
    }
