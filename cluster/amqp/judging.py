"""Judges a history of a replicated queue. Pure; sorting decides: O(n log n).

Every attempt is a message of its own, so a message that comes twice, both times as if it were new, is a
finding. What is marked as redelivered may come again at any time and in any place, also after its
acknowledgement: a consumer's acknowledgement has no answer.
Sources: see the requirements ``AMQP-CLUS-*``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from plumbline.cluster.amqp.history import Delivery, QueueHistory, Settlement
from plumbline.cluster.judging import (
    ClusterJudgement,
    ClusterRule,
    Finding,
    Messages,
    available,
    judgement,
    lost,
    messages_of,
    unexpected,
)


def judge(history: QueueHistory) -> ClusterJudgement:
    """Every violation of every rule, in the order of the rules and of the deliveries."""
    messages = messages_of(history.attempts)
    findings: list[Finding] = []
    for rule in _RULES:
        findings += rule(history, messages)
    return judgement(
        findings,
        history.attempts,
        messages,
        {one.message for one in history.deliveries},
        lambda acknowledged: _undecided(history, acknowledged),
        deliveries=len(history.deliveries),
    )


def _available(history: QueueHistory, messages: Messages) -> Iterator[Finding]:
    return available(
        "queue", history.problem, exists=history.exists, is_whole=history.is_whole and history.is_empty
    )


def _lost(history: QueueHistory, messages: Messages) -> Iterator[Finding]:
    """Confirmed, and never delivered. Only if the queue was drained, or is gone."""
    if history.exists and not history.is_empty:
        return iter(())
    return lost(
        messages,
        {one.message for one in history.deliveries},
        lambda ack: f"{ack.id} was confirmed by node {ack.node + 1} and was never delivered",
    )


def _unexpected(history: QueueHistory, messages: Messages) -> Iterator[Finding]:
    return unexpected(messages, {one.message: (0, "delivered") for one in history.deliveries})


def _duplicated(history: QueueHistory, messages: Messages) -> Iterator[Finding]:
    """Delivered twice, and not marked as redelivered the second time."""
    seen: set[str] = set()
    for one in history.deliveries:
        if one.message in seen and not one.redelivered:
            text = f"{one.message} was delivered again, and is not marked as redelivered"
            yield _finding(ClusterRule.DUPLICATED, text, one)
        seen.add(one.message)


def _redelivered(history: QueueHistory, messages: Messages) -> Iterator[Finding]:
    """Delivered, and neither acknowledged nor delivered again. Only if the queue was drained."""
    if history.exists and not history.is_empty:
        return
    last = {one.message: one for one in history.deliveries}
    settled = {one.message for one in history.deliveries if one.settlement is Settlement.ACK}
    for name, one in last.items():
        if name not in settled:
            how = "requeued" if one.settlement is Settlement.REQUEUE else "left without an answer"
            text = f"{name} was delivered by node {one.node + 1}, {how}, and not delivered again"
            yield _finding(ClusterRule.REDELIVERED, text, one)


def _one_confirm(history: QueueHistory, messages: Messages) -> Iterator[Finding]:
    for text in history.answers:
        yield Finding(ClusterRule.ONE_CONFIRM, text)


def _unconfirmed(history: QueueHistory, messages: Messages) -> Iterator[Finding]:
    for attempt in history.unconfirmed:
        text = f"{attempt.id} has no confirm from node {attempt.node + 1}, and its channel is open still"
        yield Finding(ClusterRule.UNCONFIRMED, text, attempt.id, attempt.node, 0, attempt.invoked)


def _order(history: QueueHistory, messages: Messages) -> Iterator[Finding]:
    """One message was confirmed before another was published, and came after it on one channel; both for the
    first time."""
    latest: dict[int, tuple[int, str]] = {}  # channel -> the latest publish among those that came
    for one in _first_deliveries(history):
        message = messages.get(one.message)
        if message is None:
            continue
        sent, name = latest.get(one.channel, (0, ""))
        if message.completed and message.completed < sent:
            text = f"{one.message} came after {name}, which was published after the confirm of {one.message}"
            yield _finding(ClusterRule.ORDER, text, one)
        if message.invoked > sent:
            latest[one.channel] = (message.invoked, one.message)


def _channel_order(history: QueueHistory, messages: Messages) -> Iterator[Finding]:
    """Two messages of one publishing channel came on one consumer's channel in the wrong order; both for the
    first time."""
    highest: dict[tuple[int, int, int], int] = {}
    for one in _first_deliveries(history):
        message = messages.get(one.message)
        if message is None:
            continue
        first = message.first
        key = (one.channel, first.process, first.connection)
        if first.counter < highest.get(key, -1):
            text = f"{one.message} came after {first.process}-{highest[key]} of the same channel"
            yield _finding(ClusterRule.CHANNEL_ORDER, text, one)
        else:
            highest[key] = first.counter


def _first_deliveries(history: QueueHistory) -> Iterator[Delivery]:
    return (one for one in history.deliveries if not one.redelivered)


def _finding(rule: ClusterRule, text: str, one: Delivery) -> Finding:
    return Finding(rule, text, one.message, one.node, 0, one.at)


_Rule = Callable[[QueueHistory, Messages], Iterable[Finding]]
_RULES: tuple[_Rule, ...] = (
    _available, _lost, _unexpected, _duplicated, _redelivered, _one_confirm, _unconfirmed, _order,
    _channel_order,
)  # fmt: skip


def _undecided(history: QueueHistory, acknowledged: int) -> dict[ClusterRule, str]:
    """Rules that had nothing to look at, and why. A rule with a finding is decided all the same."""
    missing: dict[ClusterRule, str] = {}
    if not acknowledged:
        rules = (ClusterRule.LOST, ClusterRule.ONE_CONFIRM, ClusterRule.ORDER, ClusterRule.UNCONFIRMED)
        missing |= dict.fromkeys(rules, "no publish was confirmed")
    if not history.deliveries:
        of_deliveries = (
            ClusterRule.UNEXPECTED, ClusterRule.DUPLICATED, ClusterRule.REDELIVERED, ClusterRule.ORDER,
            ClusterRule.CHANNEL_ORDER,
        )  # fmt: skip
        missing |= dict.fromkeys(of_deliveries, "nothing was delivered")
    if history.exists and not history.is_empty:
        why = "the queue could not be drained"
        missing |= dict.fromkeys((ClusterRule.LOST, ClusterRule.REDELIVERED), why)
    return missing
