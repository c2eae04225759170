"""Each statistic on a few rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

from plumbline.monitors import MONITORS
from plumbline.pipeline import statistics
from plumbline.pipeline.compliance import compliance, observed_by_rule
from plumbline.pipeline.tables import COMPLIANCE, DELIVERIES, OPERATIONS, PUBLISHES, PULLS, VIOLATIONS
from tests.pipeline.support.tables import RowsEngine, found, rows_of


def delivery(**cells: Any) -> dict[str, Any]:
    about: dict[str, Any] = {"subject": "a", "library": "go 1", "stream": "S", "consumer": "C"}
    return about | {"redelivered": False, "delivered": 1} | cells


def test_latency_leaves_redeliveries_out(engine: RowsEngine) -> None:
    rows = rows_of(
        engine, DELIVERIES,
        delivery(latency_ns=1),
        delivery(latency_ns=3),
        delivery(latency_ns=30_000, redelivered=True, delivered=2),
        delivery(latency_ns=9, subject="b", library=None),
        delivery(latency_ns=None, stream=None, queue="q"),
    )  # fmt: skip
    columns = ("subject", "library", "deliveries", "p50_ns", "max_ns")
    assert found(statistics.latency(rows), *columns) == [("a", "go 1", 2, 1, 3), ("b", None, 1, 9, 9)]


def test_redeliveries_are_counted_for_each_receiver_and_library(engine: RowsEngine) -> None:
    rows = rows_of(
        engine, DELIVERIES,
        delivery(stream_seq=1),
        delivery(stream_seq=1, redelivered=True, delivered=2),
        delivery(stream_seq=1, redelivered=True, delivered=3),
        delivery(stream_seq=2),
        delivery(stream=None, consumer="tag", delivered=None, queue="q", redelivered=True, library="pika 1"),
        delivery(stream=None, consumer="tag", delivered=None),
    )  # fmt: skip
    columns = ("receiver", "library", "deliveries", "redelivered", "most", "share")
    assert found(statistics.redeliveries(rows), *columns) == [
        ("S > C", "go 1", 4, 2, 3, 0.5),
        ("q", "pika 1", 1, 1, None, 1.0),
        ("unknown queue", "go 1", 1, 0, None, 0.0),
    ]
    counts = found(statistics.delivery_counts(rows), "receiver", "delivered", "messages")
    assert counts == [("S > C", 1, 1), ("S > C", 3, 1)]
    by_subject = statistics.redeliveries(rows, by=statistics.BY_SUBJECT)
    assert found(by_subject, "subject", "library", "redelivered") == [("a", "go 1", 2), ("a", "pika 1", 1)]


def test_pull_efficiency_is_messages_per_requested_batch(engine: RowsEngine) -> None:
    about = {"stream": "S", "consumer": "C", "library": "go 1"}
    rows = rows_of(
        engine, PULLS,
        {**about, "batch": 10, "messages": 10, "first_lag_ns": 5},
        {**about, "batch": 10, "messages": 0, "status": 404},
        {**about, "batch": 20, "messages": 0, "status": 408},
    )  # fmt: skip
    columns = (
        "receiver", "requests", "asked", "messages", "empty", "no_messages", "timeouts", "filled", "p50_ns",
    )  # fmt: skip
    assert found(statistics.pull_efficiency(rows), *columns) == [("S > C", 3, 40, 10, 2, 1, 1, 0.25, 5)]


def test_ack_lag_counts_refusals_and_missing_answers_separately(engine: RowsEngine) -> None:
    rows = rows_of(
        engine, DELIVERIES,
        delivery(ack_kind="+ACK", ack_lag_ns=10),
        delivery(ack_kind="+ACK", ack_lag_ns=30),
        delivery(ack_kind="-NAK", ack_lag_ns=20),
        delivery(),
    )  # fmt: skip
    columns = ("receiver", "deliveries", "acknowledged", "refused", "unanswered", "p50_ns", "max_ns")
    assert found(statistics.ack_lag(rows), *columns) == [("S > C", 4, 2, 1, 1, 20, 30)]


def test_the_histogram_has_four_buckets_to_a_power_of_ten(engine: RowsEngine) -> None:
    lags = (0, 1, 999, 1_000, 1_777, 1_779, 10_000)
    rows = rows_of(engine, DELIVERIES, *(delivery(ack_kind="+ACK", ack_lag_ns=lag) for lag in lags))
    assert found(statistics.ack_lag_histogram(rows), "from_ns", "to_ns", "deliveries") == [
        (1, 2, 2),
        (562, 1_000, 1),
        (1_000, 1_778, 2),
        (1_778, 3_162, 1),
        (10_000, 17_783, 1),
    ]


def test_confirms_are_counted_by_how_they_ended(engine: RowsEngine) -> None:
    about = {"exchange": "x", "subject": "k", "library": "pika 1", "returned": False}
    rows = rows_of(
        engine, PUBLISHES,
        {**about, "confirm": "ack", "confirm_lag_ns": 4},
        {**about, "confirm": "ack", "confirm_lag_ns": 8, "returned": True},
        {**about, "confirm": "nack", "confirm_lag_ns": 6},
        about,
    )  # fmt: skip
    columns = ("exchange", "subject", "published", "confirmed", "refused", "returned", "p50_ns")
    assert found(statistics.confirm_lag(rows), *columns) == [("x", "k", 4, 2, 1, 1, 6)]


def test_top_talkers_are_the_hosts_with_the_most_bytes(engine: RowsEngine) -> None:
    def operation(client: str, connection: int, sender: str, size: int, number: int = 1) -> dict[str, Any]:
        at = {"client": client, "connection": connection, "number": number, "server": "s:1"}
        return {**at, "protocol": "nats", "sender": sender, "size": size, "library": None}

    rows = rows_of(
        engine, OPERATIONS,
        operation("10.0.0.1:1000", 1, "client", 10),
        operation("10.0.0.1:1001", 2, "server", 5),
        operation("[::1]:7", 3, "client", 100),
        operation("[::1]:7", 3, "client", 1000, number=0),
        operation("10.0.0.9:1", 4, "client", 1),
    )  # fmt: skip
    columns = ("client", "connections", "operations", "bytes_sent", "bytes_received")
    assert found(statistics.top_talkers(rows, limit=2), *columns) == [
        ("[::1]", 1, 1, 100, 0),
        ("10.0.0.1", 2, 2, 10, 5),
    ]


def test_violations_are_counted_in_stretches_of_time(engine: RowsEngine) -> None:
    late = 1_795_275_468_220_285_375
    rows = rows_of(
        engine, VIOLATIONS,
        {"rule": "r", "certain": True, "time_ns": late},
        {"rule": "r", "certain": False, "time_ns": late - late % 1000},
        {"rule": "r", "certain": True, "time_ns": late - late % 1000 - 1},
        {"rule": "other", "certain": True, "time_ns": late},
    )  # fmt: skip
    columns = ("start_ns", "rule", "violations", "certain")
    start = late - late % 1000
    assert found(statistics.violations_over_time(rows, 1000), *columns) == [
        (start - 1000, "r", 1, 1),
        (start, "other", 1, 1),
        (start, "r", 2, 1),
    ]


def test_deliveries_are_counted_in_stretches_of_time(engine: RowsEngine) -> None:
    rows = rows_of(
        engine, DELIVERIES,
        delivery(time_ns=1, ack_kind="+ACK"),
        delivery(time_ns=9, redelivered=True),
        delivery(time_ns=10),
    )  # fmt: skip
    columns = ("receiver", "start_ns", "deliveries", "redelivered", "acknowledged")
    assert found(statistics.deliveries_over_time(rows, 10), *columns) == [
        ("S > C", 0, 2, 1, 1),
        ("S > C", 10, 1, 0, 0),
    ]


@pytest.mark.parametrize(
    ("last", "width"), [(0, 1), (60, 1), (61, 2), (300, 5), (301, 10), (6_000_000_001, 200_000_000)]
)
def test_a_stretch_is_a_round_time(last: int, width: int) -> None:
    assert statistics.width_for(0, last, 60) == width


def test_every_rule_has_a_condition_for_judged_operations(spark: SparkSession) -> None:
    assert set(observed_by_rule(functions)) == {monitor.rule for monitor in MONITORS}


def test_a_requirement_is_kept_only_if_something_was_there_to_judge(engine: RowsEngine) -> None:
    def operation(server: str, **cells: Any) -> dict[str, Any]:
        return {"number": 1, "protocol": "nats", "server": server, "op": "MSG", **cells}

    operations = rows_of(
        engine, OPERATIONS,
        operation("a:1", fact="delivery"),
        operation("a:1", fact="delivery"),
        operation("b:1", fact="delivery"),
        operation("c:1", op="PUB", fact="publish"),
    )  # fmt: skip
    violations = rows_of(
        engine, VIOLATIONS,
        {"server": "a:1", "rule": "consumer-sequence", "certain": True},
        {"server": "b:1", "rule": "consumer-sequence", "certain": False},
    )  # fmt: skip
    table = compliance(operations, violations)
    assert tuple(table.columns) == COMPLIANCE.names
    columns = ("requirement", "server", "observed", "violations", "possible", "verdict")
    rows = [row for row in found(table, *columns) if row[0] in ("JS-SEQ-013", "AMQP-CONFIRM-009")]
    assert rows == [
        ("AMQP-CONFIRM-009", None, 0, 0, 0, "not seen"),
        ("JS-SEQ-013", "a:1", 2, 1, 0, "broken"),
        ("JS-SEQ-013", "b:1", 1, 0, 1, "kept"),
        ("JS-SEQ-013", "c:1", 0, 0, 0, "not seen"),
    ]
