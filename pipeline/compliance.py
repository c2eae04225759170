"""The table ``compliance``: the result of each monitored requirement on each server.

Which operations a rule judges stands here, by rule: a requirement of which none was seen is *not seen*, and
never kept by accident.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.monitors import MONITORS
from plumbline.pipeline.tables import COMPLIANCE

BROKEN, KEPT, NOT_SEEN = "broken", "kept", "not seen"
_RULES = ", ".join(
    f"{name} string" for name in ("requirement", "level", "statement", "source", "side", "rule", "protocol")
)


def _is(protocol: str, *facts: str) -> Column:
    return (F.col("protocol") == protocol) & F.col("fact").isin(*facts)


def observed_by_rule() -> dict[str, Column]:
    """By rule: whether an operation is one that it judges."""
    message = F.col("op").isin("MSG", "HMSG") & (F.col("protocol") == "nats")
    delivery, amqp_delivery = _is("nats", "delivery"), _is("amqp", "delivery")
    consumed = amqp_delivery & (F.col("consumer_tag") != "")
    return {
        "live-subscription": message,
        "subject-matches": message & ~F.coalesce(F.col("fact") == "delivery", F.lit(False)),
        "batch-is-the-limit": delivery & F.col("answers").isNotNull(),
        "consumer-sequence": delivery,
        "delivery-count": delivery & (F.col("delivered") > 1),
        "nothing-after-the-end": _is("nats", "ack-answer") & F.col("kind").isin("+ACK", "+TERM"),
        "one-acknowledgement": _is("nats", "ack") & ~F.col("kind").isin("+WPI", ""),
        "stream-sequence": _is("nats", "publish-answer"),
        "delivery-tag": amqp_delivery,
        "prefetch": consumed,
        "known-delivery-tag": _is("amqp", "ack"),
        "live-consumer": consumed,
        "redelivered": amqp_delivery & F.col("message_id").isNotNull(),
        "one-confirm": _is("amqp", "publish-answer"),
        "return-first": _is("amqp", "return"),
    }


def compliance(operations: DataFrame, violations: DataFrame) -> DataFrame:
    """One row for each requirement and server; of a protocol that no server spoke, one without a server."""
    judging = observed_by_rule()
    messages = operations.where(F.col("number") > 0)
    servers = messages.select("server", "protocol").distinct()
    seen = (
        messages.groupBy("server")
        .agg(*(F.count_if(condition).alias(rule) for rule, condition in judging.items()))
        .unpivot("server", list(judging), "rule", "observed")
    )
    broken = violations.groupBy("server", "rule").agg(
        F.count_if("certain").alias("violations"), F.count_if(~F.col("certain")).alias("possible")
    )
    rules = operations.sparkSession.createDataFrame(list(_rules(Catalogue.load())), _RULES)
    verdict = (
        F.when(F.col("violations") > 0, BROKEN).when(F.col("observed") > 0, KEPT).otherwise(F.lit(NOT_SEEN))
    )
    return (
        rules.join(servers, "protocol", "left")
        .join(seen, ["server", "rule"], "left")
        .join(broken, ["server", "rule"], "left")
        .groupBy("requirement", "level", "statement", "source", "server", "side")
        .agg(
            F.sort_array(F.collect_set("rule")).alias("rules"),
            F.coalesce(F.sum("observed"), F.lit(0)).alias("observed"),
            F.coalesce(F.sum("violations"), F.lit(0)).alias("violations"),
            F.coalesce(F.sum("possible"), F.lit(0)).alias("possible"),
        )
        .withColumn("verdict", verdict)
        .select(*COMPLIANCE.names)
        .orderBy("requirement", "server")
    )


def _rules(catalogue: Catalogue) -> Iterable[tuple[str, ...]]:
    for monitor in MONITORS:
        for identity in monitor.requirements:
            row = catalogue.by_id[identity]
            protocol = "amqp" if identity.startswith("AMQP-") else "nats"
            about = (row.level.value, row.statement, row.source, monitor.side.value)
            yield identity, *about, monitor.rule, protocol
