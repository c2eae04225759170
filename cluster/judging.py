"""What judges of histories share: rules, findings, the attempts of a message, and rules of every protocol.

``nats.judging`` judges a replicated log, ``amqp.judging`` a replicated queue. Pure; sorting decides, nothing
is searched: O(n log n). What has no answer may be stored or not, and is never a finding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from plumbline.cluster.history import Attempt, AttemptOutcome


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
    ONE_CONFIRM = "one-confirm"
    UNCONFIRMED = "unconfirmed"
    REDELIVERED = "redelivered"
    CHANNEL_ORDER = "channel-order"
    SETTLED = "settled"
    DELIVERED = "delivered"
    FLOOR = "floor"
    FLOOR_ABOVE = "floor-above"
    CONSUMER_AVAILABLE = "consumer-available"
    COMPARE_AND_SET = "compare-and-set"
    LAST_VALUE = "last-value"
    WATCH = "watch"
    REMOVED = "removed"


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
    stored: int = 0  # messages in the log, or that came out of the queue
    recovered: int = 0  # indeterminate, and stored
    reads: int = 0  # of the leader
    deliveries: int = 0  # to consumers, of a stream or a queue
    confirmed: int = 0  # double acks of consumers
    updates: int = 0  # of keys that were acknowledged
    undecided: dict[ClusterRule, str] = {}

    def of(self, rule: ClusterRule) -> list[Finding]:
        """The findings of one rule."""
        return [finding for finding in self.findings if finding.rule is rule]


class Unsuspected(Struct, frozen=True):
    """Counts of a part of a history that is left out, since it breaks no rule; as in ``ClusterJudgement``."""

    attempts: int = 0
    acknowledged: int = 0
    failed: int = 0
    indeterminate: int = 0
    stored: int = 0
    recovered: int = 0
    reads: int = 0


NOTHING = Unsuspected()


class Message:
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


Messages = dict[str, Message]


def messages_of(attempts: Iterable[Attempt]) -> Messages:
    """By their ids, in the order of their first attempts."""
    messages: Messages = {}
    for attempt in attempts:
        messages.setdefault(attempt.id, Message(attempt)).add(attempt)
    return messages


def judgement(
    findings: Iterable[Finding],
    attempts: Sequence[Attempt],
    messages: Messages,
    stored: Collection[str],
    undecided: Callable[[int], dict[ClusterRule, str]],
    *,
    reads: int = 0,
    deliveries: int = 0,
    confirmed: int = 0,
    updates: int = 0,
    others: Unsuspected = NOTHING,
) -> ClusterJudgement:
    """With everything counted. ``stored``: the messages that are there; ``undecided`` gets the number of
    acknowledged messages."""
    outcomes = Counter(message.outcome for message in messages.values())
    recovered = sum(
        one.outcome is AttemptOutcome.INDETERMINATE and name in stored for name, one in messages.items()
    )
    acknowledged = outcomes[AttemptOutcome.OK] + others.acknowledged
    return ClusterJudgement(
        findings=tuple(findings),
        attempts=len(attempts) + others.attempts,
        acknowledged=acknowledged,
        failed=outcomes[AttemptOutcome.FAILED] + others.failed,
        indeterminate=outcomes[AttemptOutcome.INDETERMINATE] + others.indeterminate,
        stored=len(stored) + others.stored,
        recovered=recovered + others.recovered,
        reads=reads + others.reads,
        deliveries=deliveries,
        confirmed=confirmed,
        updates=updates,
        undecided=undecided(acknowledged),
    )


def available(kept: str, problem: str, *, exists: bool, is_whole: bool) -> Iterator[Finding]:
    """``kept``: what is gone if it does not exist."""
    if not exists:
        yield Finding(ClusterRule.AVAILABLE, f"the {kept} is gone after the cluster healed: {problem}")
    elif not is_whole:
        yield Finding(
            ClusterRule.AVAILABLE, f"not every node was up to date in time after healing: {problem}"
        )


def lost(
    messages: Messages, stored: Collection[str], describe: Callable[[Attempt], str]
) -> Iterator[Finding]:
    """Acknowledged and not in ``stored``. ``describe`` says of an acknowledged attempt what is wrong."""
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
        yield Finding(
            ClusterRule.LOST, f"{describe(ack)} ({part})", name, None, ack.sequence, ack.completed, part
        )


def unexpected(messages: Messages, found: Mapping[str, tuple[int, str]]) -> Iterator[Finding]:
    """Stored, and never published, or refused. ``found``: payload -> its sequence, and words for where it
    was seen."""
    for payload, (sequence, where) in found.items():
        message = messages.get(payload)
        if message is None:
            text = f"{payload!r} ({where}) was never published"
        elif message.outcome is AttemptOutcome.FAILED:
            text = f"{payload} ({where}) is stored, and every publish of it was refused"
        else:
            continue
        yield Finding(ClusterRule.UNEXPECTED, text, payload, None, sequence)
