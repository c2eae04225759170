"""The data of the page, read from the tables and limited so that a browser can render it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.monitors import MONITORS
from plumbline.pipeline import statistics
from plumbline.pipeline.frames import Frame, first_of_each, functions_of, records, rows_beside
from plumbline.pipeline.page.units import count, percent, text, time
from plumbline.pipeline.tables import LONG, Column, Table

OF_A_RULE = 20  # violations that have a card
BEFORE, AFTER = 6, 3  # operations that a card shows around the one that broke a rule
STRETCHES = 60  # of time, in a plot
LANES = 12  # receivers that have a lane of their own
ROWS = 40  # of a table; the rest is in Parquet
_NEAR = Table(
    "near",
    "Operations beside a violation.",
    (Column("connection", LONG, "its connection"), Column("number", LONG, "its number there")),
)
COUNTED = ("operations", "connections", "deliveries", "publishes", "pull requests")


class ContextLine(Struct, frozen=True):
    """One operation beside a violation. ``role``: offending, earlier, or empty."""

    number: int
    at: int
    sender: str
    text: str
    role: str = ""


class ViolationCard(Struct, frozen=True):
    """One violation with its evidence; ``earlier`` are operations of other connections."""

    rule: str
    side: str
    certain: bool
    requirements: tuple[str, ...]
    expected: str
    actual: str
    capture: str
    connection: int
    client: str
    server: str
    library: str
    at: int
    frame: int
    lines: tuple[ContextLine, ...]
    earlier_elsewhere: tuple[str, ...]


class BrokenRule(Struct, frozen=True):
    """One rule that was broken. ``cards`` are the first of its violations."""

    rule: str
    title: str
    side: str
    requirements: tuple[str, ...]
    certain: int
    possible: int
    cards: tuple[ViolationCard, ...]


class PageTable(Struct, frozen=True):
    """A table of the page: cells as they read; ``numbers`` is the first column of numbers."""

    title: str
    lead: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: int
    has_more: bool


class TimeBucket(Struct, frozen=True):
    """What happened from ``start`` on for the width of a plot's stretch, by kind."""

    start: int
    counts: dict[str, int]


class ReceiverBuckets(Struct, frozen=True):
    """One receiver's stretches, or one receiver's buckets."""

    name: str
    total: int
    stretches: tuple[TimeBucket, ...]


class PageData(Struct, frozen=True, kw_only=True):
    """The page. Times in ns since 1970; ``width`` is that of a stretch."""

    captures: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    first: int = 0
    last: int = 0
    width: int = 1
    counts: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    certain: int = 0
    possible: int = 0
    rules: tuple[BrokenRule, ...] = ()
    violations: tuple[TimeBucket, ...] = ()
    lanes: tuple[ReceiverBuckets, ...] = ()
    lags: tuple[ReceiverBuckets, ...] = ()  # a stretch is a bucket: ``start`` its lower end
    repeats: tuple[ReceiverBuckets, ...] = ()  # a stretch is a delivery count
    more_lanes: int = 0
    grids: tuple[PageTable, ...] = ()
    compliance: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[Mapping[str, Any], ...] = ()


def gather(tables: Mapping[str, Frame]) -> PageData:
    """Asks the tables, by their names."""
    operations, violations, deliveries = (tables[name] for name in ("operations", "violations", "deliveries"))
    seen = _overview(operations)
    problems = _rows(tables["problems"].orderBy("capture", "frame", "text").limit(ROWS))
    compliance = sorted(
        _rows(tables["compliance"]), key=lambda row: (row["requirement"], row["server"] or "")
    )
    if not seen["operations"]:
        return PageData(compliance=tuple(compliance), problems=problems)
    width = statistics.width_for(seen["first"], seen["last"], STRETCHES)
    rules = _rules(violations, operations)
    over_time = statistics.deliveries_over_time(deliveries, width)
    lanes = _by_receiver(over_time, "start_ns", "deliveries", "redelivered")
    return PageData(
        captures=tuple(seen["captures"]),
        servers=tuple(seen["servers"]),
        first=seen["first"],
        last=seen["last"],
        width=width,
        counts={name: seen[name] for name in COUNTED},
        certain=sum(rule.certain for rule in rules),
        possible=sum(rule.possible for rule in rules),
        rules=rules,
        violations=_stretches(statistics.violations_over_time(violations, width)) if rules else (),
        lanes=lanes[:LANES],
        lags=_by_receiver(statistics.ack_lag_histogram(deliveries), "from_ns", "deliveries")[:LANES],
        repeats=_by_receiver(statistics.delivery_counts(deliveries), "delivered", "messages")[:LANES],
        more_lanes=max(len(lanes) - LANES, 0),
        grids=tuple(grid for grid in _grids(tables, seen) if grid.rows),
        compliance=tuple(compliance),
        problems=problems,
    )


