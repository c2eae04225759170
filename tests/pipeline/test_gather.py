"""What the page asks of the tables."""

from __future__ import annotations

from typing import Any

from plumbline.pipeline.page.gather import AFTER, BEFORE, OF_A_RULE, ContextLine, gather, line_of
from plumbline.pipeline.page.html import render
from plumbline.pipeline.tables import TABLES
from tests.pipeline.support.tables import RowsEngine, rows_of

SECOND = 1_000_000_000
WHERE = {"connection": 1, "protocol": "nats", "server": "s:4222", "client": "c:1", "capture": "a.pcapng"}


def operation(number: int, **cells: Any) -> dict[str, Any]:
    at = {"number": number, "time_ns": number * SECOND, "sender": "client", "op": "PING", "size": 6}
    return WHERE | at | cells


def test_violation_card_has_context_and_cause(engine: RowsEngine) -> None:
    operations = [operation(number) for number in range(1, 40)]
    operations[18] = operation(19, op="MSG", sender="server", subject="a", sid="1", payload_size=3)
    operations[4]["fact"] = "delivery"
    earlier = [(1, 2, 2 * SECOND, "> SUB a 1"), (7, 4, 3 * SECOND, "< MSG b 1 0")]
    broken = {
        "rule": "live-subscription", "requirements": ["CORE-088"], "side": "server", "certain": True,
        "expected": "none", "actual": "one more", "text": "< MSG a 1 3 | (3 bytes)", "frame": 5,
    }  # fmt: skip
    first = WHERE | broken | {"number": 19, "time_ns": 19 * SECOND, "earlier": earlier}
    more = [
        WHERE | broken | {"number": 20 + extra % 10, "time_ns": (20 + extra) * SECOND, "certain": extra > 2}
        for extra in range(OF_A_RULE + 5)
    ]
    tables = {name: rows_of(engine, table) for name, table in TABLES.items()}
    tables["operations"] = rows_of(engine, TABLES["operations"], *operations)
    tables["violations"] = rows_of(engine, TABLES["violations"], first, *more)
    delivery = {"stream": "S", "consumer": "C", "redelivered": False, "delivered": 1, "library": "go 1"}
    delivery |= {"time_ns": 5 * SECOND, "ack_lag_ns": 1500, "ack_kind": "+ACK"}
    tables["deliveries"] = rows_of(engine, TABLES["deliveries"], WHERE | delivery)
    shown = gather(tables)
    (rule,) = shown.rules
    assert (rule.certain, rule.possible, len(rule.cards)) == (OF_A_RULE + 3, 3, OF_A_RULE)
    assert shown.counts == {
        "operations": 39, "connections": 1, "deliveries": 1, "publishes": 0, "pull requests": 0,
    }  # fmt: skip
    card = rule.cards[0]
    assert [line.number for line in card.lines] == [2, *range(19 - BEFORE, 19 + AFTER + 1)]
    assert card.lines[0] == ContextLine(2, 2 * SECOND, "client", "SUB a 1", "earlier")
    assert card.lines[1 + BEFORE] == ContextLine(
        19, 19 * SECOND, "server", "MSG a 1 3 | (3 bytes)", "offending"
    )
    assert card.earlier_elsewhere == ("connection 7, operation 4: < MSG b 1 0",)
    assert [(lane.name, lane.total) for lane in shown.lanes] == [("S > C", 1)]
    assert sum(number for stretch in shown.violations for number in stretch.counts.values()) == OF_A_RULE + 6
    assert {grid.title for grid in shown.grids} == {"Acknowledgement lag", "Redeliveries", "Top talkers"}
    assert b"live-subscription" in render(shown)


def test_tables_without_rows_make_a_page_too(engine: RowsEngine) -> None:
    shown = gather({name: rows_of(engine, table) for name, table in TABLES.items()})
    assert (shown.first, shown.last, shown.rules, shown.grids) == (0, 0, (), ())
    assert b"No operation was recorded" in render(shown)


def test_an_operation_reads_as_on_the_wire() -> None:
    empty = dict.fromkeys(TABLES["operations"].names)
    published = empty | {"op": "PUB", "subject": "a.b", "reply": "r", "payload_size": 5}
    assert line_of(published) == "PUB a.b r | (5 bytes)"
    assert line_of(published | {"payload": b"hello"}) == "PUB a.b r | hello"
    acked = empty | {"op": "basic.ack", "channel": 1, "delivery_tag": 3, "multiple": False}
    assert line_of(acked) == "[1] basic.ack delivery_tag=3 multiple=False"
