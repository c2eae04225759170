"""The table ``compliance``: the result of each monitored requirement on each server.

Which operations a rule judges stands here, by rule: a requirement of which none was seen is *not seen*, and
never kept by accident.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.monitors import MONITORS
from plumbline.pipeline.frames import AnyFrame, Frame, functions_of, records, rows_beside
from plumbline.pipeline.tables import COMPLIANCE

BROKEN, KEPT, NOT_SEEN = "broken", "kept", "not seen"


def observed_by_rule(F: Any) -> dict[str, Any]:  # noqa: N803  # as the style guide of PySpark writes it
    """By rule: whether an operation is one that it judges. ``F``: see ``frames.functions_of``."""

    def _is(protocol: str, *facts: str) -> Any:
        return (F.col("protocol") == protocol) & F.col("fact").isin(*facts)

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
        "stream-order": _is("nats", "publish-answer"),
        "one-payload": _is("nats", "delivery", "read"),
        "message-id": _is("nats", "publish-answer") & F.col("message_id").isNotNull(),
        "ack-floor": _is("nats", "consumer-info"),
        "delivery-tag": amqp_delivery,
        "prefetch": consumed,
        "known-delivery-tag": _is("amqp", "ack"),
        "live-consumer": consumed,
        "redelivered": amqp_delivery & F.col("message_id").isNotNull(),
        "one-confirm": _is("amqp", "publish-answer"),
        "return-first": _is("amqp", "return"),
    }


def compliance(operations: AnyFrame, violations: Frame) -> AnyFrame:
    """One row for each requirement and server; of a protocol that no server spoke, one without a server."""
    F = functions_of(operations)  # noqa: N806  # as the style guide of PySpark writes it
    seen = (
        operations.where(F.col("number") > 0)
        .groupBy("server", "protocol")
        .agg(*(F.count_if(condition).alias(rule) for rule, condition in observed_by_rule(F).items()))
    )
    broken = violations.groupBy("server", "rule").agg(
        F.count_if("certain").alias("violations"), F.count_if(~F.col("certain")).alias("possible")
    )
    return rows_beside(operations, COMPLIANCE, compliance_rows(records(seen), records(broken)))


_Row = dict[str, Any]


def compliance_rows(seen: Iterable[Mapping[str, Any]], broken: Iterable[Mapping[str, Any]]) -> list[_Row]:
    """Rows of the table, in its order.

    ``seen``: by server and protocol, how many operations each rule judged. ``broken``: by server and rule,
    how many violations are certain and how many are possible.
    """
    servers: dict[str, set[str]] = defaultdict(set)
    observed: dict[tuple[str | None, str], int] = defaultdict(int)
    for row in seen:
        servers[row["protocol"]].add(row["server"])
        for monitor in MONITORS:
            observed[row["server"], monitor.rule] += row[monitor.rule]
    counts = {(row["server"], row["rule"]): (row["violations"], row["possible"]) for row in broken}
    rows: dict[tuple[str, str, str], _Row] = {}
    for about, rule, protocol in _rules(Catalogue.load()):
        for server in servers.get(protocol, {None}):
            key = about["requirement"], server or "", about["side"]
            row = rows.setdefault(
                key, about | {"server": server, "rules": [], "observed": 0, "violations": 0, "possible": 0}
            )
            certain, possible = counts.get((server, rule), (0, 0))
            row["rules"] = sorted({*row["rules"], rule})
            row["observed"] += observed[server, rule]
            row["violations"] += certain
            row["possible"] += possible
    return [row | {"verdict": _verdict(row)} for _, row in sorted(rows.items())]


def _verdict(row: _Row) -> str:
    return BROKEN if row["violations"] else KEPT if row["observed"] else NOT_SEEN


def _rules(catalogue: Catalogue) -> Iterable[tuple[_Row, str, str]]:
    """Of each monitored requirement what the catalogue says, a rule that judges it, and its protocol."""
    for monitor in MONITORS:
        for identity in monitor.requirements:
            row = catalogue.by_id[identity]
            about = {
                "requirement": identity, "level": row.level.value, "statement": row.statement,
                "source": row.source, "side": monitor.side.value,
            }  # fmt: skip
            yield about, monitor.rule, "amqp" if identity.startswith("AMQP-") else "nats"