def _overview(operations: Frame) -> Mapping[str, Any]:
    """What there is at all, asked at once."""
    F = functions_of(operations)  # noqa: N806  # as the style guide of PySpark writes it
    kinds = {"deliveries": F.col("fact") == "delivery", "publishes": F.col("fact") == "publish"}
    kinds["pull requests"] = F.col("batch").isNotNull()
    rows = operations.where(F.col("number") > 0).agg(
        F.count("*").alias("operations"),
        F.count_distinct("connection").alias("connections"),
        *(F.count_if(condition).alias(name) for name, condition in kinds.items()),
        F.min("time_ns").alias("first"),
        F.max("time_ns").alias("last"),
        F.sort_array(F.collect_set("server")).alias("servers"),
        F.sort_array(F.collect_set("capture")).alias("captures"),
    )
    return records(rows)[0]


def _rows(table: Frame) -> tuple[Mapping[str, Any], ...]:
    return tuple(records(table))


# -- plots --


def _stretches(counted: Frame) -> tuple[TimeBucket, ...]:
    """Of ``start_ns``, ``rule`` and ``violations``."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for row in counted.collect():
        found[row["start_ns"]][row["rule"]] = row["violations"]
    return tuple(TimeBucket(start, counts) for start, counts in sorted(found.items()))


def _by_receiver(counted: Frame, start: str, *kinds: str) -> tuple[ReceiverBuckets, ...]:
    """The receivers with most of the first kind come first."""
    found: dict[str, list[TimeBucket]] = defaultdict(list)
    totals: Counter[str] = Counter()
    for row in counted.collect():
        found[row["receiver"]].append(TimeBucket(row[start], {kind: row[kind] for kind in kinds}))
        totals[row["receiver"]] += row[kinds[0]]
    return tuple(ReceiverBuckets(name, total, tuple(found[name])) for name, total in totals.most_common())


# -- violations --


def _rules(violations: Frame, operations: Frame) -> tuple[BrokenRule, ...]:
    titles = {monitor.rule: monitor.title for monitor in MONITORS}
    F = functions_of(violations)  # noqa: N806  # as the style guide of PySpark writes it
    counted = violations.groupBy("rule", "side").agg(
        F.count_if("certain").alias("certain"), F.count_if(~F.col("certain")).alias("possible")
    )
    broken = counted.collect()
    cards: dict[str, list[ViolationCard]] = defaultdict(list)
    for card in _cards(violations, operations) if broken else ():
        cards[card.rule].append(card)
    found = [
        BrokenRule(
            row["rule"], titles.get(row["rule"], ""), row["side"], cards[row["rule"]][0].requirements,
            row["certain"], row["possible"], tuple(cards[row["rule"]]),
        )
        for row in broken
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda rule: (-rule.certain, -rule.possible, rule.rule)))


def _cards(violations: Frame, operations: Frame) -> list[ViolationCard]:
    F = functions_of(violations)  # noqa: N806  # as the style guide of PySpark writes it
    in_order = (F.desc("certain"), "time_ns", "connection", "number", "text")
    chosen = first_of_each(violations, "rule", in_order, OF_A_RULE).collect()
    places = {
        (row["connection"], number)
        for row in chosen
        for number in range(row["number"] - BEFORE, row["number"] + AFTER + 1)
    }
    near = rows_beside(operations, _NEAR, [dict(zip(_NEAR.names, place, strict=True)) for place in places])
    around: dict[int, dict[int, Any]] = defaultdict(dict)
    for row in operations.where(F.col("number") > 0).join(near, [*_NEAR.names], "inner").collect():
        around[row["connection"]][row["number"]] = row
    return [_card(row, around[row["connection"]]) for row in chosen]


def _card(row: Any, around: Mapping[int, Any]) -> ViolationCard:
    earlier = row["earlier"] or []
    by_number = {place["number"]: place for place in earlier if place["connection"] == row["connection"]}
    lines: dict[int, ContextLine] = {}
    for number, place in by_number.items():
        lines[number] = ContextLine(
            number, place["time_ns"], _sender(place["text"]), place["text"][2:], "earlier"
        )
    for number in range(row["number"] - BEFORE, row["number"] + AFTER + 1):
        if number in around and number not in lines:
            near = around[number]
            lines[number] = ContextLine(number, near["time_ns"], near["sender"], line_of(near))
    number = row["number"]
    lines[number] = ContextLine(number, row["time_ns"], _sender(row["text"]), row["text"][2:], "offending")
    elsewhere = [
        f"connection {place['connection']}, operation {place['number']}: {place['text']}"
        for place in earlier
        if place["connection"] != row["connection"]
    ]
    return ViolationCard(
        row["rule"], row["side"], row["certain"], tuple(row["requirements"] or ()), row["expected"],
        row["actual"], row["capture"] or "", row["connection"], row["client"] or "", row["server"] or "",
        row["library"] or "", row["time_ns"], row["frame"] or 0,
        tuple(lines[number] for number in sorted(lines)), tuple(elsewhere),
    )  # fmt: skip


def _sender(text: str) -> str:
    """Of the text of a place: ``> PUB ...``."""
    return "client" if text.startswith(">") else "server"


# What is shown of an operation, in this order, where it has it.
_ARGUMENTS = (
    "consumer_tag", "delivery_tag", "multiple", "redelivered", "queue", "exchange", "message_id", "kind",
    "batch", "status", "description",
)  # fmt: skip


def line_of(row: Mapping[str, Any]) -> str:
    """An operation of the table as one line; its payload as it is, if it was kept, else its size."""
    words: list[str] = [row["op"]]
    if row["channel"] is not None:
        words.insert(0, f"[{row['channel']}]")
    words += [row[name] for name in ("subject", "sid", "reply") if row[name]]
    words += [f"{name}={row[name]}" for name in _ARGUMENTS if row[name] not in (None, "")]
    if row["payload"] is not None:
        words.append("| " + bytes(row["payload"]).decode("utf-8", "surrogateescape"))
    elif row["payload_size"] is not None:
        words.append(f"| ({row['payload_size']} bytes)")
    return " ".join(words)


# -- tables --

_Cell = Callable[[Any], str]
_BY_SUBJECT: dict[str, _Cell] = {"subject": text, "library": text}
_BY_RECEIVER: dict[str, _Cell] = {"receiver": text, "library": text}
_PERCENTILES: dict[str, _Cell] = {f"{name}_ns": time for name in statistics.PERCENTILES}


def _grids(tables: Mapping[str, Frame], seen: Mapping[str, Any]) -> list[PageTable]:
    grids = []
    if seen["deliveries"]:
        grids += _of_deliveries(tables["deliveries"])
    if seen["pull requests"]:
        grids.append(_of_pulls(tables["pulls"]))
    if seen["publishes"]:
        grids.append(_of_publishes(tables["publishes"]))
    return [*grids, _of_clients(tables["operations"])]


def _of_deliveries(deliveries: Frame) -> list[PageTable]:
    settled = dict.fromkeys(("deliveries", "acknowledged", "refused", "unanswered"), count)
    repeated = dict.fromkeys(("deliveries", "redelivered", "most"), count)
    return [
        _grid(
            "Acknowledgement lag",
            "From a delivery to its acknowledgement, as the capture saw both.",
            statistics.ack_lag(deliveries),
            {**_BY_RECEIVER, **settled, **_PERCENTILES},
        ),
        _grid(
            "Redeliveries",
            "Deliveries that were not the first of their message.",
            statistics.redeliveries(deliveries),
            {**_BY_RECEIVER, **repeated, "share": percent},
        ),
        _grid(
            "Delivery latency",
            "First deliveries: from stored (server's clock) to delivered (recorder's).",
            statistics.latency(deliveries),
            {**_BY_SUBJECT, "deliveries": count, **_PERCENTILES},
        ),
    ]


def _of_pulls(pulls: Frame) -> PageTable:
    cells = dict.fromkeys(("requests", "asked", "messages"), count)
    ended = dict.fromkeys(("empty", "no_messages", "timeouts"), count)
    return _grid(
        "Pull requests",
        "Messages that came, of those asked for; requests that brought none.",
        statistics.pull_efficiency(pulls),
        {**_BY_RECEIVER, **cells, "filled": percent, **ended, "p50_ns": time, "p99_ns": time},
    )


def _of_publishes(publishes: Frame) -> PageTable:
    ended = dict.fromkeys(("published", "confirmed", "refused", "returned", "duplicates"), count)
    return _grid(
        "Publishing",
        "From a publish to its PubAck or confirm.",
        statistics.confirm_lag(publishes),
        {"exchange": text, **_BY_SUBJECT, **ended, **_PERCENTILES},
    )


def _of_clients(operations: Frame) -> PageTable:
    who = dict.fromkeys(("client", "server", "library"), text)
    much = dict.fromkeys(("connections", "operations", "bytes_sent", "bytes_received"), count)
    return _grid(
        "Top talkers",
        "Clients by the bytes of their operations, both ways.",
        statistics.top_talkers(operations, ROWS),
        {**who, **much},
    )


def _grid(title: str, lead: str, table: Frame, cells: Mapping[str, _Cell]) -> PageTable:
    rows = table.limit(ROWS + 1).collect()
    shown_rows = [tuple(cell(row[name]) for name, cell in cells.items()) for row in rows[:ROWS]]
    keep = [place for place, name in enumerate(cells) if any(row[place] != "" for row in shown_rows)]
    head = tuple(name.removesuffix("_ns").replace("_", " ") for name in cells)
    is_text = [cell is text for cell in cells.values()]
    return PageTable(
        title, lead, tuple(head[place] for place in keep),
        tuple(tuple(row[place] for place in keep) for row in shown_rows),
        sum(is_text[place] for place in keep), len(rows) > ROWS,
    )  # fmt: skip
