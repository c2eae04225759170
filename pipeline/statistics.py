"""What the tables tell in numbers: one function for each question, a frame to a frame.

``receiver`` is a JetStream consumer (``ORDERS > D``) or an AMQP queue, ``library`` what clients say of
themselves (CONNECT ``lang`` and ``version``; AMQP ``product`` and ``version``), null where the capture begins
later. Those that take ``by`` count by other columns of their table as well. Times are nanoseconds.
Percentiles are approximate above ten thousand rows, to one in ten thousand of rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plumbline.pipeline.frames import AnyFrame, functions_of

BY_SUBJECT, BY_RECEIVER = ("subject", "library"), ("receiver", "library")
UNKNOWN = "unknown queue"
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_BUCKETS_PER_DECADE = 4
NO_MESSAGES, REQUEST_TIMEOUT = 404, 408


def with_receiver(rows: AnyFrame) -> AnyFrame:
    """Rows of deliveries or pulls with a column ``receiver`` more."""
    F = functions_of(rows)  # noqa: N806  # as the style guide of PySpark writes it
    jetstream = F.concat_ws(" > ", "stream", "consumer")
    queue = F.coalesce("queue", F.lit(UNKNOWN)) if "queue" in rows.columns else F.lit(UNKNOWN)
    return rows.withColumn("receiver", F.when(F.col("stream").isNotNull(), jetstream).otherwise(queue))


def latency(deliveries: AnyFrame, by: Sequence[str] = BY_SUBJECT) -> AnyFrame:
    """From stored to delivered. First deliveries only: what comes again has waited to come again."""
    F = functions_of(deliveries)  # noqa: N806  # as the style guide of PySpark writes it
    return (
        with_receiver(deliveries)
        .where(~F.col("redelivered") & F.col("latency_ns").isNotNull())
        .groupBy(*by)
        .agg(F.count("*").alias("deliveries"), *_percentiles(F, "latency_ns"))
        .orderBy(F.desc("deliveries"), *by)
    )


def redeliveries(deliveries: AnyFrame, by: Sequence[str] = BY_RECEIVER) -> AnyFrame:
    """How many deliveries were not the first of their message. ``most``: of one message, unknown in AMQP."""
    F = functions_of(deliveries)  # noqa: N806  # as the style guide of PySpark writes it
    return (
        with_receiver(deliveries)
        .groupBy(*by)
        .agg(
            F.count("*").alias("deliveries"),
            F.count_if("redelivered").alias("redelivered"),
            F.max("delivered").alias("most"),
        )
        .withColumn("share", F.col("redelivered") / F.col("deliveries"))
        .orderBy(F.desc("redelivered"), *by)
    )


def delivery_counts(deliveries: AnyFrame) -> AnyFrame:
    """How many messages of a JetStream consumer were delivered so many times, at the most."""
    F = functions_of(deliveries)  # noqa: N806  # as the style guide of PySpark writes it
    return (
        with_receiver(deliveries)
        .where(F.col("delivered").isNotNull())
        .groupBy("receiver", "stream_seq")
        .agg(F.max("delivered").alias("delivered"))
        .groupBy("receiver", "delivered")
        .agg(F.count("*").alias("messages"))
        .orderBy("receiver", "delivered")
    )


def pull_efficiency(pulls: AnyFrame, by: Sequence[str] = BY_RECEIVER) -> AnyFrame:
    """What pull requests brought.

    ``filled``: messages of those asked for. ``empty``: requests that brought none; ``no_messages`` (404) and
    ``timeouts`` (408): how requests ended; the rest ended full, otherwise, or after the capture.
    """
    F = functions_of(pulls)  # noqa: N806  # as the style guide of PySpark writes it
    return (
        with_receiver(pulls)
        .groupBy(*by)
        .agg(
            F.count("*").alias("requests"),
            F.sum("batch").alias("asked"),
            F.sum("messages").alias("messages"),
            F.count_if(F.col("messages") == 0).alias("empty"),
            F.count_if(F.col("status") == NO_MESSAGES).alias("no_messages"),
            F.count_if(F.col("status") == REQUEST_TIMEOUT).alias("timeouts"),
            *_percentiles(F, "first_lag_ns"),
        )
        .withColumn("filled", F.try_divide("messages", "asked"))
        .orderBy(F.desc("requests"), *by)
    )


def ack_lag(deliveries: AnyFrame, by: Sequence[str] = BY_RECEIVER) -> AnyFrame:
    """From a delivery to its acknowledgement. ``unanswered``: none was seen."""
    F = functions_of(deliveries)  # noqa: N806  # as the style guide of PySpark writes it
    return (
        with_receiver(deliveries)
        .groupBy(*by)
        .agg(
            F.count("*").alias("deliveries"),
            F.count_if(F.col("ack_kind").isin("+ACK", "+NXT", "ack")).alias("acknowledged"),
            F.count_if(F.col("ack_kind").isin("-NAK", "+TERM", "nack", "reject")).alias("refused"),
            F.count_if(F.col("ack_kind").isNull()).alias("unanswered"),
            *_percentiles(F, "ack_lag_ns"),
        )
        .orderBy(F.desc("deliveries"), *by)
    )


def ack_lag_histogram(deliveries: AnyFrame) -> AnyFrame:
    """Acknowledgements of each receiver by lag, ``from_ns`` to ``to_ns``: four buckets to a power of ten."""
    F = functions_of(deliveries)  # noqa: N806  # as the style guide of PySpark writes it
    step = F.lit(_BUCKETS_PER_DECADE)
    bucket = F.floor(F.log10(F.greatest("ack_lag_ns", F.lit(1))) * step)
    return (
        with_receiver(deliveries)
        .where(F.col("ack_lag_ns").isNotNull())
        .groupBy("receiver", bucket.alias("bucket"))
        .agg(F.count("*").alias("deliveries"))
        .select(
            "receiver",
            F.round(F.pow(F.lit(10.0), F.col("bucket") / step)).cast("bigint").alias("from_ns"),
            F.round(F.pow(F.lit(10.0), (F.col("bucket") + 1) / step)).cast("bigint").alias("to_ns"),
            "deliveries",
        )
        .orderBy("receiver", "from_ns")
    )


def confirm_lag(publishes: AnyFrame, by: Sequence[str] = ("exchange", *BY_SUBJECT)) -> AnyFrame:
    """From a publish to its PubAck or confirm."""
    F = functions_of(publishes)  # noqa: N806  # as the style guide of PySpark writes it
    return (
        publishes.groupBy(*by)
        .agg(
            F.count("*").alias("published"),
            F.count_if(F.col("confirm").isin("PubAck", "ack")).alias("confirmed"),
            F.count_if(F.col("confirm") == "nack").alias("refused"),
            F.count_if("returned").alias("returned"),
            F.count_if("duplicate").alias("duplicates"),
            *_percentiles(F, "confirm_lag_ns"),
        )
        .orderBy(F.desc("published"), *by)
    )


def top_talkers(operations: AnyFrame, limit: int = 20) -> AnyFrame:
    """The clients with the most bytes, both ways, by address without port, library and server."""
    F = functions_of(operations)  # noqa: N806  # as the style guide of PySpark writes it
    host = F.regexp_replace("client", r":\d+$", "")
    sent_by_client = F.col("sender") == "client"
    return (
        operations.where(F.col("number") > 0)
        .groupBy(host.alias("client"), "server", "protocol")
        .agg(
            F.max("library").alias("library"),
            F.count_distinct("connection").alias("connections"),
            F.count("*").alias("operations"),
            F.sum(F.when(sent_by_client, F.col("size")).otherwise(0)).alias("bytes_sent"),
            F.sum(F.when(~sent_by_client, F.col("size")).otherwise(0)).alias("bytes_received"),
        )
        .orderBy(F.desc(F.col("bytes_sent") + F.col("bytes_received")), "client", "server")
        .limit(limit)
    )


def over_time(rows: AnyFrame, width_ns: int, by: str, **counts: Any) -> AnyFrame:
    """Rows of a table with ``time_ns``, counted in stretches of time; ``start_ns`` is where one begins."""
    F = functions_of(rows)  # noqa: N806  # as the style guide of PySpark writes it
    start = F.col("time_ns") - F.pmod("time_ns", F.lit(width_ns))
    totals = [F.count("*").alias("rows"), *(F.count_if(kind).alias(name) for name, kind in counts.items())]
    return rows.groupBy(start.alias("start_ns"), by).agg(*totals)


def violations_over_time(violations: AnyFrame, width_ns: int) -> AnyFrame:
    """Violations of each rule in each stretch of time; ``certain`` of them are."""
    F = functions_of(violations)  # noqa: N806  # as the style guide of PySpark writes it
    counted = over_time(violations, width_ns, "rule", certain=F.col("certain"))
    return counted.withColumnRenamed("rows", "violations").orderBy("start_ns", "rule")


def deliveries_over_time(deliveries: AnyFrame, width_ns: int) -> AnyFrame:
    """Deliveries of each receiver in each stretch of time, and how many of them came again."""
    F = functions_of(deliveries)  # noqa: N806  # as the style guide of PySpark writes it
    counted = over_time(
        with_receiver(deliveries), width_ns, "receiver", redelivered=F.col("redelivered"),
        acknowledged=F.col("ack_kind").isNotNull(),
    )  # fmt: skip
    return counted.withColumnRenamed("rows", "deliveries").orderBy("receiver", "start_ns")


def width_for(first: int, last: int, stretches: int) -> int:
    """Nanoseconds of a stretch, 1, 2 or 5 of a power of ten, so that there are at most that many."""
    minimum_ns = max(-(-(last - first) // stretches), 1)  # rounded up
    power = int("1" + "0" * (len(str(minimum_ns)) - 1))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= minimum_ns)


def _percentiles(F: Any, column: str) -> list[Any]:  # noqa: N803  # as the style guide of PySpark writes it
    return [F.percentile_approx(column, rank).alias(f"{name}_ns") for name, rank in PERCENTILES.items()]
