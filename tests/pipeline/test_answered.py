"""``deliveries``, ``pulls`` and ``publishes`` out of operations: each with what answered it."""

from __future__ import annotations

from typing import Any

from plumbline.pipeline.answered import deliveries, publishes, pulls
from plumbline.pipeline.tables import DELIVERIES, OPERATIONS, PUBLISHES, PULLS
from tests.pipeline.support.tables import RowsEngine, found, rows_of


def nats(number: int, **cells: Any) -> dict[str, Any]:
    """Operation ``number`` of connection 1, that many ns after 1970."""
    return {"connection": 1, "number": number, "time_ns": number, "protocol": "nats", **cells}


def amqp(number: int, **cells: Any) -> dict[str, Any]:
    return {"connection": 2, "number": number, "time_ns": number, "protocol": "amqp", **cells}


def delivery(number: int, **cells: Any) -> dict[str, Any]:
    about = {"fact": "delivery", "stream": "S", "consumer": "C", "delivered": 1, "redelivered": False}
    return nats(number, **about | {"stored_ns": number - 2, "payload_size": 10} | cells)


def test_a_delivery_has_its_first_final_acknowledgement(engine: RowsEngine) -> None:
    operations = rows_of(
        engine, OPERATIONS,
        delivery(5, answers=[3]),
        nats(6, fact="ack", kind="+WPI", answers=[5]),
        nats(9, fact="ack", kind="-NAK", answers=[5]),
        nats(12, fact="ack", kind="+ACK", answers=[5]),
        delivery(7),
    )  # fmt: skip
    table = deliveries(operations)
    assert tuple(table.columns) == DELIVERIES.names
    columns = ("number", "consumer", "pull", "ack_kind", "ack_number", "ack_lag_ns", "latency_ns")
    assert sorted(found(table, *columns)) == [
        (5, "C", 3, "-NAK", 9, 4, 2),
        (7, "C", None, None, None, None, 2),
    ]


def test_an_acknowledgement_of_many_is_that_of_each(engine: RowsEngine) -> None:
    got = {"fact": "delivery", "consumer_tag": "c1", "queue": "q", "redelivered": False}
    operations = rows_of(
        engine, OPERATIONS,
        amqp(1, **got, delivery_tag=1),
        amqp(2, **got, delivery_tag=2),
        amqp(4, fact="ack", kind="ack", multiple=True, answers=[1, 2]),
        {**amqp(9, fact="ack", kind="nack", answers=[1]), "connection": 3},
    )  # fmt: skip
    columns = ("delivery_tag", "consumer", "queue", "ack_kind", "ack_lag_ns")
    assert sorted(found(deliveries(operations), *columns)) == [
        (1, "c1", "q", "ack", 3),
        (2, "c1", "q", "ack", 2),
    ]


def test_a_pull_has_its_messages_and_the_status_that_ended_it(engine: RowsEngine) -> None:
    operations = rows_of(
        engine, OPERATIONS,
        nats(3, fact="pull", stream="S", consumer="C", batch=5, reply="_INBOX.1"),
        nats(4, fact="pull-status", status=100, answers=[3]),
        delivery(5, answers=[3]),
        delivery(6, answers=[3]),
        nats(8, fact="pull-status", status=408, description="Request Timeout", answers=[3]),
        nats(9, fact="ack", kind="+NXT", batch=1, stream="S", consumer="C", answers=[5]),
    )  # fmt: skip
    table = pulls(operations)
    assert tuple(table.columns) == PULLS.names
    columns = (
        "number",
        "batch",
        "messages",
        "bytes",
        "first_lag_ns",
        "status",
        "description",
    )
    assert sorted(found(table, *columns)) == [
        (3, 5, 2, 20, 2, 408, "Request Timeout"),
        (9, 1, 0, 0, None, None, None),
    ]
    assert sorted(found(table, "number", "ended_lag_ns")) == [(3, 5), (9, None)]


def test_a_publish_has_its_confirm_and_is_known_to_be_returned(engine: RowsEngine) -> None:
    operations = rows_of(
        engine, OPERATIONS,
        nats(1, fact="publish", subject="a"),
        nats(3, fact="publish-answer", kind="PubAck", stream="S", stream_seq=7, duplicate=False, answers=[1]),
        amqp(1, fact="publish", subject="k", exchange=""),
        amqp(2, fact="return", answers=[1]),
        amqp(3, fact="publish", subject="k", exchange=""),
        amqp(5, fact="publish-answer", kind="nack", answers=[1, 3]),
    )  # fmt: skip
    table = publishes(operations)
    assert tuple(table.columns) == PUBLISHES.names
    columns = ("connection", "number", "confirm", "returned", "stream", "stream_seq", "confirm_lag_ns")
    assert sorted(found(table, *columns)) == [
        (1, 1, "PubAck", False, "S", 7, 2),
        (2, 1, "nack", True, None, None, 4),
        (2, 3, "nack", False, None, None, 2),
    ]
