"""Judges a history of a replicated log. Pure; sorting decides, nothing is searched: O(n log n).

An acknowledgement states the position of its message in the log. So the log must have the message at this
position, on every node; and if one acknowledgement was received before another message was sent, it has the
lower position. What has no answer may be stored or not, and is never a finding.
Sources: see the requirements ``JS-CLUS-*``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from plumbline.cluster.history import AttemptOutcome, Retention
from plumbline.cluster.judging import (
    NOTHING,
    ClusterJudgement,
    ClusterRule,
    Finding,
    Messages,
    Unsuspected,
    available,
    judgement,
    lost,
    messages_of,
    unexpected,
)
from plumbline.cluster.nats.consumers import judging as consumers
from plumbline.cluster.nats.history import ClusterHistory, LeaderRead
from plumbline.cluster.nats.keys import judging as keys


def judge(history: ClusterHistory, others: Unsuspected = NOTHING) -> ClusterJudgement:
    """Every violation of every rule, in the order of the rules and of the log. ``others``: what is not in
    ``history`` because it breaks no rule."""
    messages = messages_of(history.attempts)
    union: dict[int, str] = {}  # what any node has, or has had
    for log in history.logs:
        for sequence, payload in log.messages.items():
            union.setdefault(sequence, payload)
    if history.consumer is not None and history.retention is not Retention.LIMITS:
        for one in history.consumer.deliveries:
            union.setdefault(one.sequence, one.message)
    findings: list[Finding] = []
    for rule in _RULES:
        findings += rule(history, messages, union)
    if history.consumer is not None:
        findings += consumers.findings(history.consumer, union)
    if history.keys is not None:
        findings += keys.findings(history.keys)
    deliveries = history.consumer.deliveries if history.consumer is not None else ()
    updates = history.keys.updates if history.keys is not None else ()
    return judgement(
        findings,
        history.attempts,
        messages,
        set(union.values()),
        lambda acknowledged: _undecided(history, acknowledged, others),
        reads=len(history.reads),
        deliveries=len(deliveries),
        confirmed=sum(bool(one.confirmed) for one in deliveries),
        updates=sum(one.outcome is AttemptOutcome.OK for one in updates),
        others=others,
    )


_Log = dict[int, str]


def _available(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    return available("stream", history.problem, exists=history.stream_exists, is_whole=history.is_whole)


def _lost(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    """Acknowledged, and on no node. Only if every node was read, or the stream is gone."""
    if history.stream_exists and not _all_read(history):
        return iter(())
    # A message that was delivered may have been removed, but only after its ack.
    removable = history.removable()
    left = {sequence for log in history.logs for sequence in log.messages}
    stored = {payload for sequence, payload in union.items() if sequence in left or sequence in removable}
    stored |= {name for name in messages if not history.is_kept(name)}
    return lost(
        messages,
        stored,
        lambda ack: f"{ack.id} was acknowledged as {ack.sequence} by node {ack.node + 1} and is on no node",
    )


def _place(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    """The log has another message where an acknowledgement says that this one is."""
    for name, message in messages.items():
        for sequence, ack in message.sequences.items():
            found = union.get(sequence)
            if found is not None and found != name:
                text = f"{name} was acknowledged as {sequence}, and the log has {found} there"
                yield Finding(ClusterRule.PLACE, text, name, None, sequence, ack.completed)


def _one_message(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    """A sequence was acknowledged for two messages, or a message with two sequences."""
    owners: dict[int, str] = {}
    for name, message in messages.items():
        for sequence, ack in message.sequences.items():
            owner = owners.setdefault(sequence, name)
            if owner != name:
                text = f"sequence {sequence} was acknowledged for {owner} and for {name}"
                yield Finding(ClusterRule.ONE_MESSAGE, text, name, None, sequence, ack.completed)
        if len(message.sequences) > 1:
            numbers = " and ".join(map(str, sorted(message.sequences)))
            last = max(message.sequences)
            text = f"{name}, published again with the same message id, was acknowledged as {numbers}"
            yield Finding(ClusterRule.DUPLICATED, text, name, None, last, message.sequences[last].completed)


def _duplicated(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    """A message is in the log of a node twice, or was delivered with two sequences."""
    seen: set[tuple[str, int]] = set()
    delivered = history.consumer.deliveries if history.consumer is not None else ()
    came = {one.sequence: one.message for one in delivered}
    for node, log in [*((log.node, log.messages) for log in history.logs), (None, came)]:
        first: dict[str, int] = {}
        for sequence, payload in sorted(log.items()):
            before = first.setdefault(payload, sequence)
            if before != sequence and (payload, sequence) not in seen:
                seen.add((payload, sequence))
                text = f"{payload} is stored as {before} and as {sequence}"
                yield Finding(ClusterRule.DUPLICATED, text, payload, node, sequence)


def _unexpected(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    found: dict[str, tuple[int, str]] = {}
    for sequence in sorted(union):
        found.setdefault(union[sequence], (sequence, str(sequence)))
    return unexpected(messages, found)


def _same_log(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    """A node that was read lacks what another one has."""
    whole = [log for log in history.logs if log.complete]
    left = {sequence for log in history.logs for sequence in log.messages}
    for log in whole:
        for sequence in sorted(left - log.messages.keys()):
            name = union[sequence]
            message = messages.get(name)
            at = message.completed if message else 0
            text = f"{name} ({sequence}) is not on node {log.node + 1}, and another node has it"
            yield Finding(ClusterRule.SAME_LOG, text, name, log.node, sequence, at)


def _same_message(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    """Two nodes have different messages at one sequence; or a read found what the log does not have there."""
    for log in history.logs:
        for sequence, payload in log.messages.items():
            if payload != union[sequence]:
                text = (
                    f"sequence {sequence} is {payload} on node {log.node + 1} and {union[sequence]} elsewhere"
                )
                yield Finding(ClusterRule.SAME_MESSAGE, text, payload, log.node, sequence)
    seen: dict[int, str] = {}
    for read in history.reads:
        if read.found is None:
            continue
        stored = seen.setdefault(read.asked, union.get(read.asked, read.found))
        if read.found != stored:
            text = f"a read of sequence {read.asked} gave {read.found}; it is {stored} elsewhere"
            yield Finding(ClusterRule.SAME_MESSAGE, text, read.found, read.node, read.asked, read.completed)


def _order(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    """An acknowledgement was received before another message was sent for the first time, and has the
    higher sequence."""
    placed = [
        (message.invoked, message.completed, min(message.sequences), name)
        for name, message in messages.items()
        if message.sequences
    ]
    by_end = sorted(placed, key=lambda one: one[1])
    highest, holder, taken = 0, "", 0
    for invoked, completed, sequence, name in sorted(placed):
        while taken < len(by_end) and by_end[taken][1] < invoked:
            if by_end[taken][2] > highest:
                highest, holder = by_end[taken][2], by_end[taken][3]
            taken += 1
        if sequence < highest:
            text = (
                f"{name} has sequence {sequence}, and {holder} was acknowledged as {highest} before {name} "
                "was sent"
            )
            yield Finding(ClusterRule.ORDER, text, name, None, sequence, completed)


def _stale_reads(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    """A read began after a sequence was acknowledged (or read), and found no message there."""
    known: dict[int, int] = {}  # sequence -> when it was known first
    for message in messages.values():
        for sequence, ack in message.sequences.items():
            known[sequence] = min(known.get(sequence, ack.completed), ack.completed)
    for read in history.reads:
        if read.found is not None:
            known[read.asked] = min(known.get(read.asked, read.completed), read.completed)
    removable = history.removable()
    dropped = {
        sequence
        for name, message in messages.items()
        if not history.is_kept(name)
        for sequence in message.sequences
    }
    for read in history.reads:
        may_lack = read.asked in dropped or removable.get(read.asked, read.completed) < read.completed
        if read.found is None and not may_lack and known.get(read.asked, read.invoked) < read.invoked:
            yield Finding(
                ClusterRule.STALE_READ, _stale_text(read), "", read.node, read.asked, read.completed
            )


def _stale_text(read: LeaderRead) -> str:
    return (
        f"a read through node {read.node + 1} found no message {read.asked}, which was acknowledged "
        "before the read began"
    )


def _removed(history: ClusterHistory, messages: Messages, union: _Log) -> Iterator[Finding]:
    """A node still has a message whose double ack was confirmed, or one that no consumer takes."""
    if history.consumer is None or history.retention is Retention.LIMITS:
        return
    confirmed = {one.sequence for one in history.consumer.deliveries if one.confirmed}
    for log in history.logs:
        for sequence, payload in sorted(log.messages.items()):
            why = "its double ack was confirmed" if sequence in confirmed else ""
            if payload in messages and not history.is_kept(payload):
                why = "no consumer takes it"
            if why:
                text = f"{payload} ({sequence}) is still on node {log.node + 1}, and {why}"
                yield Finding(ClusterRule.REMOVED, text, payload, log.node, sequence)


_Rule = Callable[[ClusterHistory, Messages, _Log], Iterable[Finding]]
_RULES: tuple[_Rule, ...] = (
    _available, _lost, _place, _one_message, _duplicated, _unexpected, _same_log, _same_message, _order,
    _stale_reads, _removed,
)  # fmt: skip


def _all_read(history: ClusterHistory) -> bool:
    return bool(history.logs) and all(log.complete for log in history.logs)


def _undecided(history: ClusterHistory, acknowledged: int, others: Unsuspected) -> dict[ClusterRule, str]:
    """Rules that had nothing to look at, and why. A rule with a finding is decided all the same."""
    missing = consumers.undecided(history.consumer) | keys.undecided(history.keys)
    if not acknowledged:
        why = "no publish was acknowledged"
        missing |= dict.fromkeys(
            (ClusterRule.LOST, ClusterRule.PLACE, ClusterRule.ONE_MESSAGE, ClusterRule.ORDER), why
        )
    delivered = bool(history.consumer is not None and history.consumer.deliveries)
    is_removed = history.retention is not Retention.LIMITS and delivered
    if not is_removed and not others.stored and not any(log.messages for log in history.logs):
        why = "no message was read"
        of_log = (ClusterRule.PLACE, ClusterRule.DUPLICATED, ClusterRule.UNEXPECTED, ClusterRule.SAME_MESSAGE)
        missing |= dict.fromkeys((*of_log, ClusterRule.SAME_LOG), why)
    if not _all_read(history):
        unread = [f"node {log.node + 1}: {log.problem}" for log in history.logs if not log.complete]
        why = "not every node could be read" + (f" ({'; '.join(unread)})" if unread else "")
        missing.setdefault(ClusterRule.SAME_LOG, why)
        if history.stream_exists:
            missing.setdefault(ClusterRule.LOST, why)
    if history.consumer is None or not any(one.confirmed for one in history.consumer.deliveries):
        missing[ClusterRule.REMOVED] = "no double ack was confirmed"
    if not history.reads and not others.reads:
        missing[ClusterRule.STALE_READ] = "no read was answered"
    return missing
