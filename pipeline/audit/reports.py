"""Audits for people and for programs: text, and one JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from plumbline.captures.plain import one_line, plain
from plumbline.captures.show import clock
from plumbline.monitors.histories import HistoryOutcome, Judgement
from plumbline.pipeline.audit.delivery_audit import ReceiverAudit
from plumbline.visible import visible_json

# In this order, worst first: the fields of a Judgement that are listed message by message.
REPORTED_KINDS = ("lost_prefix", "lost_middle", "lost_postfix", "duplicated", "unexpected", "indeterminate")


def exit_code(audited: Sequence[ReceiverAudit]) -> int:
    """1 if something is lost, duplicated or made up, and if nothing at all was certain."""
    is_told = any(one.judgement.ok for one in audited)
    return int(not is_told or any(one.judgement.has_fault for one in audited))


def as_text(audited: Sequence[ReceiverAudit], attempts: int, limit: int) -> Iterator[str]:
    """Lines; ``limit`` messages of each kind. ``attempts``: to publish, whoever was to get it."""
    return map(one_line, _lines(audited, attempts, limit))  # names are those of clients


def _lines(audited: Sequence[ReceiverAudit], attempts: int, limit: int) -> Iterator[str]:
    for one in audited:
        yield f"{one.receiver}: {_counts(one.judgement)}"
        for kind in REPORTED_KINDS:
            yield from _messages(one, kind, limit)
        for remark in one.remarks:
            yield f"  {remark}"
    if not audited:
        yield f"{attempts} messages were published, but the captures show no receiver for them"
        return
    outcomes = Counter(one.judgement.outcome for one in audited)
    summary = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in HistoryOutcome if outcomes[outcome])
    yield f"{len(audited)} receiver{'s' if len(audited) > 1 else ''}: {summary}"


def as_json(audited: Sequence[ReceiverAudit]) -> bytes:
    """``{"schema": "plumbline.audit/1", "receivers": [{"receiver", "outcome", "counts", "messages"}]}``."""
    found = {"schema": "plumbline.audit/1", "receivers": [_receiver(one) for one in audited]}
    text = msgspec.json.format(msgspec.json.encode(plain(found)), indent=2).decode()
    return visible_json(text).encode()


def _counts(judgement: Judgement) -> str:
    counts = [f"{len(judgement.ok)} ok"]
    for kind in REPORTED_KINDS:
        if ids := getattr(judgement, kind):
            word, _, where = kind.partition("_")
            counts.append(f"{len(ids)} {word}" + (f" ({where})" if where else ""))
    return ", ".join(counts)


def _messages(one: ReceiverAudit, kind: str, most: int) -> Iterator[str]:
    ids = getattr(one.judgement, kind)
    for name in ids[:most]:
        finding = one.findings[name]
        yield f"  {kind.replace('_', ', ')}: {name}"
        for place in finding.published:
            yield f"    published  {clock(place.at)} {place}"
        for place in finding.arrivals:
            yield f"    delivered  {clock(place.at)} {place}"
    if len(ids) > most:
        yield f"  {kind.replace('_', ', ')}: {len(ids) - most} more"


def _receiver(one: ReceiverAudit) -> dict[str, Any]:
    judgement = one.judgement
    messages = [
        {"outcome": kind, **msgspec.to_builtins(one.findings[name])}
        for kind in REPORTED_KINDS
        for name in getattr(judgement, kind)
    ]
    counts = {kind: len(getattr(judgement, kind)) for kind in ("ok", *REPORTED_KINDS)}
    return {
        "receiver": one.receiver,
        "outcome": judgement.outcome,
        "counts": counts,
        "remarks": list(one.remarks),
        "messages": messages,
    }
