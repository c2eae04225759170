"""Judges what a pull consumer delivered and stated. Pure; sorting decides: O(n log n).

An ack without an answer may have arrived or not. A message may be delivered again at any time until a double
ack of it was confirmed. A delivery is surely later than a confirmation only if the pull request that it
answers was sent after the confirmation was read: bytes may have been under way for long.
Sources: see the requirements ``JS-CLUS-011`` to ``JS-CLUS-016``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping

from plumbline.cluster.judging import ClusterRule, Finding
from plumbline.cluster.nats.consumers.history import AckKind, ConsumerHistory, ConsumerState, PullDelivery

Log = Mapping[int, str]  # sequence -> payload

NEVER = 1 << 63  # later than all times


def findings(history: ConsumerHistory, log: Log) -> Iterator[Finding]:
    """Every violation of every rule. ``log``: what any node stores."""
    for rule in _RULES:
        yield from rule(history, log)


def _available(history: ConsumerHistory, log: Log) -> Iterator[Finding]:
    if not history.is_drained:
        text = f"the consumer could not be drained after the cluster healed: {history.problem}"
        yield Finding(ClusterRule.CONSUMER_AVAILABLE, text)


def _settled(history: ConsumerHistory, log: Log) -> Iterator[Finding]:
    """Delivered again to a pull request that was sent after a double ack was confirmed."""
    confirmed: dict[int, int] = {}
    for one in history.deliveries:
        if one.confirmed:
            confirmed[one.sequence] = min(confirmed.get(one.sequence, NEVER), one.confirmed)
    for one in history.deliveries:
        if one.pulled > confirmed.get(one.sequence, NEVER):
            text = f"{_name(one)} was delivered to a request that was sent after its double ack was confirmed"
            yield _finding(ClusterRule.SETTLED, text, one)


def _delivered(history: ConsumerHistory, log: Log) -> Iterator[Finding]:
    """Stored, and never delivered. Only if the consumer was drained."""
    if not history.is_drained:
        return
    came = {one.sequence for one in history.deliveries}
    for sequence, message in sorted(log.items()):
        if history.takes(message) and sequence not in came:
            text = f"{message} ({sequence}) is in the stream and was never delivered"
            yield Finding(ClusterRule.DELIVERED, text, message, None, sequence)


def _redelivered(history: ConsumerHistory, log: Log) -> Iterator[Finding]:
    """Delivered, never acknowledged, and not delivered again. Only if the consumer was drained."""
    if not history.is_drained:
        return
    acknowledged = {one.sequence for one in history.deliveries if one.acknowledged}
    last = {one.sequence: one for one in history.deliveries}
    for sequence, one in sorted(last.items()):
        if sequence not in acknowledged:
            how = "not acknowledged, and not delivered again"
            text = f"{_name(one)} was delivered by node {one.node + 1}, {how}"
            yield _finding(ClusterRule.REDELIVERED, text, one)


def _floor(history: ConsumerHistory, log: Log) -> Iterator[Finding]:
    """One leader states a lower floor than before; or, at the end, the consumer a lower one than any leader
    did. An old leader that does not know of its successor yet may state an old floor."""
    highest: dict[str, ConsumerState] = {}
    by_end = sorted(history.states, key=lambda one: one.completed)
    taken = 0
    for state in sorted(history.states, key=lambda one: one.invoked):
        while taken < len(by_end) and by_end[taken].completed < state.invoked:
            before = highest.setdefault(by_end[taken].leader, by_end[taken])
            if by_end[taken].ack_floor > before.ack_floor:
                highest[by_end[taken].leader] = by_end[taken]
            taken += 1
        before = highest.get(state.leader, state)
        if state.ack_floor < before.ack_floor:
            yield _floor_finding(ClusterRule.FLOOR, state, f"and {before.ack_floor} before")
    top = max(history.states, key=lambda one: one.ack_floor, default=None)
    last = history.last
    if top is not None and last is not None and last.ack_floor < top.ack_floor:
        why = f"at the end, and {top.leader} stated {top.ack_floor} before"
        yield _floor_finding(ClusterRule.FLOOR, last, why)


def _floor_above(history: ConsumerHistory, log: Log) -> Iterator[Finding]:
    """A floor includes a message of which no ack was sent before the floor was stated."""
    sent: dict[int, int] = {}
    for one in history.deliveries:
        if one.acknowledged:
            sent[one.sequence] = min(sent.get(one.sequence, NEVER), one.acknowledged)
    sequences = sorted(sequence for sequence, message in log.items() if history.takes(message))
    latest: list[tuple[int, int]] = []  # of each sequence: the latest first ack up to it, and whose it is
    for sequence in sequences:
        one_sent = (sent.get(sequence, NEVER), sequence)
        latest.append(max(latest[-1], one_sent) if latest else one_sent)
    for state in history.states if history.last is None else [*history.states, history.last]:
        place = bisect_right(sequences, state.ack_floor) - 1
        if place >= 0 and latest[place][0] > state.completed:
            missing = latest[place][1]
            why = f"and no ack of {log[missing]} ({missing}) was sent until then"
            yield _floor_finding(ClusterRule.FLOOR_ABOVE, state, why)


_Rule = Callable[[ConsumerHistory, Log], Iterable[Finding]]
_RULES: tuple[_Rule, ...] = (_settled, _delivered, _redelivered, _floor, _floor_above, _available)
OF_CONSUMERS = (
    ClusterRule.SETTLED, ClusterRule.DELIVERED, ClusterRule.REDELIVERED, ClusterRule.FLOOR,
    ClusterRule.FLOOR_ABOVE, ClusterRule.CONSUMER_AVAILABLE,
)  # fmt: skip


def undecided(history: ConsumerHistory | None) -> dict[ClusterRule, str]:
    """Rules that had nothing to look at, and why."""
    if history is None:
        return dict.fromkeys(OF_CONSUMERS, "no consumer was asked for messages")
    missing: dict[ClusterRule, str] = {}
    if not history.is_drained:
        why = "the consumer could not be drained"
        missing |= dict.fromkeys((ClusterRule.DELIVERED, ClusterRule.REDELIVERED), why)
    if not any(one.confirmed for one in history.deliveries):
        missing[ClusterRule.SETTLED] = "no double ack was confirmed"
    if not any(one.settlement is AckKind.NONE for one in history.deliveries):
        missing.setdefault(ClusterRule.REDELIVERED, "no delivery was left without an ack")
    if not history.states:
        why = "no CONSUMER.INFO was answered"
        missing |= dict.fromkeys((ClusterRule.FLOOR, ClusterRule.FLOOR_ABOVE), why)
    return missing


def _name(one: PullDelivery) -> str:
    return f"{one.message} ({one.sequence})"


def _finding(rule: ClusterRule, text: str, one: PullDelivery) -> Finding:
    return Finding(rule, text, one.message, one.node, one.sequence, one.at)


def _floor_finding(rule: ClusterRule, state: ConsumerState, why: str) -> Finding:
    text = f"{state.leader} states the ack floor {state.ack_floor}, {why}"
    return Finding(rule, text, "", state.node, state.ack_floor, state.completed)
