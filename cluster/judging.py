"""Judges a history of a replicated log. Pure; sorting decides, nothing is searched: O(n log n).

An acknowledgement states the position of its message in the log. So the log must have the message at this
position, on every node; and if one acknowledgement was received before another message was sent, it has the
lower position. What has no answer may be stored or not, and is never a finding.
Sources: see the requirements ``JS-CLUS-*``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from plumbline.cluster.history import Attempt, AttemptOutcome, ClusterHistory, LeaderRead


class ClusterRule(StrEnum):
    """What a run is judged by."""

    AVAILABLE = "available"
    LOST = "lost"
    PLACE = "place"
    ONE_MESSAGE = "one-message"
    DUPLICATED = "duplicated"
    UNEXPECTED = "unexpected"
    SAME_LOG = "same-log"
    SAME_MESSAGE = "same-message"
    ORDER = "order"
    STALE_READ = "stale-read"


class LostPart(StrEnum):
    """Where lost messages of one process were: before all that it has in the log, between, or after."""

    PREFIX = "prefix"
    MIDDLE = "middle"
    END = "end"


class Finding(Struct, frozen=True):
    """One violation. ``message`` is its id, where it is about one; ``node`` the node, or None; ``sequence``
    the place in the log, or 0; ``at`` its time (``Attempt.completed``), or 0."""

    rule: ClusterRule
    text: str
    message: str = ""
    node: int | None = None
    sequence: int = 0
    at: int = 0
    part: LostPart | None = None


class ClusterJudgement(Struct, frozen=True):
    """Everything that was found, and what was counted. ``undecided`` names each rule without evidence, and
    why."""

    findings: tuple[Finding, ...]
    attempts: int = 0
    acknowledged: int = 0  # messages
    failed: int = 0  # messages of which no attempt was stored for certain
    indeterminate: int = 0
    stored: int = 0  # messages in the log
    recovered: int = 0  # indeterminate, and in the log
    reads: int = 0
    undecided: dict[ClusterRule, str] = {}

    def of(self, rule: ClusterRule) -> list[Finding]:
        """The findings of one rule."""
        return [finding for finding in self.findings if finding.rule is rule]


class _Message:
    """All attempts of one message."""

    __slots__ = ("acknowledged", "completed", "first", "invoked", "outcomes", "sequences")

    def __init__(self, first: Attempt) -> None:
        self.first = first
        self.invoked = first.invoked  # the earliest
        self.completed = 0  # the earliest acknowledgement
        self.outcomes: set[AttemptOutcome] = set()
        self.sequences: dict[int, Attempt] = {}  # the first acknowledgement of each
        self.acknowledged: Attempt | None = None

    def add(self, attempt: Attempt) -> None:
        self.invoked = min(self.invoked, attempt.invoked)
        self.outcomes.add(attempt.outcome)
        if attempt.outcome is AttemptOutcome.OK:
            self.sequences.setdefault(attempt.sequence, attempt)
            if self.acknowledged is None or attempt.completed < self.completed:
                self.acknowledged, self.completed = attempt, attempt.completed

    @property
    def outcome(self) -> AttemptOutcome:
        order = (AttemptOutcome.OK, AttemptOutcome.INDETERMINATE, AttemptOutcome.FAILED)
        return min(self.outcomes, key=order.index)


def judge(history: ClusterHistory) -> ClusterJudgement:
    """Every violation of every rule, in the order of the rules and of the log."""
    messages: dict[str, _Message] = {}
    for attempt in history.attempts:
        messages.setdefault(attempt.id, _Message(attempt)).add(attempt)
    union: dict[int, str] = {}  # a log that any node has
    for log in history.logs:
        for sequence, payload in log.messages.items():
            union.setdefault(sequence, payload)
    stored = set(union.values())
    findings: list[Finding] = []
    for rule in _RULES:
        findings += rule(history, messages, union)
    outcomes = Counter(message.outcome for message in messages.values())
    return ClusterJudgement(
        findings=tuple(findings),
        attempts=len(history.attempts),
        acknowledged=outcomes[AttemptOutcome.OK],
        failed=outcomes[AttemptOutcome.FAILED],
        indeterminate=outcomes[AttemptOutcome.INDETERMINATE],
        stored=len(union),
        recovered=sum(
            one.outcome is AttemptOutcome.INDETERMINATE and name in stored for name, one in messages.items()
        ),
        reads=len(history.reads),
        undecided=_undecided(history, outcomes[AttemptOutcome.OK]),
    )


_Messages = dict[str, _Message]
_Log = dict[int, str]


def _available(history: ClusterHistory, messages: _Messages, union: _Log) -> Iterator[Finding]:
    if not history.stream_exists:
        yield Finding(
            ClusterRule.AVAILABLE, f"the stream is gone after the cluster healed: {history.problem}"
        )
    elif not history.is_whole:
        yield Finding(
            ClusterRule.AVAILABLE, f"not every node was up to date in time after healing: {history.problem}"
        )


def _lost(history: ClusterHistory, messages: _Messages, union: _Log) -> Iterator[Finding]:
    """Acknowledged, and on no node. Only if every node was read, or the stream is gone."""
    if history.stream_exists and not _all_read(history):
        return
    stored = set(union.values())
    kept: dict[int, list[int]] = defaultdict(list)
    for payload in stored:
        if payload in messages:
            first = messages[payload].first
            kept[first.process].append(first.counter)
    bounds = {process: (min(counters), max(counters)) for process, counters in kept.items()}
    for name, message in messages.items():
        ack = message.acknowledged
        if ack is None or name in stored:
            continue
        low, high = bounds.get(ack.process, (-1, -1))
        part = (
            LostPart.END if ack.counter > high else LostPart.PREFIX if ack.counter < low else LostPart.MIDDLE
        )
        text = f"{name} was acknowledged as {ack.sequence} by node {ack.node + 1} and is on no node ({part})"
        yield Finding(ClusterRule.LOST, text, name, None, ack.sequence, ack.completed, part)


def _place(history: ClusterHistory, messages: _Messages, union: _Log) -> Iterator[Finding]:
    """The log has another message where an acknowledgement says that this one is."""
    for name, message in messages.items():
        for sequence, ack in message.sequences.items():
            found = union.get(sequence)
            if found is not None and found != name:
                text = f"{name} was acknowledged as {sequence}, and the log has {found} there"
                yield Finding(ClusterRule.PLACE, text, name, None, sequence, ack.completed)


def _one_message(history: ClusterHistory, messages: _Messages, union: _Log) -> Iterator[Finding]:
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


def _duplicated(history: ClusterHistory, messages: _Messages, union: _Log) -> Iterator[Finding]:
    """A message is in the log of a node twice."""
    seen: set[tuple[str, int]] = set()
    for log in history.logs:
        first: dict[str, int] = {}
        for sequence, payload in sorted(log.messages.items()):
            before = first.setdefault(payload, sequence)
            if before != sequence and (payload, sequence) not in seen:
                seen.add((payload, sequence))
                text = f"{payload} is stored as {before} and as {sequence}"
                yield Finding(ClusterRule.DUPLICATED, text, payload, log.node, sequence)


def _unexpected(history: ClusterHistory, messages: _Messages, union: _Log) -> Iterator[Finding]:
    """Stored, and never published, or refused."""
    for sequence, payload in sorted(union.items()):
        message = messages.get(payload)
        if message is None:
            yield Finding(ClusterRule.UNEXPECTED, f"{payload!r} ({sequence}) was never published", payload,
                          None, sequence)  # fmt: skip
        elif message.outcome is AttemptOutcome.FAILED:
            text = f"{payload} ({sequence}) is stored, and every publish of it was refused"
            yield Finding(ClusterRule.UNEXPECTED, text, payload, None, sequence)


def _same_log(history: ClusterHistory, messages: _Messages, union: _Log) -> Iterator[Finding]:
    """A node that was read lacks what another one has."""
    whole = [log for log in history.logs if log.complete]
    for log in whole:
        for sequence in sorted(union.keys() - log.messages.keys()):
            name = union[sequence]
            message = messages.get(name)
            at = message.completed if message else 0
            text = f"{name} ({sequence}) is not on node {log.node + 1}, and another node has it"
            yield Finding(ClusterRule.SAME_LOG, text, name, log.node, sequence, at)


def _same_message(history: ClusterHistory, messages: _Messages, union: _Log) -> Iterator[Finding]:
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


def _order(history: ClusterHistory, messages: _Messages, union: _Log) -> Iterator[Finding]:
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


def _stale_reads(history: ClusterHistory, messages: _Messages, union: _Log) -> Iterator[Finding]:
    """A read began after a sequence was acknowledged (or read), and found no message there."""
    known: dict[int, int] = {}  # sequence -> when it was known first
    for message in messages.values():
        for sequence, ack in message.sequences.items():
            known[sequence] = min(known.get(sequence, ack.completed), ack.completed)
    for read in history.reads:
        if read.found is not None:
            known[read.asked] = min(known.get(read.asked, read.completed), read.completed)
    for read in history.reads:
        if read.found is None and known.get(read.asked, read.invoked) < read.invoked:
            yield Finding(
                ClusterRule.STALE_READ, _stale_text(read), "", read.node, read.asked, read.completed
            )


def _stale_text(read: LeaderRead) -> str:
    return (
        f"a read through node {read.node + 1} found no message {read.asked}, which was acknowledged "
        "before the read began"
    )


_Rule = Callable[[ClusterHistory, _Messages, _Log], Iterable[Finding]]
_RULES: tuple[_Rule, ...] = (
    _available, _lost, _place, _one_message, _duplicated, _unexpected, _same_log, _same_message, _order,
    _stale_reads,
)  # fmt: skip


def _all_read(history: ClusterHistory) -> bool:
    return bool(history.logs) and all(log.complete for log in history.logs)


def _undecided(history: ClusterHistory, acknowledged: int) -> dict[ClusterRule, str]:
    """Rules that had nothing to look at, and why. A rule with a finding is decided all the same."""
    missing: dict[ClusterRule, str] = {}
    if not acknowledged:
        why = "no publish was acknowledged"
        missing |= dict.fromkeys(
            (ClusterRule.LOST, ClusterRule.PLACE, ClusterRule.ONE_MESSAGE, ClusterRule.ORDER), why
        )
    if not any(log.messages for log in history.logs):
        why = "no message was read"
        of_log = (ClusterRule.PLACE, ClusterRule.DUPLICATED, ClusterRule.UNEXPECTED, ClusterRule.SAME_MESSAGE)
        missing |= dict.fromkeys((*of_log, ClusterRule.SAME_LOG), why)
    if not _all_read(history):
        unread = [f"node {log.node + 1}: {log.problem}" for log in history.logs if not log.complete]
        why = "not every node could be read" + (f" ({'; '.join(unread)})" if unread else "")
        missing.setdefault(ClusterRule.SAME_LOG, why)
        if history.stream_exists:
            missing.setdefault(ClusterRule.LOST, why)
    if not history.reads:
        missing[ClusterRule.STALE_READ] = "no read was answered"
    return missing
