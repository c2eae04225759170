"""``operations`` to ``deliveries``, ``pulls`` and ``publishes``: each with what answered it.

What answers what is in the rows already (``answers``: numbers of operations of the same connection), so these
are joins, the same for both engines: see ``frames``. Connections have one number over all captures.
"""

from __future__ import annotations

from typing import Any

from plumbline.pipeline.frames import AnyFrame, functions_of
from plumbline.pipeline.tables import DELIVERIES, PUBLISHES, PULLS

_HEARTBEAT = 100  # a status that ends no pull request


def deliveries(operations: AnyFrame) -> AnyFrame:
    """Messages that consumers and queues delivered, each with its first acknowledgement that ends it."""
    F = functions_of(operations)  # noqa: N806  # as the style guide of PySpark writes it
    is_final = (F.col("fact") == "ack") & ~F.col("kind").isin("+WPI", "")
    acknowledgements = _first_answer(
        operations.where(is_final),
        ack_kind=F.col("kind"),
        ack_number=F.col("number"),
        ack_time_ns=F.col("time_ns"),
    )
    is_jetstream = F.col("protocol") == "nats"
    return (
        operations.where(F.col("fact") == "delivery")
        .join(acknowledgements, ["connection", "number"], "left")
        .withColumn("consumer", F.when(is_jetstream, F.col("consumer")).otherwise(F.col("consumer_tag")))
        .withColumn("queue", F.when(~is_jetstream, F.col("queue")))
        .withColumn("pull", F.when(is_jetstream, F.try_element_at("answers", F.lit(1))))
        .withColumn("latency_ns", F.col("time_ns") - F.col("stored_ns"))
        .withColumn("ack_lag_ns", F.col("ack_time_ns") - F.col("time_ns"))
        .select(*DELIVERIES.names)
    )


def pulls(operations: AnyFrame) -> AnyFrame:
    """Pull requests, each with the deliveries that count for it and the status that ended it."""
    F = functions_of(operations)  # noqa: N806  # as the style guide of PySpark writes it
    delivered = (
        operations.where((F.col("fact") == "delivery") & (F.col("protocol") == "nats"))
        .select("connection", F.explode("answers").alias("pull"), "payload_size", "time_ns")
        .groupBy("connection", F.col("pull").alias("number"))
        .agg(
            F.count("*").alias("messages"),
            F.sum("payload_size").alias("bytes"),
            F.min("time_ns").alias("first_ns"),
        )
    )
    is_end = (F.col("fact") == "pull-status") & (F.col("status") != _HEARTBEAT)
    ends = _first_answer(
        operations.where(is_end),
        end_status=F.col("status"),
        end_description=F.col("description"),
        end_ns=F.col("time_ns"),
    )
    return (
        operations.where(F.col("batch").isNotNull())
        .drop("status", "description")
        .join(delivered, ["connection", "number"], "left")
        .join(ends, ["connection", "number"], "left")
        .withColumn("messages", F.coalesce("messages", F.lit(0)))
        .withColumn("bytes", F.coalesce("bytes", F.lit(0)))
        .withColumn("first_lag_ns", F.col("first_ns") - F.col("time_ns"))
        .withColumn("ended_lag_ns", F.col("end_ns") - F.col("time_ns"))
        .withColumnsRenamed({"end_status": "status", "end_description": "description"})
        .select(*PULLS.names)
    )


def publishes(operations: AnyFrame) -> AnyFrame:
    """Messages that clients published, each with its first PubAck or confirm, and whether it came back."""
    F = functions_of(operations)  # noqa: N806  # as the style guide of PySpark writes it
    confirms = _first_answer(
        operations.where(F.col("fact") == "publish-answer"),
        confirm=F.col("kind"),
        confirm_stream=F.col("stream"),
        confirm_seq=F.col("stream_seq"),
        confirm_duplicate=F.col("duplicate"),
        confirm_time_ns=F.col("time_ns"),
    )
    returns = _first_answer(operations.where(F.col("fact") == "return"), return_number=F.col("number"))
    return (
        operations.where(F.col("fact") == "publish")
        .drop("stream", "stream_seq", "duplicate")
        .join(confirms, ["connection", "number"], "left")
        .join(returns, ["connection", "number"], "left")
        .withColumn("returned", F.col("return_number").isNotNull())
        .withColumn("confirm_lag_ns", F.col("confirm_time_ns") - F.col("time_ns"))
        .withColumnsRenamed(
            {"confirm_stream": "stream", "confirm_seq": "stream_seq", "confirm_duplicate": "duplicate"}
        )
        .select(*PUBLISHES.names)
    )


def _first_answer(answers: AnyFrame, **columns: Any) -> AnyFrame:
    """By connection and number of what is answered: these columns of the first operation that answers it."""
    F = functions_of(answers)  # noqa: N806  # as the style guide of PySpark writes it
    return (
        answers.select(
            "connection",
            F.explode("answers").alias("answered"),
            F.col("number").alias("answer"),
            *(value.alias(name) for name, value in columns.items()),
        )
        .groupBy("connection", F.col("answered").alias("number"))
        .agg(*(F.min_by(name, "answer").alias(name) for name in columns))
    )
